/** Tests assert_rope.py: it accepts the outputs that verify accepts, and says what is wrong with others. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chooseBuiltIn } from '../src/golden/choose.js';
import { answer } from '../src/golden/write.js';
import { writeGoldenFolder } from '../src/golden/write-folder.node.js';
import { expectationsOf } from '../src/verify/model.js';
import { defaultTable } from '../src/verify/rope-model.js';

const PYTHON = '/usr/bin/python3';
const skip = spawnSync(PYTHON, ['-c', 'import numpy']).status !== 0 && 'no python3-numpy';
const parent = mkdtempSync(join(tmpdir(), 'assert-rope-'));
const folder = join(parent, 'golden');
const chosen = chooseBuiltIn(['rope']).cases;
before(() => writeGoldenFolder(folder, chosen, { forms: ['npy'], seed: 1, generator: 'test' }));
after(() => rmSync(parent, { recursive: true }));

/** Every kernel below has f32 angles, as most have, and rounds its outputs to the case's dtype. */
const PRELUDE = `
import json, numpy as np
from golden.assert_rope import assert_rope, _judged, _numbers
cases = {c['id']: c for c in json.load(open('golden/manifest.json'))['cases']}
def load(c, name):
    return np.load('golden/' + next(t['files']['npy'] for t in c['inputs'] + c['outputs'] if t['name'] == name))
def bf16(a):
    bits = a.astype('f4').view('u4').astype('u8')
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype('u2')
def rope(x, positions, base=1e4, interleaved=False):
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    angle = positions.astype('f4')[..., None, None] * np.float32(base) ** (-np.arange(half, dtype='f4') / np.float32(half))
    c, s = np.cos(angle), np.sin(angle)
    y = np.concatenate([a * c - b * s, a * s + b * c], -1).astype('f4')
    return y if not interleaved else np.stack(np.split(y, 2, -1), -1).reshape(x.shape)
def said(*given, **named):
    try:
        assert_rope(*given, **named)
    except (AssertionError, ValueError) as error:
        return type(error).__name__ + ': ' + str(error)
    return 'accepted'
llama = cases['llama-2-half']
x, y, positions = (load(llama, name) for name in ('x', 'y', 'positions'))
`;

