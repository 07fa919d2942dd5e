import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { writeNpy, writeNpz, writeSafetensors } from '@ropewalk/formats';
import { roundTo, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { ropewalkIn } from '../../../test/support/command.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'cache-diff-'));
after(() => rmSync(folder, { recursive: true }));
const run = (...args: string[]) => ropewalkIn(root, 'cache-diff', ...args);

const [TOKENS, HEADS, DIM] = [24, 2, 64];
const ROPE = 'ROPE(type=f32,ne_a=[64,2,24,1],n_dims=64,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)';

/** Keys of a layer, turned to positions by base 10000 in halves; [tokens, heads, head_dim]. */
function keysAt(layer: number, positions: readonly number[]): Float32Array {
  const random = randomFrom(`layer ${layer}`);
  const x = Float32Array.from({ length: TOKENS * HEADS * DIM }, () => random.uniform(-1, 1));
  return x.map((value, n) => {
    const [i, token] = [n % DIM, Math.floor(n / DIM / HEADS)];
    const [j, other] = [i % (DIM / 2), x[i < DIM / 2 ? n + DIM / 2 : n - DIM / 2]!];
    const angle = positions[token]! * 10000 ** ((-2 * j) / DIM);
    return value * Math.cos(angle) + (i < DIM / 2 ? -other : other) * Math.sin(angle);
  });
}

/** [tokens, heads, head_dim] as [1, heads, tokens, head_dim]. */
function headsFirst(rows: Float32Array): Float32Array {
  const y = new Float32Array(rows.length);
  for (let token = 0; token < TOKENS; token++)
    for (let n = 0; n < HEADS; n++)
      y.set(rows.subarray((token * HEADS + n) * DIM, (token * HEADS + n + 1) * DIM), (n * TOKENS + token) * DIM);
  return y;
}

const path = (name: string, bytes: Uint8Array): string => {
  writeFileSync(join(folder, name), bytes);
  return join(folder, name);
};
const zero = Array.from({ length: TOKENS }, (_, token) => token);
const late = zero.map((token) => (token < 4 ? token : token + 1));
const values = keysAt(99, zero);
const npz = (name: string, positions: readonly number[], key = (layer: number) => `past_key_values.${layer}.key`) => {
  const shape = [1, HEADS, TOKENS, DIM];
  const layers = [0, 1].flatMap((layer) => [
    [key(layer), { dtype: 'f32', shape, data: headsFirst(keysAt(layer, positions)) }] as const,
    [`past_key_values.${layer}.value`, { dtype: 'f32', shape, data: headsFirst(values) }] as const,
  ]);
  return path(name, writeNpz(new Map(layers.map(([id, { data, ...head }]) => [id, tensorFrom(data, head)]))));
};

describe('ropewalk cache-diff', () => {
  const [a, b] = [npz('a.npz', zero), npz('b.npz', late)];
  test('a position too many from token 4 on, in both layers', async () => {
    const { status, stdout } = await run(a, b, '--layout', 'bnsh', '--expect', ROPE);
    assert.equal(status, 1);
    assert.deepEqual(stdout.trimEnd().split('\n'), [
      'layers 0-1:',
      '  tokens 0-3: as in A',
      '  tokens 4-23: turned by +1 position',
      '  values are equal: only positions differ',
    ]);
  });
  test('positions that ask for it', async () => {
    const p = (name: string, list: readonly number[]) =>
      path(name, writeNpy(BigInt64Array.from(list, BigInt), { dtype: 'i64', shape: [TOKENS] }));
    const given = ['--positions', p('p.npy', zero), '--then-positions', p('q.npy', late)];
    const { status, stdout } = await run(a, b, '--layout', 'bnsh', '--expect', ROPE, '--json', ...given);
    assert.equal(status, 0, stdout);
    const { right, layers } = JSON.parse(stdout);
    assert.equal(right, true);
    assert.deepEqual(
      layers[1].runs.map((one: { at: number; turned: number; off: number }) => [one.at, one.turned, one.off]),
      [
        [0, 0, 0],
        [4, 1, 0],
      ],
    );
  });
  test('.npy with layers in front, .safetensors with the names of other runtimes', async () => {
    const both = Float32Array.from([...keysAt(0, zero), ...keysAt(1, zero)]);
    const npy = path('k.npy', writeNpy(both, { dtype: 'f32', shape: [2, TOKENS, HEADS, DIM] }));
    const tensors = [0, 1].map(
      (n) => [`cache_k_l${n}`, tensorFrom(keysAt(n, zero), { shape: [TOKENS, HEADS, DIM] })] as const,
    );
    const other = path('k.safetensors', writeSafetensors(new Map(tensors)));
    const { status, stdout } = await run(npy, other);
    assert.equal(status, 0, stdout);
    assert.equal(stdout, 'layers 0-1:\n  tokens 0-23: as in A\n');
    const narrow = both.map((value) => roundTo('bf16', value)); // as numpy has no bf16
    const wide = path('wide.npy', writeNpy(narrow, { dtype: 'f32', shape: [2, TOKENS, HEADS, DIM] }));
    const rounded = await run(npy, wide);
    assert.match(rounded.stdout, /^layers 0-1:\n {2}tokens 0-23: as in A, error up to 0\.\d+ %\n$/);
    assert.equal(rounded.status, 0);
    const one = await run(npy, `${other}:cache_k_l0`);
    assert.match(
      one.stderr.replace(/\s+/g, ' '),
      /b: expected the layers of a, 0,1, got \[0\]\. Dump the same layers\./,
    );
  });
  test('what cannot be compared is refused', async () => {
    const odd = path('odd.npz', writeNpz(new Map([['x', tensorFrom(values, { shape: [TOKENS, HEADS, DIM] })]])));
    const small = path('small.npy', writeNpy(values, { dtype: 'f32', shape: [TOKENS, 2 * HEADS, DIM / 2] }));
    const flat = path('flat.npy', writeNpy(values, { dtype: 'f32', shape: [TOKENS, HEADS * DIM] }));
    const whole = path('whole.npy', writeNpy(values, { dtype: 'f32', shape: [TOKENS, HEADS, DIM] }));
    for (const [args, says] of [
      [
        [whole, odd],
        /b: .*odd\.npz: expected tensors named as keys, such as keys, 0\.k or key_cache\.0, got .*Name one: /,
      ],
      [[whole, small], /b: expected 2 heads of 64 dimensions, as a has, got \[4, ?32\]/],
      [[whole, flat], /b: expected keys of \[tokens, heads, head_dim\], or with layers in front/],
      [[whole, whole, '--positions', whole], /--positions: give those of both caches\./],
      [[whole, whole, '--layer', '1'], /--layer: it needs --expect\./],
      [[whole, join(folder, 'none.npy')], /none\.npy/],
      [[whole, path('keys.txt', Buffer.from('keys'))], /keys\.txt: it is no state file of llama\.cpp, and no \.npy,/],
    ] as const) {
      const { status, stderr } = await run(...args);
      assert.equal(status, 2);
      assert.match(stderr.replace(/\s+/g, ' '), says);
    }
  });
});
