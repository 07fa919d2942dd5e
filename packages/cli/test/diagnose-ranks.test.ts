import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { laidOut, type TokenLayout } from '@ropewalk/diagnose';
import { writeNpy } from '@ropewalk/formats';
import { ropewalkIn } from '../../../test/support/command.js';
import { drawn, HEADS, turned, writeRope, writeRows } from '../../../test/support/rotated-rows.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'ranks-'));
after(() => rmSync(folder, { recursive: true }));

const RECORD = writeRope(folder);

let made = 0;
/** Writes each rank's dumps; `position` is what its kernel rotates token n by. */
function dumpRanks(
  counts: readonly number[],
  position: (rank: number, token: number) => number,
  heads = HEADS,
): string {
  const place = join(folder, String(made++));
  for (const [rank, tokens] of counts.entries()) {
    mkdirSync(join(place, `rank${rank}`), { recursive: true });
    const x = drawn(tokens, `${place} ${rank}`, heads);
    writeRows(join(place, `rank${rank}`, 'x.npy'), x, heads);
    writeRows(
      join(place, `rank${rank}`, 'y.npy'),
      turned(x, (token) => position(rank, token), heads),
      heads,
    );
  }
  return place;
}

async function diagnosed(place: string, ...args: string[]) {
  const files = ['--x', `${place}/rank*/x.npy`, '--y', `${place}/rank*/y.npy`];
  const { status, stdout, stderr } = await ropewalkIn(root, 'diagnose', ...files, '--expect', RECORD, ...args);
  return { status, text: `${stdout}${stderr}`.replace(/\s+/g, ' ') };
}

const LAYOUTS = ['contiguous', 'zigzag', 'round-robin'] as const;
/** The positions that each rank's tokens must have. */
const sharesOf = (layout: Omit<TokenLayout, 'rank'>, name: (typeof LAYOUTS)[number], of: number): number[][] =>
  Array.from({ length: of }, (_, rank) => [...laidOut({ ...layout, rank: { layout: name, rank, of } }).positions]);

