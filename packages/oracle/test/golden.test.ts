/**
 * Tests that golden cases have what they must have and tell wrong choices apart, and that every form of a folder has the
 * same content.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe } from 'node:test';
import { openBackend } from '@ropewalk/cli/internal';
import { cann, llaisys } from '@ropewalk/dialects';
import { parseNpy } from '@ropewalk/formats';
import { parseOnnxModel, parseOnnxTensor, writeOnnxTest } from '@ropewalk/onnx';
import fc from 'fast-check';
import type { OpPlan, RopeSpec, Runner } from 'ropewalk';
import {
  BLOCK_FORMATS,
  type BlockFormat,
  type FloatDtype,
  type HostArray,
  type Tensor,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { bitsOf } from 'ropewalk/internal';
import { referenceRunner, runReference } from 'ropewalk/reference';
import { ROOT } from '../../../test/support/build.js';
import { mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { ortOrReason } from '../../../test/support/ort.js';
import { drawn, some } from '../../../test/support/size.js';
import { f64Tensor, floats } from '../../../test/support/tensors.js';
import { testOnce as test, testPeers } from '../../../test/support/tier.js';
import type { VectorFolder } from '../src/folder.js';
import { readGoldenFolder } from '../src/folder.node.js';
import { exactWithBounds, storedSlack } from '../src/golden/bounds.js';
import { cPrefix } from '../src/golden/c-header.js';
import { bindGolden, exactOutputs, GOLDEN_OPS, type GoldenCase, type GoldenQuestion } from '../src/golden/case.js';
import { chooseBuiltIn, chooseDialect, GOLDEN_DIALECTS, positionsFor } from '../src/golden/choose.js';
import { formatManifest, GOLDEN_FORMS, type GoldenForm, turnsOf } from '../src/golden/manifest.js';
import { decodeTensor, goldenOf, type OnnxLoader } from '../src/golden/read.js';
import { GOLDEN_ROPE, goldenRopeQuestion } from '../src/golden/rope.js';
import { goldenOperatorSuite, goldenRopeSuite, judgeGolden } from '../src/golden/suite.js';
import { answer, writeCase } from '../src/golden/write.js';
import { judgeOutput, nmse, OVERFLOW } from '../src/judge.js';
import { formatResult, runCases } from '../src/runner.js';
import { vectorCases } from '../src/vectors.js';
import { expectationsOf } from '../src/verify/model.js';
import { defaultTable, type TablePrecision } from '../src/verify/rope-model.js';

const temporary = mkdtempSync(join(tmpdir(), 'golden-'));
after(() => rmSync(temporary, { recursive: true }));

const questions = chooseBuiltIn(GOLDEN_OPS).cases.map((c) => c.make());
const cases: GoldenCase[] = questions.map(answer);
const question = (id: string): GoldenQuestion => questions.find((q) => q.id === id) ?? assert.fail(`no case ${id}`);

const onnx: OnnxLoader = async () => ({ parseOnnxTensor, writeOnnxTest });
/** Makes the ONNX test of a case, or returns the reason why there is none. */
const onnxTestOf = (c: GoldenCase) => writeOnnxTest(c, bindGolden(c, referenceRunner()).plan, 'test');

/** Makes a folder in memory. */
function folderOf(files: ReadonlyMap<string, Uint8Array>, name = 'mem'): VectorFolder {
  return {
    name,
    has: (path) => files.has(path),
    read: (path) => files.get(path) ?? assert.fail(`no file ${path}`),
    folders: () => [],
  };
}

async function written(chosen: readonly GoldenCase[], forms: readonly GoldenForm[]): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>();
  const entries = [];
  const skipped = [];
  for (const c of chosen) {
    const one = await writeCase(c, forms, { generator: 'ropewalk test', seed: 1, onnx });
    for (const { path, bytes } of one.files) {
      assert.ok(!files.has(path), `${path} twice`);
      files.set(path, bytes);
    }
    skipped.push(...one.skipped);
    if (one.files.length > 0) entries.push(one.entry);
  }
  files.set(
    'manifest.json',
    new TextEncoder().encode(formatManifest({ generator: 'ropewalk test', seed: 1, cases: entries, skipped })),
  );
  return files;
}

function onDisk(files: ReadonlyMap<string, Uint8Array>, name: string): string {
  const dir = join(temporary, name);
  for (const [path, bytes] of files) {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), bytes);
  }
  return dir;
}

/** Writes all cases to disk in one form, and returns the folder. */
async function allIn(form: GoldenForm): Promise<string> {
  return onDisk(await written(cases, [form]), `all-${form}`);
}

describe('the cases', () => {
  test('reference and cpu pass every one, element by element', async () => {
    for (const name of ['reference', 'cpu'] as const) {
      const backend = await openBackend(name);
      const failed: string[] = [];
      for await (const result of runCases([...goldenRopeSuite(), ...goldenOperatorSuite()], backend)) {
        if (result.verdict.status !== 'ok') failed.push(formatResult(result));
      }
      backend.dispose();
      assert.deepEqual(failed, [], name);
    }
  });

  test('ids are unique, in C as well', () => {
    assert.equal(new Set(cases.map(({ id }) => cPrefix(id))).size, cases.length);
  });

  test('every operator is there', () => assert.deepEqual(new Set(cases.map(({ op }) => op)), new Set(GOLDEN_OPS)));

  test('RoPE: positions near and far, two tokens, heads and batches', () => {
    for (const d of GOLDEN_ROPE) {
      const { inputs, rope } = goldenRopeQuestion(d);
      const positions = floats(inputs.get('positions')!);
      const has = (low: number, high = low): boolean =>
        positions.some((p) => Math.abs(p) >= low && Math.abs(p) <= high);
      // Decoding has one token of each sequence. The other cases have all six.
      const wanted: [number, number?][] =
        d.id === 'decode-one-token'
          ? [[30, 50], [131072], [1048575]]
          : [[0], [1], [30, 50], [8192, 131071], [131072, 2 ** 20], [1048575]];
      for (const [low, high] of wanted) assert.ok(has(low, high), `${d.id}: a position in [${low}, ${high ?? low}]`);
      const x = inputs.get(rope!.parts[0]!.x)!;
      const [tokens, heads] = rope!.layout === 'bsnh' ? [x.shape[1]!, x.shape[2]!] : [x.shape[2]!, x.shape[1]!];
      assert.ok(
        x.shape[0]! >= 2 && heads >= 2 && (tokens >= 2 || d.id === 'decode-one-token'),
        `${d.id}: [${x.shape}]`,
      );
    }
  });

  test('RoPE: no zero and no two equal magnitudes in a head, after rounding to the dtype', () => {
    for (const { id, rope, inputs } of questions) {
      for (const part of rope?.parts ?? []) {
        const x = inputs.get(part.x)!;
        const width = x.shape.at(-1)!;
        const values = floats(x);
        for (let at = 0; at < values.length; at += width) {
          const magnitudes = new Set(values.subarray(at, at + width).map(Math.abs));
          assert.ok(magnitudes.size === width && !magnitudes.has(0), `${id}: row ${at / width}`);
        }
      }
    }
  });

  test('axes of a token have different positions', () => {
    for (const d of GOLDEN_ROPE.filter(({ spec }) => spec.axes)) {
      const positions = goldenRopeQuestion(d).inputs.get('positions')!;
      const [axes] = positions.shape as [number];
      const perAxis = positions.size / axes;
      const values = floats(positions);
      for (let token = 0; token < perAxis; token++) {
        const row = Array.from({ length: axes }, (_, a) => values[a * perAxis + token]!);
        assert.equal(new Set(row).size, axes, `${d.id}: token ${token} at ${row}`);
      }
    }
  });

  test('another seed, other numbers; the same seed, the same', () => {
    const bits = (seed: number): unknown =>
      [...goldenRopeQuestion(GOLDEN_ROPE[0]!, seed).inputs].map(([, t]) => bitsOf(t.read() as HostArray));
    assert.deepEqual(bits(5), bits(5));
    assert.notDeepEqual(bits(5), bits(6));
  });
});

