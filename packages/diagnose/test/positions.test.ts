import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { RopewalkError } from 'ropewalk';
import { drawn } from '../../../test/support/size.js';
import { checkPositionLog, laidOut, positionFaults, type TokenLayout } from '../src/index.js';

const of = (layout: TokenLayout): number[] => Array.from(laidOut(layout).positions);
const faults = (layout: TokenLayout, given: number[]): string[] => positionFaults(given, layout);
const count = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, n) => from + n);

describe('the positions that tokens must have', () => {
  test('of sequences: alone, packed, padded, in chunks, behind a cache', () => {
    assert.deepEqual(of({ tokens: 4 }), [0, 1, 2, 3]);
    assert.deepEqual(of({ tokens: 2, cached: 7 }), [7, 8]);
    assert.deepEqual(of({ cuSeqlens: [0, 3, 5] }), [0, 1, 2, 0, 1]);
    assert.deepEqual(of({ cuSeqlens: [0, 1, 2], cached: [9, 20] }), [9, 20]);
    assert.deepEqual(of({ chunks: [128, 128, 3] }), [256, 257, 258]);
    // Left padding counts from the first token; the mask of a decoding step covers the cache too.
    assert.deepEqual(
      of({
        attentionMask: [
          [0, 0, 1, 1],
          [1, 1, 1, 1],
        ],
      }),
      [0, 0, 0, 1, 0, 1, 2, 3],
    );
    assert.deepEqual(
      of({
        attentionMask: [
          [0, 0, 1, 1],
          [1, 1, 1, 1],
        ],
        tokens: 1,
      }),
      [1, 3],
    );
    assert.deepEqual(of({ attentionMask: [[1, 1, 2, 2, 2, 0]] }), [0, 1, 0, 1, 2, 0]);
  });
  test('of ranks: all shares together are the sequence', () => {
    for (const layout of ['contiguous', 'zigzag', 'round-robin'] as const) {
      const shares = [0, 1].map((rank) => of({ tokens: 8, rank: { layout, rank, of: 2 } }));
      assert.deepEqual(
        shares.flat().sort((a, b) => a - b),
        count(0, 8),
        layout,
      );
    }
    // Megatron-LM#5243: with cu_seqlens [0, 4, 8], rank 0 of 2 has 0, 3 of each sequence.
    assert.deepEqual(of({ cuSeqlens: [0, 4, 8], rank: { layout: 'zigzag', rank: 0, of: 2 } }), [0, 3, 0, 3]);
  });
  test('of images: three axes, and text goes on after the longest', () => {
    const { shape, positions } = laidOut({ tokens: 8, grid: [{ at: 2, t: 1, h: 2, w: 2 }] });
    assert.deepEqual(shape, [3, 1, 8]);
    assert.deepEqual(Array.from(positions), [0, 1, 2, 2, 2, 2, 4, 5, 0, 1, 2, 2, 3, 3, 4, 5, 0, 1, 2, 3, 2, 3, 4, 5]);
  });
});

