/** AscendC out of kernels: its structure against InfiniOp's documentation, and what is refused. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type AscendC, type KernelDeclaration, type KernelName, measureKernel, ROPE_KERNELS } from '../src/index.js';
import { emitAscendc, KERNELS, sourceOfBlock0 } from '../src/internal.js';

const ROPE = {
  dtype: 'f16',
  shape: [1, 8, 4, 64],
  spec: { headDim: 64, base: 10000, pairing: 'interleaved' },
} as const;

/** The statements of a source from the first line that has `from`, without indents and comments. */
const statements = (source: string, from: string, to: string): string[] =>
  source
    .slice(source.indexOf(from), source.indexOf(to))
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('//'));

describe("the baseline, as InfiniOp's documentation describes rope_ascend_kernel.cpp", () => {
  const source = emitAscendc(KERNELS.baseline!, ROPE);

  test('nobody has compiled it, and its faults are told', () => {
    assert.match(source, /^\/\/ Not compiled by us with CANN\. .*: baseline, rope\n/);
    assert.match(
      source,
      /\n\/\/ The model reports faults of this kernel, which are in the source too: ropewalk aicore lists them\.\n/,
    );
  });

  test('the members: queues with two buffers, and buffers of half a row', () => {
    const documented = {
      'TQue<QuePosition::VECIN, 2>': ['_in_que', '_sin_que', '_cos_que'],
      'TQue<QuePosition::VECOUT, 2>': ['_out_que'],
      'TBuf<TPosition::VECCALC>': ['odd_buf', 'even_buf', 'odd_buf1', 'odd_buf2', 'even_buf1', 'even_buf2'].map(
        (name) => `_tmp_${name}`,
      ),
    };
    for (const [type, members] of Object.entries(documented)) {
      const found = source.split('\n').filter((line) => line.startsWith(`  ${type} `));
      assert.deepEqual(
        found,
        members.map((name) => `  ${type} ${name};`),
      );
    }
    for (const name of documented['TBuf<TPosition::VECCALC>'])
      assert.ok(source.includes(`pipe.InitBuffer(${name}, 64);`));
  });

  test('copyIn, compute and copyOut of each token: the same calls on the same operands, in the same order', () => {
    // The documentation's statements: tile_len is 64, _copy_len and _half_copy_len are 64, one repeat for GatherMask.
    const documented = [
      'DataCopy(input_ub, _x_gm[i * st_xnt + block_idx * st_xnh], _copy_len)',
      'pos_idx = _p_gm(i)',
      'DataCopy(sin_ub, _sin_gm[pos_idx * tile_len / 2], _half_copy_len)',
      'DataCopy(cos_ub, _cos_gm[pos_idx * tile_len / 2], _half_copy_len)',
      'GatherMask(tmp_odd, input_ub, 1, false, 0, gMaskParams, rsvdCnt)',
      'GatherMask(tmp_even, input_ub, 2, false, 0, gMaskParams, rsvdCnt)',
      'PipeBarrier<PIPE_V>()',
      'Mul(tmp_odd1, tmp_odd, cos_ub, tile_len / 2)',
      'Mul(tmp_odd2, tmp_even, sin_ub, tile_len / 2)',
      'PipeBarrier<PIPE_V>()',
      'Sub(tmp_odd1, tmp_odd1, tmp_odd2, tile_len / 2)',
      'Mul(tmp_even1, tmp_odd, sin_ub, tile_len / 2)',
      'Mul(tmp_even2, tmp_even, cos_ub, tile_len / 2)',
      'PipeBarrier<PIPE_V>()',
      'Add(tmp_even1, tmp_even1, tmp_even2, tile_len / 2)',
      'output_ub(j * 2) = tmp_odd1(j)',
      'output_ub(j * 2 + 1) = tmp_even1(j)',
      'DataCopyPad(_y_gm[i * st_ynt + block_idx * st_ynh], output_ub, params)',
    ];
    const inDocumentWords = (line: string): string =>
      line
        .replace(/;$/, '')
        .replace('.GetValue(i0)', '(i)')
        .replace(/^(\w+)\.SetValue\((j \* 2)(?: \+ 0|( \+ 1)), (\w+)\.GetValue\(j\)\)$/, '$1($2$3) = $4(j)')
        .replace(
          '[block * 64 + i0 * 256]',
          (_) =>
            `[i * st_${line.includes('x_gm') ? 'x' : 'y'}nt + block_idx * st_${line.includes('x_gm') ? 'x' : 'y'}nh]`,
        )
        .replace('int64_t(positions_value) * 32', 'pos_idx * tile_len / 2')
        .replace('positions_value', 'pos_idx')
        .replace(/positions_gm/, '_p_gm')
        .replace(/(?<=^DataCopy.*)\b([xy]|sin|cos)_gm/, '_$1_gm')
        .replace(/, 64\)$/, line.includes('x_gm') ? ', _copy_len)' : ', _half_copy_len)')
        .replace(/, 32\)$/, ', tile_len / 2)')
        .replace(/GatherMaskParams\{1, 1, 8, 0\}, \w+/, 'gMaskParams, rsvdCnt')
        .replace('DataCopyExtParams{1, 128, 0, 0, 0}', 'params')
        .replaceAll(/(tmp_\w+?)_buf(\d?)_all/g, '$1$2')
        .replaceAll(
          /\b(in|sin|cos|out)_que_(alloc|deque)/g,
          (_, name) => ({ in: 'input_ub', out: 'output_ub' })[name as string] ?? `${name}_ub`,
        );
    const loop = statements(source, 'for (int64_t i0 = 0; i0 < 8; i0++) {', 'private:');
    const calls = loop.filter((line) => !/AllocTensor|DeQue|EnQue|FreeTensor|^for |^}/.test(line)).map(inDocumentWords);
    assert.deepEqual(calls, documented);
    const queues = loop
      .filter((line) => /AllocTensor|DeQue|EnQue|FreeTensor/.test(line))
      .map((line) => /_\w+_que\.\w+/.exec(line)![0]);
    const three = (call: string) => ['_in', '_sin', '_cos'].map((name) => `${name}_que.${call}`);
    assert.deepEqual(queues, [
      ...[...three('AllocTensor'), ...three('EnQue'), ...three('DeQue'), '_out_que.AllocTensor', '_out_que.EnQue'],
      ...[...three('FreeTensor'), '_out_que.DeQue', '_out_que.FreeTensor'],
    ]);
  });

  test('one block a head, by the fifteen arguments of rope_kernel_launch', () => {
    assert.match(source, /baseline_kernel<<<4, nullptr, stream>>>\(/);
    const launch = source.slice(source.indexOf('int32_t rope_kernel_launch('));
    assert.deepEqual(
      launch
        .slice(launch.indexOf('(') + 1, launch.indexOf(')'))
        .split(',')
        .map((one) => one.trim().split(/[ *]+/).at(-1)),
      'y x pos sin cos seq_len nhead dhead data_type pos_type y_stride_seqlen y_stride_nhead x_stride_seqlen x_stride_nhead stream'.split(
        ' ',
      ),
    );
  });
});