/** A wrong choice, as the case that a kernel with this mistake computes. */
const wrongSpecs: [id: string, choice: string, (spec: RopeSpec) => RopeSpec][] = [
  ['llama-2-half', 'interleaved', (s) => ({ ...s, pairing: 'interleaved' })],
  ['llama-2-half', 'interleaved-to-half', (s) => ({ ...s, pairing: 'interleaved-to-half' })],
  ['llama-2-half', 'base off by a hundredth of a percent', (s) => ({ ...s, base: 10001 })],
  ['llama-2-interleaved', 'half', (s) => ({ ...s, pairing: 'half' })],
  ['llama-2-f64', 'base off by 1e-11', (s) => ({ ...s, base: 10000 * (1 + 1e-11) })],
  ['llama-3-f16', 'base 10000', (s) => ({ ...s, base: 10000 })],
  ['llama-3.1-bf16', 'no scaling', (s) => ({ ...s, scaling: { kind: 'none' } })],
  ['llama-3.1-bf16', 'linear scaling', (s) => ({ ...s, scaling: { kind: 'linear', factor: 8 } })],
  ['llama-3.1-f32', 'yarn', (s) => ({ ...s, scaling: { kind: 'yarn', factor: 8, originalContext: 8192 } })],
  [
    'llama-3.1-f32',
    'another original context',
    (s) => ({ ...s, scaling: { ...s.scaling, originalContext: 8191 } as never }),
  ],
  ['llama-3.1-ggml', 'no freq_factors', (s) => ({ ...s, freqFactors: undefined as never })],
  ['llama-3.1-ggml', 'freq_factors multiply', (s) => ({ ...s, freqFactors: Array.from(s.freqFactors!, (f) => 1 / f) })],
  ['gpt-j', 'the whole head', (s) => ({ ...s, rotaryDim: 256 })],
  ['gpt-neox', 'exponent over head_dim', (s) => ({ ...s, frequencyDim: 96 })],
  ['phi-2', 'exponent over head_dim', (s) => ({ ...s, frequencyDim: 80 })],
  ['phi-2', 'trailing dimensions', (s) => ({ ...s, rotaryOffset: 48 })],
  ['stablelm-3b', 'the last pair forgotten', (s) => ({ ...s, rotaryDim: 18, frequencyDim: 20 })],
  ['glm-4', 'half', (s) => ({ ...s, pairing: 'half' })],
  ['window-trailing', 'leading dimensions', (s) => ({ ...s, rotaryOffset: 0 })],
  ['window-middle-half', 'one dimension further', (s) => ({ ...s, rotaryOffset: 21 })],
  [
    'deepseek-v3',
    'magnitude 0.1 ln f + 1',
    (s) => ({ ...s, scaling: { kind: 'yarn', factor: 40, originalContext: 4096 } }),
  ],
  ['deepseek-v3', 'interleaved', (s) => ({ ...s, pairing: 'interleaved' })],
  [
    'yarn-mscale',
    'mscale_all_dim lost',
    (s) => ({ ...s, scaling: { ...s.scaling, mscale: undefined, mscaleAllDim: undefined } as never }),
  ],
  ['qwen2.5-yarn', 'no magnitude', (s) => ({ ...s, attentionFactor: 1 })],
  ['qwen2.5-yarn', 'magnitude squared', (s) => ({ ...s, attentionFactor: (0.1 * Math.log(4) + 1) ** 2 })],
  ['qwen2.5-yarn', 'edges not rounded', (s) => ({ ...s, scaling: { ...s.scaling, truncate: false } as never })],
  ['qwen2.5-yarn', 'betas exchanged', (s) => ({ ...s, scaling: { ...s.scaling, betaFast: 1, betaSlow: 32 } as never })],
  ['qwen2.5-yarn-bf16', 'plain linear', (s) => ({ ...s, scaling: { kind: 'linear', factor: 4 } })],
  ['gpt-oss', 'edges rounded', (s) => ({ ...s, scaling: { ...s.scaling, truncate: true } as never })],
  ['yarn-half-extrapolated', 'ext_factor 1', (s) => ({ ...s, scaling: { ...s.scaling, extFactor: 1 } as never })],
  ['yarn-half-extrapolated', 'ext_factor 0', (s) => ({ ...s, scaling: { ...s.scaling, extFactor: 0 } as never })],
  ['yarn-half-extrapolated', 'attn_factor replaces', (s) => ({ ...s, attentionFactor: 0.9 })],
  ['yarn-partial', 'ramp over head_dim', (s) => ({ ...s, frequencyDim: 128 })],
  ['attention-factor', 'computed', (s) => ({ ...s, attentionFactor: 0.1 * Math.log(16) + 1 })],
  ['linear', 'none', (s) => ({ ...s, scaling: { kind: 'none' } })],
  ['linear', 'the other way', (s) => ({ ...s, scaling: { kind: 'linear', factor: 1 / 8 } })],
  ['dynamic-ntk', 'the original base', (s) => ({ ...s, scaling: { kind: 'none' } })],
  ['longrope-short', 'long factors', (s) => ({ ...s, scaling: { ...s.scaling, context: 131072 } as never })],
  ['longrope-short', 'no magnitude', (s) => ({ ...s, attentionFactor: 1 })],
  ['longrope-long', 'short factors', (s) => ({ ...s, scaling: { ...s.scaling, context: 4096 } as never })],
  [
    'gemma-4-proportional',
    'leading rotary_dim',
    (s) => ({ ...s, scaling: { kind: 'none' }, rotaryDim: 128, frequencyDim: 512 }),
  ],
  ['gemma-3-global', "the sliding layers' base", (s) => ({ ...s, base: 10000, scaling: { kind: 'none' } })],
  ['qwen2-vl-mrope', 'interleaved axes', (s) => ({ ...s, axes: { rule: 'interleaved', sections: [16, 24, 24] } })],
  ['qwen2-vl-mrope', 'h and w exchanged', (s) => ({ ...s, axes: { rule: 'sections', sections: [24, 16, 24] } })],
  ['mrope-four-axes', 'sections one pair off', (s) => ({ ...s, axes: { rule: 'sections', sections: [8, 10, 7, 11] } })],
  ['qwen3-vl-mrope', 'sections', (s) => ({ ...s, axes: { rule: 'sections', sections: [24, 20, 20] } })],
  [
    'qwen3-vl-ggml',
    'the last pairs by t',
    (s) => ({ ...s, axes: { rule: 'interleaved-ggml', sections: [24, 21, 20, 0] } }),
  ],
  [
    'vision-tower',
    'exponents go on',
    (s) => ({ ...s, pairing: 'half', frequencyDim: 40, axes: { rule: 'sections', sections: [20, 20, 0, 0] } }),
  ],
];