describe('the dumps of all ranks', () => {
  test('20 right layouts are right', async () => {
    const given: [string[], Omit<TokenLayout, 'rank'>][] = [
      [['--tokens', '32'], { tokens: 32 }],
      [['--cu-seqlens', '0,16,24'], { cuSeqlens: [0, 16, 24] }],
      [['--chunks', '100,16'], { chunks: [100, 16] }],
    ];
    for (const name of LAYOUTS)
      for (const of of [2, 4])
        for (const [args, layout] of given) {
          const shares = sharesOf(layout, name, of);
          const place = dumpRanks(
            shares.map((one) => one.length),
            (rank, token) => shares[rank]![token]!,
          );
          const { status, text } = await diagnosed(place, ...args, '--rank-layout', name);
          assert.equal(status, 0, `${name} ${of} ${args}: ${text}`);
          assert.match(text, /^(The positions are those of the tokens\. )?AS EXPECTED/);
        }
    for (const heads of [1, 2]) {
      const place = dumpRanks([12, 12, 12], (_rank, token) => token, heads);
      const { status, text } = await diagnosed(place, '--tokens', '12', '--rank-layout', 'tp');
      assert.equal(status, 0, text);
    }
  });

  test('the rank that is wrong is named', async () => {
    const shares = sharesOf({ tokens: 32 }, 'zigzag', 4);
    const counts = shares.map((one) => one.length);
    const off = dumpRanks(counts, (rank, token) => shares[rank]![token]! + (rank === 2 ? 1 : 0));
    const one = await diagnosed(off, '--tokens', '32', '--rank-layout', 'zigzag');
    assert.equal(one.status, 1);
    assert.match(one.text, /^PARTLY RIGHT .* Ranks rank 2 is wrong: KNOWN BUG: position-plus-one $/);

    const local = dumpRanks([8, 8, 8, 8], (_rank, token) => token);
    const all = await diagnosed(local, '--tokens', '32', '--rank-layout', 'contiguous');
    assert.equal(all.status, 1);
    assert.match(all.text, / Ranks rank 1 is wrong: .* rank 2 is wrong: .* rank 3 is wrong: /);
    assert.doesNotMatch(all.text, /rank 0 is wrong/);

    const heads = dumpRanks([16, 16, 16], (rank, token) => (rank === 1 ? 0 : token));
    const tp = await diagnosed(heads, '--tokens', '16', '--rank-layout', 'tp', '--json');
    const { verdict, wrongRanks } = JSON.parse(tp.text);
    assert.equal(verdict, 'partly right');
    assert.deepEqual(
      wrongRanks.map(({ rank }: { rank: number }) => rank),
      [1],
    );
  });

  test('ranks with the positions of another layout', async () => {
    for (const [given, meant] of [
      ['contiguous', 'zigzag'],
      ['zigzag', 'round-robin'],
      ['round-robin', 'contiguous'],
    ] as const) {
      const shares = sharesOf({ tokens: 32 }, meant, 4);
      const place = dumpRanks([8, 8, 8, 8], (rank, token) => shares[rank]![token]!);
      const { status, text } = await diagnosed(place, '--tokens', '32', '--rank-layout', given);
      assert.equal(status, 1);
      assert.match(
        text,
        new RegExp(`^RANK LAYOUT WRONG: every rank is right at the positions of --rank-layout ${meant}, `),
      );
    }
    // 12 tokens cannot be shared in zigzag among four.
    const place = dumpRanks([3, 3, 3, 3], (_rank, token) => token);
    const { text } = await diagnosed(place, '--tokens', '12', '--rank-layout', 'contiguous');
    assert.match(text, /^KNOWN BUG in each of ranks 1, 2, 3: restarts-at-zero \| positions-ignored, .* PARTLY RIGHT/);
  });

  test('a rank’s own positions are held against its share', async () => {
    const place = dumpRanks([8, 8], (_rank, token) => token);
    for (const rank of [0, 1])
      writeFileSync(
        join(place, `rank${rank}`, 'p.npy'),
        writeNpy(
          Int32Array.from({ length: 8 }, (_, n) => n),
          { dtype: 'i32', shape: [8] },
        ),
      );
    const positions = ['--positions', `${place}/rank*/p.npy`];
    const { status, text } = await diagnosed(place, '--tokens', '16', '--rank-layout', 'contiguous', ...positions);
    assert.equal(status, 1);
    assert.match(text, /^POSITIONS WRONG: the kernel is right .* rank 1: sequence 0 starts at 0 instead of 8; /);
  });

  test('what cannot be put together is refused', async () => {
    const place = dumpRanks([8, 8], (_rank, token) => token);
    for (const [args, says] of [
      [
        ['--tokens', '16'],
        /--rank-layout: expected for all ranks' dumps one of contiguous, zigzag, round-robin, tp, got /,
      ],
      [
        ['--tokens', '16', '--rank-layout', 'zigzag:0/2'],
        /--rank-layout: expected for all ranks' dumps one of .*, got .?zigzag:0\/2/,
      ],
      [['--rank-layout', 'zigzag'], /--rank-layout: it needs --tokens/],
      [['--tokens', '16', '--rank-layout', 'zigzag', '--then', 'k.npy'], /--then: it is for one run\./],
      [
        ['--tokens', '12', '--rank-layout', 'contiguous'],
        /--tokens: it gives 6 tokens, the share of rank 0.2, and .* has the shape \[8, 2, 32\]/,
      ],
    ] as const) {
      const { status, text } = await diagnosed(place, ...args);
      assert.equal(status, 2, text);
      assert.match(text, says);
    }
    const none = await ropewalkIn(
      root,
      'diagnose',
      '--x',
      `${place}/no*/x.npy`,
      '--y',
      `${place}/no*/y.npy`,
      '--rank-layout',
      'tp',
    );
    assert.match(none.stderr.replace(/\s+/g, ' '), /--y: expected a pattern of at least two files, one for each rank/);
  });
});