describe('what is wrong with the positions of a runtime', () => {
  const cases: [name: string, layout: TokenLayout, given: number[], says: string[]][] = [
    ['the right ones', { cuSeqlens: [0, 3, 5] }, [0, 1, 2, 0, 1], []],
    ['any position at padding', { attentionMask: [[0, 1, 1]] }, [9, 0, 1], []],
    [
      'packed documents that go on',
      { cuSeqlens: [0, 2, 4] },
      [0, 1, 2, 3],
      ['sequence 1 starts at 2 instead of 0; all its positions are 2 too large'],
    ],
    [
      'a chunk that starts again',
      { chunks: [128, 3] },
      [0, 1, 2],
      ['sequence 0 starts at 0 instead of 128; all its positions are 128 too small'],
    ],
    [
      'left padding that counts',
      { attentionMask: [[0, 0, 1, 1]] },
      [0, 1, 2, 3],
      ['sequence 0 starts at 2 instead of 0; all its positions are 2 too large'],
    ],
    ['a decoding step at 0', { tokens: 1, cached: 40 }, [0], ['sequence 0 starts at 0 instead of 40']],
    [
      'drafts at one position',
      { tokens: 4, cached: 10 },
      [10, 10, 10, 10],
      ['sequence 0 has the position 10 at all of its 4 tokens'],
    ],
    [
      'a gap',
      { tokens: 4 },
      [0, 1, 3, 4],
      ['sequence 0 has 3 instead of 2 at its token 2; from there on positions are 1 too large'],
    ],
    ['a restart', { tokens: 4 }, [0, 1, 0, 1], ['sequence 0 starts again at 0 at its token 2, where 2 is next']],
    ['positions by twos', { tokens: 3 }, [0, 2, 4], ['sequence 0 counts by 2 from 0, instead of by 1']],
    [
      'an image by one axis',
      { tokens: 5, grid: [{ at: 0, t: 1, h: 2, w: 2 }] },
      [0, 1, 2, 3, 4],
      ['sequence 0, axis t has 1 instead of 0 at its token 1; 4 of its 5 positions are wrong'],
    ],
  ];
  for (const [name, layout, given, says] of cases) test(name, () => assert.deepEqual(faults(layout, given), says));
  test('fuzz: right positions are never a fault, and any change of a token is one', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 }),
        fc.nat(100),
        fc.nat(1000),
        fc.integer({ min: 1, max: 7 }),
        (lengths, cached, where, by) => {
          const cuSeqlens = [0];
          for (const length of lengths) cuSeqlens.push(cuSeqlens.at(-1)! + length);
          const layout = { cuSeqlens, cached };
          const right = of(layout);
          assert.deepEqual(faults(layout, right), []);
          right[where % right.length]! += by;
          assert.equal(faults(layout, right).length, 1);
        },
      ),
      drawn(200, 5),
    );
  });
  test('wrong layouts are refused', () => {
    for (const layout of [
      {},
      { tokens: 0 },
      { tokens: 2, cuSeqlens: [0, 2] },
      { cuSeqlens: [1, 2] },
      { cuSeqlens: [0, 3, 2] },
      { attentionMask: [[1], [1, 1]] },
      { attentionMask: [[1]], tokens: 2 },
      { chunks: [] },
      { tokens: 3, rank: { layout: 'zigzag', rank: 0, of: 2 } },
      { tokens: 4, rank: { layout: 'ring', rank: 0, of: 2 } },
      { tokens: 3, grid: [{ at: 0, t: 1, h: 2, w: 2 }] },
      { cuSeqlens: [0, 2, 4], cached: [1] },
    ])
      assert.throws(() => laidOut(layout as TokenLayout), RopewalkError, JSON.stringify(layout));
    assert.throws(
      () => checkPositionLog('{"request":"a","step":0,"positions":[0,1],"padding":5}'),
      /padding: expected an integer in \[0, 2\], got 5/,
    );
    const image = (rank: number): string =>
      JSON.stringify({ request: 'a', step: 0, rank, positions: [[rank], [0], [0]] });
    assert.throws(() => checkPositionLog(`${image(0)}\n${image(1)}`), /several axes beside ranks are not checked/);
    assert.throws(() => positionFaults([0, 1], { tokens: 3 }), /expected 3 positions, as the layout has, got 2/);
  });
});