/** Makes a runner that computes another case than the one it gets, as a wrong choice does. */
function answering(wrong: (plan: OpPlan) => void): Runner {
  return { name: 'wrong', allocate: zeros, whyNot: () => undefined, run: wrong, async finish() {} };
}

/** Judges the outputs of another case, with the same tensors, as those of a case. */
async function judgeWrong(right: GoldenQuestion, wrong: GoldenQuestion): Promise<string> {
  const outputs = answer(wrong).outputs;
  const runner = answering((plan) => {
    assert.equal(plan.op, 'rope');
    for (const [p, part] of (plan.op === 'rope' ? plan.parts : []).entries()) {
      const out = outputs.get(right.rope!.parts[p]!.out)!;
      (part.out.storage.host as HostArray as Uint8Array).set(out.read() as HostArray as Uint8Array);
    }
  });
  return (await judgeGolden(right, runner)).status;
}

/** Changes every block of a weight into what a kernel that reads it wrongly sees. */
function inBlocks(format: BlockFormat, change: (block: Uint8Array) => void) {
  return (c: GoldenQuestion): GoldenQuestion => {
    const bytes = Uint8Array.from(c.inputs.get('weight')!.read() as Uint8Array);
    const { bytes: unit } = BLOCK_FORMATS[format];
    for (let at = 0; at < bytes.length; at += unit) change(bytes.subarray(at, at + unit));
    return { ...c, inputs: new Map([...c.inputs, ['weight', tensorFrom(bytes, { shape: [bytes.length] })]]) };
  };
}

describe('wrong choices are seen', () => {
  for (const [id, choice, change] of wrongSpecs) {
    test(`${id}: ${choice}`, async () => {
      const right = question(id);
      assert.equal(await judgeWrong(right, right), 'ok');
      assert.equal(
        await judgeWrong(right, { ...right, rope: { ...right.rope!, spec: change(right.rope!.spec) } }),
        'fail',
      );
    });
  }

  test('the direction', async () => {
    for (const id of ['backward', 'backward-yarn', 'backward-interleaved-to-half', 'llama-2-half']) {
      const right = question(id);
      const direction = right.rope!.direction === 'forward' ? 'backward' : 'forward';
      assert.equal(await judgeWrong(right, { ...right, rope: { ...right.rope!, direction } }), 'fail', id);
    }
  });

  test('an angle that an f32 or a bf16 holds is not exact enough at far positions', async () => {
    const right = question('llama-2-half');
    const runner = answering((plan) => {
      if (plan.op !== 'rope') return;
      const { table } = plan.plan;
      const positions = plan.plan.source!.positions;
      const cos = Float32Array.from(table.cos, (_, n) =>
        Math.cos(Math.fround(positions[Math.floor(n / 64)]! * Math.fround(10000 ** (-(n % 64) / 64)))),
      );
      const sin = Float32Array.from(table.sin, (_, n) =>
        Math.sin(Math.fround(positions[Math.floor(n / 64)]! * Math.fround(10000 ** (-(n % 64) / 64)))),
      );
      runReference({ ...plan, plan: { ...plan.plan, table: { ...table, cos, sin } } });
    });
    const verdict = await judgeGolden(right, runner);
    assert.equal(verdict.status, 'fail');
  });

  /** The wrong choices of the other operators, as cases with other attributes or inputs. */
  const others: [id: string, choice: string, (c: GoldenQuestion) => GoldenQuestion][] = [
    ['attention-gqa-past', 'not causal', (c) => ({ ...c, attributes: { ...c.attributes, causal: false } })],
    ['attention-gqa-past', 'another scale', (c) => ({ ...c, attributes: { ...c.attributes, scale: 0.1251 } })],
    ['attention-window', 'no window', (c) => ({ ...c, attributes: { scale: c.attributes.scale!, causal: true } })],
    ['attention-window', 'window one wider', (c) => ({ ...c, attributes: { ...c.attributes, window: 5 } })],
    ['attention-softcap', 'no cap', (c) => ({ ...c, attributes: { scale: 0.5, causal: true } })],
    ['attention-bidirectional', 'causal', (c) => ({ ...c, attributes: { ...c.attributes, causal: true } })],
    ['rms-norm-eps', 'eps 1e-6', (c) => ({ ...c, attributes: { eps: 1e-6 } })],
    ['rms-norm-eps', 'no eps', (c) => ({ ...c, attributes: { eps: 0 } })],
    ['layer-norm', 'eps 1e-3', (c) => ({ ...c, attributes: { eps: 1e-3 } })],
    ['layer-norm-eps', 'eps 1e-6', (c) => ({ ...c, attributes: { eps: 1e-6 } })],
    ['layer-norm', 'no bias', (c) => ({ ...c, inputs: new Map([...c.inputs].filter(([name]) => name !== 'bias')) })],
    ['gelu', 'tanh', (c) => ({ ...c, attributes: { approximate: 'tanh' } })],
    ['gelu-tanh', 'erf', (c) => ({ ...c, attributes: {} })],
    ['geglu-f16', 'tanh', (c) => ({ ...c, attributes: { approximate: 'tanh' } })],
    ['scale-embeddings', 'another factor', (c) => ({ ...c, attributes: { factor: 47.75 } })],
    ['scale-softcap', 'no cap', (c) => ({ ...c, attributes: { factor: 0.0625 } })],
    ['swiglu-clamped', 'not clamped', (c) => ({ ...c, attributes: { alpha: 1.702, offset: 1 } })],
    ['swiglu-clamped', 'no alpha', (c) => ({ ...c, attributes: { limit: 7, offset: 1 } })],
    ['swiglu-clamped', 'no offset', (c) => ({ ...c, attributes: { limit: 7, alpha: 1.702 } })],
    [
      'swiglu',
      'gate and up exchanged',
      (c) => ({
        ...c,
        inputs: new Map([
          ['gate', c.inputs.get('up')!],
          ['up', c.inputs.get('gate')!],
        ]),
      }),
    ],
    [
      'linear-square',
      'x·W',
      (c) => ({
        ...c,
        inputs: new Map([...c.inputs, ['weight', c.inputs.get('weight')!.permute([1, 0]).contiguous()]]),
      }),
    ],
    [
      'linear-bias-f16',
      'no bias',
      (c) => ({ ...c, inputs: new Map([...c.inputs].filter(([name]) => name !== 'bias')) }),
    ],
    ['linear-mxfp4', 'exponent less 128', inBlocks('mxfp4', (b) => b[0]!--)],
    ['linear-q4_K', 'no offset', inBlocks('q4_K', (b) => b.fill(0, 2, 4))],
    [
      'linear-q4_K',
      'high bits of scales lost',
      inBlocks('q4_K', (b) =>
        b.set(
          b.slice(4, 12).map((byte) => byte & 63),
          4,
        ),
      ),
    ],
    ['linear-q5_K', 'no fifth bits', inBlocks('q5_K', (b) => b.fill(0, 16, 48))],
    [
      'linear-q6_K',
      'a scale for 32',
      inBlocks('q6_K', (b) =>
        b.set(
          b.slice(192, 208).map((_, n, all) => all[n & ~1]!),
          192,
        ),
      ),
    ],
    ['linear-iq4_xs', 'high bits of scales lost', inBlocks('iq4_xs', (b) => b.fill(0, 2, 4))],
  ];
  for (const [id, choice, change] of others) {
    test(`${id}: ${choice}`, () => {
      const right = question(id);
      const exact = exactWithBounds(right);
      const statuses = [right, change(right)].map((asked) => {
        const [[name, got]] = [...answer(asked).outputs] as [[string, Tensor]];
        return judgeOutput(name, got.read() as HostArray, exact.get(name)!).status;
      });
      assert.deepEqual(statuses, ['ok', 'fail']);
    });
  }
});

