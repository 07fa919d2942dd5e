/** Checks the kernels of other operators, InfiniCore's RoPE kernels, and the verdicts on declared kernels. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  type AscendC,
  type GlobalTensor,
  type KernelDeclaration,
  measureKernel,
  measureRopeKernel,
  type RowFacts,
} from '../src/index.js';
import { readKernel } from '../src/kernels/declaration.js';
import { KERNELS } from '../src/kernels/index.js';

const DTYPES = ['f16', 'bf16', 'f32'] as const;

describe('kernels that come with the model', () => {
  for (const name of ['add', 'rms_norm', 'swiglu', 'softmax']) {
    test(`${name}: every row right, no finding; rows that are no whole datablocks, one element, several tiles`, () => {
      for (const dtype of DTYPES) {
        for (const shape of [
          [3, 1],
          [5, 100],
          [2, 2, 65],
          [3, 4160],
        ]) {
          const { run, rows, right, firstWrong } = measureKernel(KERNELS[name]!, { dtype, shape });
          const label = `${name} ${dtype} [${shape}]`;
          assert.deepEqual(run.findings, [], label);
          assert.deepEqual([right, firstWrong], [rows, undefined], label);
          assert.deepEqual(run.rows, { written: rows, wanted: rows }, label);
          assert.equal(run.bytes.store, run.bytes.least.store, label);
        }
      }
    });
  }

  test('rows that do not fit the unified buffer are refused', () => {
    const long = { dtype: 'f32', shape: [1, 7681] } as const;
    for (const name of ['rms_norm', 'softmax'])
      assert.throws(() => measureKernel(KERNELS[name]!, long), {
        code: 'UNSUPPORTED',
        message: /takes rows of at most 7680 elements/,
      });
  });
});

describe("InfiniCore's kernels", () => {
  const rope = { shape: [2, 3, 2, 128], rotaryDim: 128, base: 10000, batchPositions: false, tableLen: 3 } as const;
  for (const dtype of DTYPES) {
    test(`GPT-J reads dh table elements where dh / 2 are meant, all batches, ${dtype}`, () => {
      const call = { ...rope, dtype, pairing: 'interleaved' } as const;
      const { run, rows, right } = measureRopeKernel('infinicore-gptj', call);
      assert.deepEqual([right, run.blockCount], [rows, 4]);
      assert.deepEqual([...new Set(run.findings.map(({ kind }) => kind))], ['gm-over-read', 'gm-unallocated']);
      assert.ok(run.findings.every(({ line }) => /^copyIn: DataCopy\((sin|cos)_ub/.test(line)));
      // A table with one more row hides it.
      assert.deepEqual(measureRopeKernel('infinicore-gptj', { ...call, tableLen: 4 }).run.findings, []);
    });

    test(`NeoX is right and its scalar loops take most of the time, ${dtype}`, () => {
      const { run, rows, right } = measureRopeKernel('infinicore-neox', { ...rope, dtype, pairing: 'half' });
      assert.deepEqual([right, run.findings.length, run.bottleneck!.what], [rows, 0, 'S']);
    });
  }

  test('both take positions of the token alone: with positions of each batch, rows are wrong', () => {
    const call = { ...rope, dtype: 'f16', pairing: 'half', batchPositions: true, tableLen: 5 } as const;
    const { run, rows, right } = measureRopeKernel('infinicore-neox', call);
    assert.equal(right, rows / 2);
    assert.match(run.findings[0]!.message, /3 of 6 elements of positions were never read/);
  });

  test('the two loops of NeoX cost 760,598 cycles at [1, 128, 32, 128] f16', () => {
    const call = { ...rope, shape: [1, 128, 32, 128], tableLen: 128, dtype: 'f16' } as const;
    const { run } = measureRopeKernel('infinicore-neox', { ...call, pairing: 'half' });
    assert.equal(Math.round(run.cycles), 760598);
  });
});

type AddArgs = RowFacts & { readonly [name in 'x' | 'y' | 'z']: GlobalTensor };

/** Declares a vector add of one block and one tile, with one change. */
function vectorAdd(change: {
  readonly count?: number;
  readonly stored?: number;
  readonly into?: 'x' | 'z';
  readonly sum?: (c: AscendC, ...tensors: Parameters<AscendC['Add']>) => void;
}): KernelDeclaration {
  const kernel = (c: AscendC, { x, y, z, rows, length }: AddArgs): void => {
    const count = change.count ?? rows * length;
    const params = { blockCount: 1, blockLen: count * 4, srcStride: 0, dstStride: 0 };
    const [inX, inY] = ['x', 'y'].map((name) => c.pipe.InitBuffer(`in_${name}`, 'VECIN', 1, count * 4));
    const out = c.pipe.InitBuffer('out', 'VECOUT', 1, count * 4);
    const [xs, ys] = [inX!.AllocTensor('x', 'f32'), inY!.AllocTensor('y', 'f32')];
    c.DataCopyPadIn('load x', xs, x, 0, params);
    c.DataCopyPadIn('load y', ys, y, 0, params);
    inX!.EnQue('x', xs);
    inY!.EnQue('y', ys);
    const [a, b, sum] = [inX!.DeQue('x', 'f32'), inY!.DeQue('y', 'f32'), out.AllocTensor('z', 'f32')];
    if (change.sum) change.sum(c, 'add', sum, a, b, count);
    else c.Add('add', sum, a, b, count);
    out.EnQue('z', sum);
    const stored = { ...params, blockLen: (change.stored ?? count) * 4 };
    c.DataCopyPadOut('store', change.into === 'x' ? x : z, 0, out.DeQue('z', 'f32'), stored);
  };
  const roles = { x: 'a', y: 'b', z: 'out' };
  const declaration: KernelDeclaration<AddArgs> = {
    name: 'vector-add',
    operator: 'add',
    dtypes: ['f32'],
    arguments: roles,
    blocks: 1,
    kernel,
  };
  return declaration;
}