describe('a log of positions', () => {
  const log = (...entries: object[]): string[] =>
    checkPositionLog(entries.map((entry) => JSON.stringify({ request: 'a', ...entry })).join('\n')).map(
      ({ step, says }) => `${step}: ${says}`,
    );
  test('valid logs are silent: chunks, drafts, prefix caches, eviction, padding, ranks, images', () => {
    assert.deepEqual(
      log({ step: 0, positions: [0, 1, 2] }, { step: 1, positions: [3] }, { step: 2, positions: [4] }),
      [],
    );
    assert.deepEqual(log({ step: 0, cached: 64, positions: [64, 65] }), []);
    assert.deepEqual(
      log(
        { step: 0, positions: [0, 1] },
        { step: 1, positions: [2, 3, 4], drafts: 2, accepted: 1 },
        { step: 2, positions: [4] },
      ),
      [],
    );
    assert.deepEqual(log({ step: 0, positions: [0, 1, 2, 3] }, { step: 1, evicted: 2, positions: [4] }), []);
    assert.deepEqual(
      log({ step: 0, positions: [0, 1, 2, 3] }, { step: 1, evicted: 2, shifted: true, positions: [2] }),
      [],
    );
    assert.deepEqual(log({ step: 0, padding: 2, positions: [7, 7, 0, 1] }, { step: 1, positions: [2] }), []);
    assert.deepEqual(
      log(
        { step: 0, rank: 0, positions: [0, 3] },
        { step: 0, rank: 1, positions: [1, 2], drafts: 1, accepted: 1 },
        { step: 1, rank: 0, positions: [4, 7] },
        { step: 1, rank: 1, positions: [5, 6], drafts: 2, accepted: 0 },
        { step: 2, rank: 0, positions: [6] },
      ),
      [],
    );
    const image = [
      [0, 1, 2, 2, 2, 2, 4],
      [0, 1, 2, 2, 3, 3, 4],
      [0, 1, 2, 3, 2, 3, 4],
    ];
    assert.deepEqual(log({ step: 0, positions: image }, { step: 1, positions: [[5], [5], [5]] }), []);
    assert.deepEqual(
      checkPositionLog(
        '{"request":1,"step":0,"positions":[0]}\n\n{"request":2,"step":0,"positions":[0]}\n{"request":1,"step":1,"positions":[1]}',
      ),
      [],
    );
  });
  const broken: [name: string, entries: object[], says: RegExp][] = [
    [
      'a chunk starts again',
      [
        { step: 0, positions: [0, 1] },
        { step: 1, positions: [0, 1] },
      ],
      /^1: Positions start again at 0; 2 is next\.$/,
    ],
    [
      'a gap',
      [{ step: 0, positions: [0, 1, 3] }],
      /^0: After position 1 comes 3 at token 2: 1 position is left out\.$/,
    ],
    ['a repeat', [{ step: 0, positions: [0, 1, 1] }], /positions are used twice/],
    [
      'rejected drafts stay',
      [
        { step: 0, positions: [0] },
        { step: 1, positions: [1, 2, 3], drafts: 2, accepted: 0 },
        { step: 2, positions: [4] },
      ],
      /^2: It starts at 4; 2 is next: 2 positions are left out\.$/,
    ],
    [
      'all drafts at one position',
      [
        { step: 0, positions: [0] },
        { step: 1, positions: [1, 1, 1], drafts: 2 },
      ],
      /^1: All 3 tokens have the position 1\.$/,
    ],
    [
      'a prefix one short',
      [{ step: 0, cached: 64, positions: [63, 64] }],
      /^0: It starts at 63; 64 is next: 1 position is used twice\.$/,
    ],
    [
      'a shift that is not made',
      [
        { step: 0, positions: [0, 1, 2, 3] },
        { step: 1, evicted: 2, shifted: true, positions: [4] },
      ],
      /^1: It starts at 4; 2 is next/,
    ],
    [
      'a position on two ranks',
      [
        { step: 0, rank: 0, positions: [0, 1] },
        { step: 0, rank: 1, positions: [1, 2] },
      ],
      /^0: Position 1 is on rank 0 and on rank 1\.$/,
    ],
    [
      'a position on no rank',
      [
        { step: 0, rank: 0, positions: [0, 1] },
        { step: 0, rank: 1, positions: [3] },
      ],
      /^0: After position 1 comes 3/,
    ],
    [
      'text after an image',
      [
        {
          step: 0,
          positions: [
            [0, 1, 1, 1, 1],
            [0, 1, 1, 2, 2],
            [0, 1, 2, 1, 2],
          ],
        },
        { step: 1, positions: [[5], [5], [5]] },
      ],
      /^1: It starts at 5; 3 is next/,
    ],
  ];
  for (const [name, entries, says] of broken)
    test(name, () => {
      const found = log(...entries);
      assert.equal(found.length, 1, found.join('\n'));
      assert.match(found[0]!, says);
    });
  test('lines that are no entries are refused, with their number', () => {
    for (const [line, message] of [
      ['{', /log, line 2: expected a JSON object/],
      ['[]', /log, line 2/],
      ['{"request":"a","step":0}', /line 2: positions/],
      ['{"request":"a","step":0,"positions":[0.5]}', /positions: expected integers/],
      ['{"request":"a","step":0,"positions":[0],"tokens":2}', /tokens: expected 1, the number of positions, got 2/],
      ['{"request":"a","step":0,"positions":[0],"drfts":2}', /drfts: a field that is not known/],
    ] as const)
      assert.throws(
        () => checkPositionLog(`\n${line}`),
        (error) => error instanceof RopewalkError && message.test(error.message),
        line,
      );
  });
});