describe('tolerances', () => {
  test('the two numbers for everybody hold for every element, and are not infinite', () => {
    for (const c of cases) {
      const { atol, rtol, formula } = c.tolerance;
      assert.ok(Number.isFinite(atol) && Number.isFinite(rtol), c.id);
      for (const [name, { dtype, values, bounds }] of exactWithBounds(c)) {
        if (!bounds) {
          if (formula === 'bits') assert.deepEqual([atol, rtol], [0, 0], c.id);
          continue;
        }
        const stored = floats(c.outputs.get(name)!);
        for (const [n, bound] of bounds.entries()) {
          const exact = values[n] as number;
          if (!Number.isFinite(exact)) continue;
          // A right kernel is at most this far from the stored value before its output is rounded.
          const furthest = bound + Math.abs(stored[n]! - exact);
          assert.ok(
            furthest <= atol + rtol * Math.abs(stored[n]!),
            `${c.id} ${name}[${n}] ${dtype}: ${furthest} > ${atol} + ${rtol}·|${stored[n]}|`,
          );
        }
      }
    }
  });

  test('a copied dimension has no tolerance, a rotated one is a few units', () => {
    const c = question('phi-2');
    const { bounds, values } = exactWithBounds(c).get('y')!;
    for (let n = 0; n < bounds!.length; n++) {
      if (n % 80 >= 32) assert.equal(bounds![n], 0);
      else assert.ok(bounds![n]! > 0 && bounds![n]! < 1e-6, `${bounds![n]} at ${values[n]}`);
    }
  });
});