describe('a declared kernel', () => {
  const call = { dtype: 'f32', shape: [4, 32] } as const;
  const judged = (change: Parameters<typeof vectorAdd>[0]) => {
    const { run, rows, right, firstWrong } = measureKernel(vectorAdd(change), call);
    return {
      findings: run.findings.map(({ kind, message }) => `${kind}: ${message}`),
      wrong: rows - right,
      firstWrong,
    };
  };

  test('right: no finding', () => assert.deepEqual(judged({}), { findings: [], wrong: 0, firstWrong: undefined }));

  test('a wrong operation: the first wrong element, and what was allowed', () => {
    const { findings, wrong, firstWrong } = judged({ sum: (c, line, ...rest) => c.Sub(line, ...rest) });
    assert.deepEqual([findings, wrong], [[], 4]);
    assert.deepEqual([firstWrong!.row, firstWrong!.column], [0, 0]);
    assert.ok(Math.abs(firstWrong!.got - firstWrong!.exact) > firstWrong!.bound);
  });

  test('inputs that are not read and an output that is not written, whole', () => {
    const { findings, wrong } = judged({ count: 96 });
    assert.deepEqual(findings, [
      'coverage: 1 of 4 rows of out were never written',
      'coverage: 32 of 128 elements of a were never read',
      'coverage: 32 of 128 elements of b were never read',
    ]);
    assert.equal(wrong, 1);
  });

  test('past the end of an input and of the output', () => {
    const { findings } = judged({ count: 136 });
    for (const tensor of ['a', 'b'])
      assert.ok(findings.some((f) => f.startsWith('gm-over-read') && f.endsWith(tensor)));
    assert.ok(findings.some((f) => f.startsWith('gm-over-write') && f.endsWith('past the end of out')));
  });

  test('a write into an input', () => {
    const { findings } = judged({ into: 'x' });
    assert.ok(findings.includes('wrong-operand: DataCopyPad writes 512 bytes of a, which is an input'));
  });

  test('rope of any dialect: a window inside the head, and pairs written as halves', () => {
    const asked: object[] = [];
    const rotary = { headDim: 32, rotaryDim: 16, rotaryOffset: 8, base: 1e6, pairing: 'interleaved-to-half' } as const;
    const kernel = (_c: AscendC, args: object): void => void asked.push(args);
    const roles = { q: 'x', c: 'cos', s: 'sin', p: 'positions', y: 'out' };
    const declaration = {
      name: 'none',
      operator: 'rope',
      dtypes: ['f16'],
      arguments: roles,
      blocks: 1,
      kernel,
    } as const;
    const made = measureKernel(declaration, { dtype: 'f16', shape: [1, 2, 2, 32], spec: rotary });
    const { pairing, rotaryDim, rotaryOffset, half, blocks } = asked[0] as Record<string, unknown>;
    assert.deepEqual([pairing, rotaryDim, rotaryOffset, half, blocks], ['interleaved-to-half', 16, 8, 8, 1]);
    assert.deepEqual([made.rows, made.right, made.run.rows.written], [4, 0, 0]);
    assert.throws(() => measureKernel(KERNELS.fast!, { dtype: 'f16', shape: [1, 2, 2, 32], spec: rotary }), {
      code: 'UNSUPPORTED',
      message: /the fast kernel writes a pair where it reads it/,
    });
  });

  const refusals: [string, object, RegExp][] = [
    ['no name', { name: '' }, /kernel: name: expected a name for reports/],
    [
      'an operator that is none',
      { operator: 'conv' },
      /kernel: operator: expected add, rms_norm, swiglu, softmax or rope/,
    ],
    ['f64', { dtypes: ['f64'] }, /kernel: dtypes: expected f16, bf16 or f32, got "f64"/],
    ['a role too few', { arguments: { x: 'a', z: 'out' } }, /kernel: arguments: expected each of the roles a, b, out/],
    ['a role twice', { arguments: { x: 'a', y: 'a', z: 'out' } }, /each of the roles a, b, out of add once/],
    ['no kernel', { kernel: 1 }, /kernel: kernel: expected a function of \(c, args\)/],
    ['half a block', { blocks: 0.5 }, /kernel: blocks: expected a number, or a function/],
  ];
  for (const [name, change, message] of refusals)
    test(`refused: ${name}`, () => assert.throws(() => readKernel({ ...vectorAdd({}), ...change }), { message }));

  test('refused: a dtype that it does not take', () =>
    assert.throws(() => measureKernel(vectorAdd({}), { ...call, dtype: 'f16' }), {
      code: 'UNSUPPORTED',
      message: /the vector-add kernel takes f32 only/,
    }));
});