test('it has the loops of the other kernels, and blocks that do different things', () => {
  const fast = emitAscendc(KERNELS.fast!, ROPE);
  assert.match(fast, /offsets_all\.SetValue\(i0, static_cast<uint32_t>\(\(i0 \/ 2\) \* 2\)\);/);
  assert.match(fast, /\n\/\/ It sets its own flags: compile without automatic synchronisation\.\n/);
  const add = emitAscendc(KERNELS.add!, { dtype: 'f16', shape: [60, 100] });
  assert.match(add, /if \(block == 0\) \{[\s\S]*if \(block == 1\) \{/);
  const batches = emitAscendc(KERNELS['infinicore-gptj']!, { ...ROPE, shape: [2, 8, 4, 64] });
  assert.match(batches, /positions_gm\.GetValue\(i0\)/);
  assert.doesNotMatch(batches, /rope_kernel_launch/); // it has no batches
});

test('block 0 alone is written where blocks differ, and its calls are the instructions of the run, in their order', () => {
  for (const name of Object.keys(ROPE_KERNELS) as KernelName[]) {
    const pairing = name === 'infinicore-neox' ? 'half' : 'interleaved';
    const call = { ...ROPE, shape: [1, 20, 32, 64], spec: { ...ROPE.spec, pairing } } as const;
    if (name === 'fast') assert.throws(() => emitAscendc(KERNELS.fast!, call), { code: 'UNSUPPORTED' });
    const lines = sourceOfBlock0(KERNELS[name]!, call);
    const calls = lines
      .flatMap(({ text, call }) => call?.places.map((place) => ({ text, place, ...call })) ?? [])
      .sort((a, b) => a.place - b.place);
    const { run } = measureKernel(KERNELS[name]!, { ...call, tableLen: 20 }, { record: true });
    const records = run.blocks[0]!.instructions!.filter(({ queue }) => queue !== 'S');
    const ran = new Set(records.map(({ line }) => line));
    const own = calls.filter(({ statement }) => ran.has(statement));
    assert.deepEqual(
      own.map(({ statement }) => statement),
      records.map(({ line }) => line),
      name,
    );
    for (const [n, { text }] of own.entries()) assert.ok(text.includes(`${records[n]!.name}(`), `${name}: ${text}`);
  }
});

/** A kernel of softmax with these calls on a row of 32. */
const kernel = (body: (c: AscendC, x: Parameters<AscendC['GetGlobal']>[1]) => void): KernelDeclaration => ({
  name: 'mine',
  operator: 'softmax',
  dtypes: ['f32'],
  arguments: { for: 'x', 'size of': 'out' },
  blocks: 1,
  kernel: (c: AscendC, args: { for: Parameters<AscendC['GetGlobal']>[1] }) => body(c, args.for),
});
const emit = (body: Parameters<typeof kernel>[0]) => emitAscendc(kernel(body), { dtype: 'f32', shape: [1, 32] });

test('refused: what is no sum of block, loops and values, or depends on the data', () => {
  const buffer = (c: AscendC) => c.pipe.InitTBuf('int', 1024).Get('f32');
  const code = 'UNSUPPORTED';
  assert.throws(() => emit((c, x) => c.Duplicate('fill', buffer(c), Math.sqrt(2 + c.GetGlobal('read', x, 0)), 8)), {
    code,
    message: /^aicore: emit: fill: its scalar is no sum .* or depends on the data\.$/,
  });
  assert.throws(
    () =>
      emit((c, x) => {
        const t = buffer(c);
        for (let i = 0; i < 8 + 8 * Math.abs(c.GetGlobal('read', x, 0)); i++) c.Abs(`abs ${i}`, t, t, 8);
      }),
    { code, message: 'aicore: emit: block 0: what it calls depends on the data.' },
  );
  assert.throws(() => emit((c) => [0, 1, 4, 9, 16].map((i) => c.Duplicate('fill', buffer(c).at(i * 8), 1, 8))), {
    code,
    message: /emit: fill: where its tensor starts is no sum/,
  });
  assert.throws(() => emit((c) => c.pipe.InitBuffer('q', 'VECIN', 1, 32).DeQue('take', 'f32')), {
    code,
    message: 'aicore: emit: mine: on the model it has the outcome "hangs". Mend it first.',
  });
  const rows = { dtype: 'f16', shape: [64, 128] } as const;
  assert.throws(() => emitAscendc(KERNELS.rms_norm!, rows), { code, message: /its 40 blocks do 32 different things/ });
  // Names that C++ or the source has are not used.
  assert.match(
    emit((c) => c.Duplicate('fill', buffer(c), 1, 8)),
    /Init\(GM_ADDR for2, GM_ADDR size_of\)[\s\S]*InitBuffer\(int2, 1024\)/,
  );
  for (const name of ['i0', 'x_gm', 'Add'])
    assert.match(
      emit((c) => c.Duplicate('fill', c.pipe.InitTBuf(name, 1024).Get('f32'), 1, 8)),
      new RegExp(`InitBuffer\\(${name}_queue, 1024\\)`),
    );
});