describe('forms', () => {
  for (const form of GOLDEN_FORMS) {
    test(`${form}: what is written is read, and passes`, async () => {
      const chosen = some(cases);
      const files = await written(chosen, [form]);
      const twice = chooseBuiltIn(['rope', 'argmax'])
        .cases.filter((_, n) => n % 5 === 0)
        .map((one) => one.make())
        .filter(({ id }) => chosen.some((one) => one.id === id));
      const again = await written(twice.map(answer), [form]);
      again.delete('manifest.json');
      for (const [path, bytes] of again)
        assert.ok(Buffer.from(bytes).equals(files.get(path)!), `${path} differs from run to run`);
      const { folder, cases: read } = await readGoldenFolder(onDisk(files, form), onnx);
      const left = folder.skipped.map(({ id }) => id);
      assert.deepEqual(
        read.map(({ id }) => id),
        chosen.map(({ id }) => id).filter((id) => !left.includes(id)),
      );
      const most = form === 'onnx' ? 20 : 0; // operators with a state, f64, NaN
      assert.ok(left.length <= most, `not as ${form}: ${left.join(', ')}`);
      for (const c of read) {
        const made = cases.find(({ id }) => id === c.id)!;
        for (const [got, want] of [
          [c.inputs, made.inputs],
          [c.outputs, made.outputs],
        ] as const) {
          assert.deepEqual([...got.keys()], [...want.keys()]);
          for (const [name, tensor] of want) {
            assert.deepEqual(
              [got.get(name)!.dtype, got.get(name)!.shape],
              [tensor.dtype, tensor.shape],
              `${c.id} ${name}`,
            );
            assert.deepEqual(
              bitsOf(got.get(name)!.read() as HostArray),
              bitsOf(tensor.read() as HostArray),
              `${c.id} ${name}`,
            );
          }
        }
        assert.deepEqual(c.tolerance, made.tolerance);
        assert.deepEqual(c.rope && JSON.parse(JSON.stringify(c.rope)), made.rope); // undefined is as good as left out
      }
      const failed: string[] = [];
      for await (const result of runCases(vectorCases(folderOf(files), onnx), referenceRunner())) {
        if (result.verdict.status !== 'ok') failed.push(formatResult(result));
      }
      assert.deepEqual(failed, []);
    });
  }

  test('an element that was changed is noticed', async () => {
    const files = await written(cases.slice(0, 1), ['bin']);
    const [path] = [...files.keys()].filter((name) => name.endsWith('y.bin'));
    files.get(path!)![5]! ^= 1;
    await assert.rejects(readGoldenFolder(onDisk(files, 'changed')), {
      name: 'RopewalkError',
      code: 'FORMAT',
      message: /llama-2-half\/y\.bin: y: its sha256 is .*: the file was changed after it was written/,
    });
  });

  const compiler = ['cc', 'gcc', 'clang'].find((name) => !spawnSync(name, ['--version']).error);
  testPeers(
    'C: compiles without a warning, and holds the same bits',
    {
      skip: compiler === undefined && 'no C compiler',
    },
    async () => {
      const dir = await allIn('c');
      const headers = readdirSync(dir).filter((name) => name.endsWith('.h'));
      const half = cases.find(({ id }) => id === 'llama-3-f16')!;
      const nan = cases.find(({ id }) => id === 'argmax-nan')!;
      const main = `${headers.map((name) => `#include "${name}"`).join('\n')}
#include <stdio.h>
int main(void) {
  printf("%a %u %lld %08x %d %lld\\n", (double)llama_2_half_y.values[777], llama_3_f16_y[5], (long long)llama_2_half_positions[5],
    (unsigned)argmax_nan_max_val.bits[0], llama_2_half_y_count, (long long)llama_2_half_y_shape[3]);
  return 0;
}
`;
      writeFileSync(join(dir, 'all.c'), main);
      const built = spawnSync(
        compiler!,
        ['-std=c99', '-pedantic', '-Wall', '-Wextra', '-Werror', '-o', 'all', 'all.c'],
        {
          cwd: dir,
          encoding: 'utf8',
        },
      );
      assert.equal(built.status, 0, built.stderr);
      const said = spawnSync(join(dir, 'all'), { encoding: 'utf8' }).stdout.trim().split(' ');
      const first = floats(cases[0]!.outputs.get('y')!)[777]!;
      const hex = /^(-?)0x1\.?([0-9a-f]*)p([+-]\d+)$/.exec(said[0]!)!;
      assert.equal(
        (hex[1] ? -1 : 1) * (1 + Number.parseInt(`0${hex[2]}`, 16) / 16 ** hex[2]!.length) * 2 ** Number(hex[3]),
        first,
      );
      assert.deepEqual(said.slice(1), [
        String((half.outputs.get('y')!.read() as Uint16Array)[5]),
        '1048575',
        (bitsOf(nan.outputs.get('max_val')!.read() as HostArray)[0]! as number).toString(16).padStart(8, '0'),
        String(2 * 6 * 2 * 128),
        '128',
      ]);
    },
  );

  testPeers(
    'C: a kernel in plain f32 keeps the bounds of every case that it can do, and a wrong one does not',
    { skip: compiler === undefined && 'no C compiler' },
    async () => {
      const dir = await allIn('c');
      // The usual kernel has q, positions and a base, and rotates the whole head or its first dimensions.
      const able = cases.flatMap(({ id, rope, inputs }) => {
        if (!rope || turnsOf(rope).beyond !== '' || inputs.get(rope.parts[0]!.x)!.dtype !== 'f32') return [];
        return rope.parts.map((part) => ({ id, prefix: cPrefix(id), part, spec: rope.spec, inputs }));
      });
      assert.equal(new Set(able.map(({ id }) => id)).size, 8);
      const calls = able.map(({ id, prefix, part, spec, inputs }) => {
        const { headDim, rotaryDim = headDim, base, pairing } = spec;
        const [x, y, positions] = [`${prefix}_${part.x}`, `${prefix}_${part.out}`, `${prefix}_positions`];
        const seq = inputs.get('positions')!.shape.at(-1);
        const given = `${positions}[(n / ${inputs.get(part.x)!.shape[2]}) % (sizeof ${positions} / sizeof *${positions})]`;
        assert.ok(seq === 6 && headDim >= rotaryDim, id);
        return `  for (int n = 0, wrong = 0; n <= ${x}_count / ${headDim}; n++) {
    if (n == ${x}_count / ${headDim}) { printf("${id} %d\\n", wrong); break; }
    rope(y, ${x}.values + n * ${headDim}, (float)${given}, ${headDim}, ${rotaryDim}, ${base}.0f, ${pairing === 'interleaved' ? 1 : 0});
    for (int i = 0; i < ${headDim}; i++)
      wrong += !(fabs((double)y[i] - ${y}.values[n * ${headDim} + i]) <= ${y}_bound.values[n * ${headDim} + i]);
  }`;
      });
      const kernel = (angle: string): string => `${[...new Set(able.map(({ id }) => `#include "${id}.h"`))].join('\n')}
#include <math.h>
#include <stdio.h>
static void rope(float *y, const float *x, float position, int dim, int rotary, float base, int interleaved) {
  for (int i = rotary; i < dim; i++) y[i] = x[i];
  for (int j = 0; j < rotary / 2; j++) {
    int a = interleaved ? 2 * j : j, b = interleaved ? a + 1 : j + rotary / 2;
    float angle = ${angle};
    float c = cosf(angle), s = sinf(angle);
    y[a] = x[a] * c - x[b] * s;
    y[b] = x[a] * s + x[b] * c;
  }
}
int main(void) {
  float y[512];
${calls.join('\n')}
  return 0;
}
`;
      const wrongOf = (angle: string): Map<string, number> => {
        writeFileSync(join(dir, 'plain.c'), kernel(angle));
        const flags = ['-std=c99', '-O2', '-Wall', '-Wextra', '-Werror', '-o', 'plain', 'plain.c', '-lm'];
        const built = spawnSync(compiler!, flags, { cwd: dir, encoding: 'utf8' });
        assert.equal(built.status, 0, built.stderr);
        const said = spawnSync(join(dir, 'plain'), { encoding: 'utf8' }).stdout.trim().split('\n');
        assert.equal(said.length, able.length);
        return new Map(said.map((line) => [line.split(' ')[0]!, Number(line.split(' ')[1])]));
      };
      const right = 'position * powf(base, -2.0f * (float)j / (float)rotary)';
      for (const [id, wrong] of wrongOf(right)) assert.equal(wrong, 0, id);
      for (const [angle, but] of [
        [right.replace('position', '(position + 1)'), ''],
        [right.replace('position', '-position'), ''],
        [right.replace('base', '(base * 1.0001f)'), 'one-pair'],
        [right.replace('(float)rotary', '(float)(rotary + 2)'), 'one-pair'],
      ] as const)
        for (const [id, wrong] of wrongOf(angle)) assert.ok(wrong > 0 || id === but, `${angle}: ${id}`);
    },
  );

  test('bounds beside the outputs are those of verify, rounded up', async () => {
    for (const c of some(cases)) {
      const files = await written([c], ['npy']);
      for (const [name, { allowed }] of expectationsOf(c, {})) {
        const { dtype, bounds, values } = allowed(defaultTable(c));
        const path = `${c.id}/${name}_bound.npy`;
        assert.equal(files.has(path), bounds !== undefined, path);
        if (!bounds) continue;
        const stored = floats(c.outputs.get(name)!);
        const beside = parseNpy(files.get(path)!, path).data as Float32Array;
        bounds.forEach((bound, n) => {
          const [exact, got] = [values[n] as number, beside[n]!];
          const over = Math.abs(exact) + bound >= OVERFLOW[dtype as FloatDtype];
          assert.equal(got === Number.POSITIVE_INFINITY, bound > 0 && over, path);
          if (bound > 0 && over) return;
          // The bounds are rounded up to three digits.
          const most = bound && bound + storedSlack(dtype as FloatDtype, exact);
          const least = bound && bound + Math.abs(stored[n]! - exact);
          assert.ok(got >= least * (1 - 1e-7) && got <= most * 1.0101, `${path}[${n}]: ${got} for ${bound}`);
        });
      }
    }
  });

  test('--table: the bounds allow no f32 angles, or those of a recurrence', async () => {
    const c = cases.find(({ id }) => id === 'llama-2-half')!;
    const boundsOf = async (table?: TablePrecision): Promise<Float32Array> => {
      const { entry, files } = await writeCase(c, ['npy'], { generator: 'test', seed: 1, table });
      assert.deepEqual(entry.outputs[0]!.bounds, { table: table ?? 'f32', files: { npy: 'llama-2-half/y_bound.npy' } });
      const { bytes } = files.find(({ path }) => path === 'llama-2-half/y_bound.npy')!;
      return parseNpy(bytes, 'bounds').data as Float32Array;
    };
    const [exact, f32, drift] = [await boundsOf('float64'), await boundsOf(), await boundsOf('f32-recurrence')];
    const [near, far] = [1 * 256 + 40, 4 * 256 + 40]; // positions 1 and 131072, pair 40
    assert.ok(exact[far]! < 1e-6 && f32[near]! < 2e-6 && f32[far]! > 1e-5 && drift[far]! > 3 * f32[far]!);
  });

  const noNumpy = spawnSync('/usr/bin/python3', ['-c', 'import numpy']).status !== 0 && 'no python3-numpy';
  testPeers('numpy: npy and the bounds are enough', { skip: noNumpy }, async () => {
    const dir = await allIn('npy');
    const code = `
import json, numpy as np
m = json.load(open('manifest.json'))
c = next(c for c in m['cases'] if c['id'] == 'llama-2-half')
load = lambda t: np.load(t['files']['npy'])
x, positions = (load(t) for t in c['inputs'])
[t] = c['outputs']
want, bound = load(t), load(t['bounds'])
angle = positions[:, :, None, None].astype('f4') * np.float32(10000) ** (-np.arange(64, dtype='f4') / np.float32(64))
a, b = x[..., :64], x[..., 64:]
y = np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)
print(np.allclose(y, want, rtol=0, atol=bound, equal_nan=True), np.allclose(-y, want, rtol=0, atol=bound, equal_nan=True))
bf16 = np.load('llama-3.1-bf16/x.npy')
print(bf16.dtype, float((bf16.astype('u4') << 16).view('f4')[0, 0, 0, 0]))
`;
    const ran = spawnSync('/usr/bin/python3', ['-c', code], { cwd: dir, encoding: 'utf8' });
    const value = floats(cases.find(({ id }) => id === 'llama-3.1-bf16')!.inputs.get('x')!)[0]!;
    assert.equal(ran.status, 0, ran.stderr);
    const [verdict, last] = ran.stdout.trim().split('\n');
    assert.equal(verdict, 'True False');
    assert.equal(Number(last!.split(' ')[1]), value);
    assert.match(last!, /^uint16 /);
  });
});

describe('onnx', () => {
  test('a note says what ONNX cannot express', () => {
    const said = new Map(cases.map((c) => [c.id, onnxTestOf(c)]));
    const reasons = [...said].filter(([, result]) => typeof result === 'string');
    assert.ok(reasons.some(([id, reason]) => id === 'llama-2-f64' && reason === 'RotaryEmbedding takes no float64'));
    assert.ok(reasons.some(([id, reason]) => id === 'linear-q8_0' && reason === 'ONNX has no q8_0 blocks'));
    assert.ok(reasons.some(([id, reason]) => id === 'argmax-nan' && reason === 'ArgMax says nothing of NaN'));
    // A plain case is one node, as in the standard's tests.
    const plain = said.get('llama-2-half');
    assert.ok(typeof plain === 'object');
    const { nodes, inputs } = parseOnnxModel(plain[0]!.bytes).graph;
    assert.deepEqual(
      nodes.map(({ opType }) => opType),
      ['RotaryEmbedding'],
    );
    assert.deepEqual(
      inputs.map(({ name }) => name),
      ['x', 'cos_cache', 'sin_cache'],
    );
  });

  test('without the package that writes and reads it the form is refused', async () => {
    const [first] = cases;
    const refused = { name: 'RopewalkError', code: 'UNSUPPORTED', message: /need @ropewalk\/onnx. Give onnx,/ };
    await assert.rejects(writeCase(first!, ['onnx'], { generator: 'test', seed: 1 }), refused);
    const dir = onDisk(await written([first!], ['onnx']), 'no-onnx');
    await assert.rejects(readGoldenFolder(dir), refused);
  });

  testPeers('ONNX Runtime computes what is expected', { skip: noOnnxruntime }, async () => {
    // biome-ignore lint/suspicious/noExplicitAny: the types that tests have of it are those that they share
    const ort: any = await ortOrReason();
    const dir = await allIn('onnx');
    const names: Record<string, string> = {
      f32: 'float32',
      f16: 'float16',
      f64: 'float64',
      i64: 'int64',
      i32: 'int32',
    };
    const noHalves = 'Float16Array' in globalThis;
    let ran = 0;
    const wrong: string[] = [];
    for (const c of cases.filter(({ id }) => existsSync(join(dir, id, 'model.onnx')))) {
      // ONNX Runtime's JavaScript has no bf16 tensors. Where the runtime has Float16Array (Node 24) it asks for one,
      // which its binary does not read.
      const dtypes = [...c.inputs.values(), ...c.outputs.values()].map(({ dtype }) => dtype);
      if (dtypes.includes('bf16') || (noHalves && dtypes.includes('f16'))) continue;
      const session = await ort.InferenceSession.create(join(dir, c.id, 'model.onnx'), { logSeverityLevel: 4 });
      const feeds: Record<string, unknown> = {};
      const data = join(dir, c.id, 'test_data_set_0');
      for (const file of readdirSync(data).filter((name) => name.startsWith('input_'))) {
        const { name, tensor } = parseOnnxTensor(new Uint8Array(readFileSync(join(data, file))));
        feeds[name] = new ort.Tensor(names[tensor.dtype], tensor.read(), [...tensor.shape]);
      }
      const result = await session.run(feeds);
      for (const [name, want] of exactWithBounds(c)) {
        ran++;
        if (c.op === 'swiglu') {
          // ONNX Runtime's Sigmoid is a polynomial within 4e-7 (measured). For gates below −4 that is more than the
          // bound, and no error of the graph.
          const [gate, up] = [floats(c.inputs.get('gate')!), floats(c.inputs.get('up')!)];
          const loose = want.bounds!.map((b, n) => b + 4e-7 * Math.abs(gate[n]! * up[n]!));
          const verdict = judgeOutput(`${c.id}.${name}`, result[name].data, { ...want, bounds: loose });
          if (verdict.status === 'fail') wrong.push(verdict.detail);
          continue;
        }
        const verdict = judgeOutput(`${c.id}.${name}`, result[name].data, want);
        if (verdict.status === 'fail') wrong.push(verdict.detail);
      }
    }
    assert.deepEqual(wrong, []);
    assert.ok(ran >= (noHalves ? 40 : 55), `${ran} outputs`);
  });
});

describe('dialects', () => {
  test('each has cases, in its own form, and says what it leaves out', () => {
    for (const dialect of GOLDEN_DIALECTS) {
      const { cases: chosen, left } = chooseDialect(dialect);
      assert.ok(chosen.length >= 4, `${dialect}: ${chosen.length}`);
      assert.equal(chosen.length + left.length, GOLDEN_ROPE.length);
      for (const { reason } of left) assert.ok(reason.length > 10);
      for (const c of chosen) {
        const { inputs, rope, id } = c.make();
        const positions = inputs.get('positions')!;
        if (dialect === 'ggml' || dialect === 'cann') {
          assert.equal(positions.dtype, 'i32', id);
          assert.deepEqual(positions.shape.slice(0, -1), rope!.spec.axes ? [4] : [], id);
        }
        if (dialect === 'llaisys')
          assert.deepEqual([positions.dtype, positions.rank, inputs.get('x')!.shape[0]], ['i64', 1, 1], id);
        if (dialect === 'huggingface') assert.equal(rope!.layout, 'bnsh', id);
        if (dialect === 'onnx') assert.equal(typeof onnxTestOf(answer(c.make())), 'object', id);
      }
    }
  });

  test('dtypes, heads and tokens are as asked', () => {
    const { cases: chosen } = chooseBuiltIn(['rope'], { dtypes: ['f16', 'f32'], heads: 5, positions: [3, 4] });
    assert.equal(chosen.length, 2 * GOLDEN_ROPE.length);
    assert.equal(new Set(chosen.map(({ id }) => id)).size, chosen.length);
    const first = chosen[0]!.make();
    assert.deepEqual(
      [first.id, first.inputs.get('x')!.dtype, first.inputs.get('x')!.shape],
      ['llama-2-half-f16', 'f16', [2, 2, 5, 128]],
    );
    assert.deepEqual(positionsFor(2), [1, 1048575]);
    assert.equal(new Set(positionsFor(100)).size, 100);
  });
});

const FORGED = ['llama-2-half', 'rearrange-strided', 'linear-q8_0', 'qwen3-norm-and-cache', 'attention-window'];
const plain = await written(
  cases.filter(({ id }) => FORGED.includes(id)),
  ['npy'],
);

describe('forged folders', () => {
  const manifest = JSON.parse(new TextDecoder().decode(plain.get('manifest.json')!));
  for (const one of manifest.cases) delete one.rope; // what follows from attributes: nothing of it is read

  /** Lists every place in a JSON value, as a path. */
  function places(value: unknown, path: (string | number)[] = []): (string | number)[][] {
    if (typeof value !== 'object' || value === null) return [path];
    return [
      path,
      ...Object.entries(value).flatMap(([key, item]) =>
        places(item, [...path, Array.isArray(value) ? Number(key) : key]),
      ),
    ];
  }
  const all = places(manifest).filter((path) => path.length > 0);
  const odd = fc.constantFrom<unknown>(
    null,
    0,
    -1,
    1,
    3,
    0.5,
    1e9,
    2 ** 53,
    -(2 ** 31),
    '',
    'x',
    '../x',
    'f32',
    'i64',
    'rope',
    'linear',
    [],
    [0],
    [2 ** 40],
    [1, 2, 3],
    {},
    true,
    { length: 5 },
  );

  test('fuzz: a manifest with other values in it is run or refused', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.nat(), odd), { minLength: 1, maxLength: 3 }), async (changes) => {
        const forged = structuredClone(manifest);
        for (const [n, value] of changes) {
          const path = all[n % all.length]!;
          let at = forged;
          for (const key of path.slice(0, -1)) at = at?.[key];
          // The value is copied, as a later change may go into it.
          if (typeof at === 'object' && at !== null) at[path.at(-1)!] = structuredClone(value);
        }
        const files = new Map([...plain, ['manifest.json', new TextEncoder().encode(JSON.stringify(forged))]]);
        const folder: VectorFolder = { ...folderOf(files), read: (path) => files.get(path) ?? refuseMissing(path) };
        try {
          for await (const result of runCases(vectorCases(folder), referenceRunner())) {
            if (result.verdict.status === 'fail') assert.match(result.verdict.detail, /^\[|^RopewalkError: /);
          }
        } catch (error) {
          mustRefuseOrReturn(() => {
            throw error;
          });
        }
      }),
      drawn(600),
    );
  });

  function refuseMissing(path: string): never {
    throw Object.assign(new Error(path), { name: 'RopewalkError' });
  }

  const refused: [string, (m: typeof manifest) => void, RegExp][] = [
    [
      'another format',
      (m) => (m.format = 'ropewalk-vectors-2'),
      /format: expected ropewalk-vectors-1, got "ropewalk-vectors-2"/,
    ],
    ['an id that is a path', (m) => (m.cases[0].id = '../x'), /cases\[0\]\.id: expected up to 100 letters/],
    ['an id twice', (m) => (m.cases[1].id = m.cases[0].id), /cases\[1\]\.id: two cases have the id "llama-2-half"/],
    ['an operator that is none', (m) => (m.cases[0].op = 'sin'), /cases\[0\]\.op: expected rope, .* got "sin"/],
    [
      'a shape of a petabyte',
      (m) => (m.cases[0].inputs[0].shape = [2 ** 40]),
      /inputs\[0\]\.shape: expected at most 134217728 elements/,
    ],
    [
      'a hash that is none',
      (m) => (m.cases[0].inputs[0].sha256 = 'abc'),
      /sha256: expected 64 hexadecimal digits, got "abc"/,
    ],
    [
      'a head of 2^30',
      (m) => (m.cases[0].attributes.spec.headDim = 2 ** 30),
      /attributes\.spec: expected at most 67108864 angles/,
    ],
    [
      'a recipe',
      (m) => (m.cases[0].attributes.spec.recipe = 'ggml-f32'),
      /attributes\.spec: expected values for some of headDim, .*, got "recipe"/,
    ],
    [
      'no files',
      (m) => (m.cases[0].inputs[0].files = {}),
      /manifest\.json: x: it has no values and names no file: npy, bin, safetensors, npz, onnx, c/,
    ],
    [
      'an odd rotary_dim',
      (m) => (m.cases[0].attributes.spec.rotaryDim = 21),
      /mem\/llama-2-half: rope: rotary_dim: expected an even integer/,
    ],
  ];
  for (const [name, forge, message] of refused) {
    test(name, async () => {
      const forged = structuredClone(manifest);
      forge(forged);
      const files = new Map([...plain, ['manifest.json', new TextEncoder().encode(JSON.stringify(forged))]]);
      const run = async (): Promise<void> => {
        for await (const result of runCases(vectorCases(folderOf(files)), referenceRunner()))
          assert.equal(result.verdict.status, 'ok');
      };
      await assert.rejects(run, { name: 'RopewalkError', code: 'FORMAT', message });
    });
  }

  test('fuzz: damaged C headers are read or refused', async () => {
    const headers = await written([cases[0]!], ['c']);
    const header = new TextDecoder().decode(headers.get('llama-2-half.h')!);
    const cut =
      header.slice(0, 900) + header.slice(header.indexOf('/* input positions'), header.indexOf('/* expected'));
    const wanted = { name: 'positions', dtype: 'i64', shape: [2, 6] } as const;
    const exact = await decodeTensor(new TextEncoder().encode(cut), 'c', wanted, 'x.h');
    assert.deepEqual(exact.read(), cases[0]!.inputs.get('positions')!.read());
    await fc.assert(
      fc.asyncProperty(
        fc.nat(),
        fc.nat(40),
        fc.constantFrom('', '}', '{', ',', '0x', '9'.repeat(25), '-1', '\n', '_count = 9'),
        async (at, length, text) => {
          const start = at % cut.length;
          const bytes = new TextEncoder().encode(cut.slice(0, start) + text + cut.slice(start + length));
          let failed: unknown;
          await decodeTensor(bytes, 'c', wanted, 'x.h').catch((error) => {
            failed = error;
          });
          mustRefuseOrReturn(() => {
            if (failed) throw failed;
          });
        },
      ),
      drawn(1000),
    );
  });

  test('a folder is opened without reading a tensor', () => {
    const only = new Map([['manifest.json', plain.get('manifest.json')!]]);
    assert.equal(goldenOf(folderOf(only)).cases.length, manifest.cases.length);
  });
});

test('cases of route: logits that are off by 2^-12 choose the same experts, but for ties', () => {
  for (const c of cases.filter(({ op, id }) => op === 'route' && id !== 'route-ties')) {
    const logits = c.inputs.get('logits')!;
    for (const seed of [1, 2, 3]) {
      const off = floats(logits).map((z, n) => z + Math.sin(seed * 1000 + n) * 2 ** -12);
      const inputs = new Map(c.inputs).set('logits', f64Tensor(off, logits.shape));
      const indices = exactOutputs({ ...c, inputs }).get('indices')!;
      assert.deepEqual(indices.read(), c.outputs.get('indices')!.read(), c.id);
    }
  }
});

test('docs/vectors.md names every case, and what it tells apart', () => {
  const page = readFileSync(join(ROOT, 'docs/vectors.md'), 'utf8');
  const escaped = (text: string): string => text.replaceAll('|', '\\|');
  for (const { id, about, separates } of cases) {
    const row = page.split('\n').find((line) => line.startsWith(`| \`${id}\` | `)) ?? assert.fail(`no row for ${id}`);
    assert.ok(row.includes(escaped(about)), `${id}: ${about}`);
    assert.ok(row.endsWith(`| ${escaped(separates.join('; '))} |`), `${id}: ${separates.join('; ')}`);
  }
  const counts = [...page.matchAll(/^golden: (\d+) cases/gm)].map((match) => Number(match[1]));
  assert.deepEqual(counts, [cases.length]);
});