function python(code: string): string[] {
  const ran = spawnSync(PYTHON, ['-c', PRELUDE + code], { cwd: parent, encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stderr);
  return ran.stdout.trim().split('\n');
}

describe('assert_rope.py', { skip }, () => {
  test('takes the expected y of every case that is a rotation alone', () => {
    const lines = python(`
for id, c in cases.items():
    for part in c['attributes']['parts']:
        print(id, said(load(c, part['out']), load(c, part['x']), load(c, 'positions'), id))
`);
    const more = lines.filter((line) => !line.endsWith(' accepted'));
    assert.equal(lines.length - more.length, 45);
    assert.deepEqual(new Set(more.map((line) => line.split(' ')[0])), new Set(NORMED));
    assert.match(
      more[0]!,
      /ValueError: .*qwen3-norm-and-cache has a norm, which is more than a rotation\. Use verify\.$/,
    );
  });

  test('its bounds are those of verify, element by element', () => {
    writeFileSync(join(parent, 'bounds.json'), JSON.stringify(Object.fromEntries(boundsOfVerify())));
    const [worst, judged] = python(`
ratios = []
for name, bounds in json.load(open('bounds.json')).items():
    c, out = cases[name.split('/')[0]], name.split('/')[1]
    part = next(p for p in c['attributes']['parts'] if p['out'] == out)
    y, x = _numbers(load(c, out)), _numbers(load(c, part['x']))
    bound = _judged(y, x, load(c, 'positions'), c, c['outputs'][0]['dtype'])[2]
    if c['attributes']['layout'] == 'bnsh':
        bound = bound.swapaxes(1, 2)
    bounds = np.array(bounds).reshape(bound.shape)
    assert ((bounds == 0) == (bound == 0)).all(), name
    ratios.append(np.abs(bound / np.where(bounds == 0, 1, bounds) - (bounds != 0)).max())
print(max(ratios), len(ratios), sep='\\n')
`);
    assert.equal(judged, '45');
    assert.ok(Number(worst) < 1e-4, `a bound is off by ${worst} of itself`);
  });

  test('takes a kernel with f32 angles in f32, f16 and bf16, of any batch, tokens and heads', () => {
    const lines = python(`
print(said(rope(x, positions), x, positions, 'llama-2-half'))
print(said(rope(x[1], positions[1]), x[1], positions[1], llama))
print(said(rope(x[:, :3, :1], positions[:, :3]), x[:, :3, :1], positions[:, :3], llama))
print(said(rope(x.astype('f2').astype('f4'), positions).astype('f2'), x.astype('f2'), positions, llama))
half = _numbers(bf16(x)).astype('f4')
print(said(bf16(rope(half, positions)), bf16(x), positions, llama))
print(said(bf16(rope(half, positions)).view('i2'), bf16(x).view('i2'), positions, llama))
print(said(_numbers(bf16(rope(half, positions))).astype('f4'), half, positions, llama, dtype='bf16'))
glm = cases['glm-4']
print(said(_numbers(load(glm, 'y')).astype('f4'), _numbers(load(glm, 'x')).astype('f4'), load(glm, 'positions'), glm))
`);
    assert.deepEqual(lines, Array(8).fill('accepted'));
  });

  test('refuses wrong kernels, and names the worst element, its position and its bound', () => {
    const lines = python(`
print(said(rope(x, positions, interleaved=True), x, positions, 'llama-2-half'))
print(said(rope(x, positions + 1), x, positions, 'llama-2-half'))
print(said(rope(x, positions, base=10001), x, positions, 'llama-2-half'))
print(said(rope(x, -positions), x, positions, 'llama-2-half'))
print(said(rope(x, positions).astype('f2').astype('f4'), x, positions, 'llama-2-half'))
print(said(_numbers(bf16(rope(x, positions))).astype('f4'), x, positions, 'llama-2-half'))
print(said(np.where(y == y[1, 2, 1, 7], np.inf, y), x, positions, 'llama-2-half'))
gpt = cases['gpt-j']
changed = load(gpt, 'y')
changed[1, 3, 1, 200] = np.nextafter(changed[1, 3, 1, 200], np.float32(9))
print(said(changed, load(gpt, 'x'), load(gpt, 'positions'), gpt))
`);
    for (const line of lines)
      assert.match(
        line,
        /^AssertionError: (llama-2-half|gpt-j): \d+ of \d+ elements are wrong\. Worst: y\[\d+, \d+, \d+, \d+\], position \d+: got \S+, expected \S+ within \S+, off by \S+, judged as (f32|f16)\. Next: /,
      );
    assert.equal(lines.length, 8);
    assert.match(lines[6]!, /: 1 of 3072 .* y\[1, 2, 1, 7\], position 37: got inf, /);
    assert.match(lines[7]!, /: 1 of 6144 .* y\[1, 3, 1, 200\], position 9001: .* within 0, /);
  });

  test('says what is wrong with an argument', () => {
    assert.deepEqual(
      python(`
print(said(y, x, positions, 'llama-2-hlaf').split(' or ')[0] + '?')
print(said(y, x, positions, {}))
print(said(y, x[0], positions, llama))
print(said(y, x, positions[0, :3], llama))
print(said(y, x, positions.astype('f4'), llama))
print(said(y.astype('i8'), x, positions, llama))
print(said(y, x, positions, llama, dtype='f8'))
print(said(0 * y, 0 * x, positions, llama))
print(said(y[:, :0], x[:, :0], positions[:, :0], llama))
`),
      [
        "ValueError: assert_rope: config: the manifest has no RoPE case 'llama-2-hlaf'. Did you mean llama-2-half?",
        'ValueError: assert_rope: config: expected the id of a RoPE case, or its record in manifest.json',
        'ValueError: assert_rope: x and y: expected one shape [batch, tokens, heads, head_dim] or [tokens, heads, head_dim] with head_dim 128, got [6, 2, 128] and [2, 6, 2, 128]',
        'ValueError: assert_rope: positions: expected shape [6] or [2, 6], got [3]',
        'ValueError: assert_rope: positions: expected integers, got float32',
        'ValueError: assert_rope: y: expected an array of float64, float32, float16, or bf16 as uint16 or float32, got int64',
        "ValueError: assert_rope: dtype: expected 'f64', 'f32', 'f16' or 'bf16', got 'f8'",
        ...Array(2).fill(
          'ValueError: assert_rope: x: it is empty or 0 everywhere, and every rotation of it is right. Give other values.',
        ),
      ],
    );
  });
});

/** The cases whose kernels do more than rotate. */
const NORMED = ['qwen3-norm-and-cache', 'qwen3-next-norm-partial'];

/** The outputs by `case/output`. */
function boundsOfVerify(): [string, number[]][] {
  return chosen
    .filter(({ id }) => !NORMED.includes(id))
    .flatMap((one) => {
      const golden = answer(one.make());
      return [...expectationsOf(golden, {})].map(([name, { allowed }]): [string, number[]] => [
        `${golden.id}/${name}`,
        [...allowed(defaultTable(golden)).bounds!],
      ]);
    });
}