describe('other operators in a dialect', () => {
  test("LLAISYS: its nine operators, in its dtypes and ranks, and each case runs through LLAISYS' own call", () => {
    const nine = [
      'add',
      'argmax',
      'embedding',
      'linear',
      'rms_norm',
      'rope',
      'self_attention',
      'swiglu',
      'rearrange',
    ] as const;
    const { cases, left } = chooseDialect('llaisys', {}, nine);
    assert.deepEqual(new Set(cases.map(({ op }) => op)), new Set(nine));
    assert.ok(left.some(({ reason }) => reason === "LLAISYS' swiglu has no limit"));
    // Each row of argmax is a case, so that a kernel which takes the last maximum or skips NaN fails.
    const rowsOf = (name: string) =>
      cases
        .filter(({ id }) => id.startsWith(`${name}-row-`))
        .map((one) => Array.from(one.make().inputs.get('values')!.readNumbers() as Float64Array));
    assert.equal(rowsOf('argmax-ties').length, 6 * 3);
    assert.equal(rowsOf('argmax-ties').filter((row) => row.every((value) => value === -Infinity)).length, 3);
    assert.equal(rowsOf('argmax-nan').filter((row) => row.some(Number.isNaN)).length, 3 * 3);
    const runner = referenceRunner();
    const calls: Record<string, (t: Record<string, Tensor>, q: GoldenQuestion) => void> = {
      add: (t) => llaisys.add(runner, t.c!, t.a!, t.b!),
      argmax: (t) => llaisys.argmax(runner, t.max_idx!.view([1]), t.max_val!.view([1]), t.values!),
      embedding: (t) => llaisys.embedding(runner, t.out!, t.index!, t.weight!),
      linear: (t) => llaisys.linear(runner, t.y!, t.x!, t.weight!, t.bias),
      rms_norm: (t, q) => llaisys.rmsNorm(runner, t.y!, t.x!, t.weight!, q.attributes.eps as number),
      self_attention: (t, q) =>
        llaisys.selfAttention(runner, t.attn_val!, t.q!, t.k!, t.v!, q.attributes.scale as number),
      swiglu: (t) => llaisys.swiglu(runner, t.out!, t.gate!, t.up!),
    };
    const dtypes = new Map<string, Set<string>>();
    for (const { op, make } of cases) {
      const call = calls[op];
      if (!call) continue;
      const question = make();
      const { plan, outputs } = bindGolden(question, runner);
      runner.run(plan);
      const again = bindGolden(question, runner).outputs;
      call({ ...Object.fromEntries(question.inputs), ...Object.fromEntries(again) }, question);
      for (const [name, tensor] of outputs)
        assert.deepEqual(again.get(name)!.readNumbers(), tensor.readNumbers(), `${question.id} ${name}`);
      const float = [...question.inputs.values()].find(({ dtype }) => dtype !== 'i64')!.dtype;
      dtypes.set(op, (dtypes.get(op) ?? new Set()).add(float));
      assert.match(question.about, /llaisys[A-Z]\w+\(/);
    }
    assert.equal(dtypes.size, 7);
    for (const [op, set] of dtypes) assert.deepEqual([...set].sort(), ['bf16', 'f16', 'f32'], op);
    const some = chooseDialect('llaisys', { dtypes: ['f16'] }, ['linear']);
    assert.ok(some.cases.length > 0 && some.cases.every(({ make }) => make().inputs.get('x')!.dtype === 'f16'));
  });

  test("CANN: each case has the operator's own arguments, and they give its output", () => {
    const { cases, left } = chooseDialect('cann');
    assert.ok(
      left.some(({ id, reason }) => id === 'window-trailing' && reason === 'the operator rotates the first n_dims'),
    );
    assert.ok(cases.length >= 20);
    for (const { make } of cases) {
      const question = make();
      const { D, freq_factors, ...given } = question.call!.arguments as Record<string, never>;
      assert.deepEqual(question.call!.tensors, { src0: 'x', pos: 'positions', dst: 'y' });
      const src0 = question.inputs.get('x')! as Tensor<'f32'>;
      assert.equal(D, src0.shape[3], question.id);
      const pos = (question.inputs.get('positions')! as Tensor<'i32'>).view([-1]);
      const factors = freq_factors ? tensorFrom(Float32Array.from(freq_factors as number[])) : null;
      const got = cann.rope(referenceRunner(), { src0, pos, freq_factors: factors, ...given } as never) as Tensor;
      const want = answer(question).outputs.get('y')!;
      // Floats are f32 in the call, and positions go up to a million.
      const off = nmse(got.readNumbers() as Float64Array, want.readNumbers() as Float64Array);
      assert.ok(off < 1e-5, `${question.id}: NMSE ${off}`);
    }
  });

  test('other dialects leave out the dtypes that they do not have', () => {
    const { cases, left } = chooseDialect('ggml', {}, ['add']);
    assert.deepEqual(
      cases.map(({ id }) => id),
      ['add-residual', 'add-f16', 'add-special'],
    );
    assert.deepEqual(left, [{ id: 'add-bf16', reason: 'ggml has f32, f16, and the case is in bf16' }]);
    assert.deepEqual(chooseDialect('onnx', {}, ['rope']).left, chooseDialect('onnx').left);
  });
});
