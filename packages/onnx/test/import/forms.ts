/**
 * RoPE as exporters write it: one small model for each form, and the RoPE that it should be.
 *
 * The forms are those in the sources of the exporters and in the fusions of runtimes, and each names its source. No
 * code is copied.
 */

import { frequenciesOf, type RopeSpec, type Tensor, tensorFrom } from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { Graph } from './build.js';

export interface Form {
  readonly name: string;
  /** The programs that write this form. */
  readonly from: string;
  readonly bytes: Uint8Array;
  /** The names of the model's inputs and output, for ONNX Runtime. */
  readonly x: string;
  readonly y: string;
  readonly shape: readonly number[];
  /** The order of x's dimensions; `bs(nh)` has heads inside the last one. */
  readonly layout: 'bnsh' | 'bsnh' | 'nsh' | 'bs(nh)';
  readonly spec: RopeSpec;
  /** The positions in the graph's form, and the input's name, or none if rows are counted. */
  readonly positions: { readonly name: string; readonly tensor: Tensor } | undefined;
  /** The same positions as `[batch, seq]` or `[axes, batch, seq]`. */
  readonly means: Tensor;
  /** Other inputs of the model. */
  readonly inputs?: Readonly<Record<string, Tensor>>;
  readonly tables: 'cache' | 'computed' | 'input';
  readonly runtime?: false;
}

export const f32 = (values: ArrayLike<number>, shape: readonly number[]): Tensor<'f32'> =>
  tensorFrom<'f32'>(Float32Array.from(values as number[]), { shape });
export const i64 = (values: readonly number[], shape?: readonly number[]): Tensor<'i64'> =>
  tensorFrom<'i64'>(BigInt64Array.from(values, BigInt), { shape: shape ?? [values.length] });
const scalar = (value: number): Tensor => tensorFrom(BigInt64Array.of(BigInt(value)), { shape: [] });

const END = Number.MAX_SAFE_INTEGER;
export const POSITIONS = i64([0, 1, 5, 40, 3, 2, 1, 17], [2, 4]);

/** cos and sin of positions 0 … rows - 1, `[rows, columns]`, repeated as `column` says. */
export function cache(
  spec: RopeSpec,
  rows: number,
  part: 'cos' | 'sin',
  repeat: 'none' | 'halves' | 'neighbors',
  dtype: 'f32' | 'f16' = 'f32',
): Tensor {
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const width = invFreq.length * (repeat === 'none' ? 1 : 2);
  const data = newArray(dtype, rows * width);
  for (let n = 0; n < data.length; n++) {
    const column = n % width;
    const j = repeat === 'neighbors' ? column >> 1 : column % invFreq.length;
    storeNumber(data, dtype, n, Math[part](Math.floor(n / width) * invFreq[j]!) * attentionFactor);
  }
  return tensorFrom(data, { dtype, shape: [rows, width] });
}

/** rotate_half with slices for the halves, whose ends are constant or computed. */
export function rotateHalf(g: Graph, x: string, half: string | number): string {
  const at = typeof half === 'number' ? g.constant(i64([half])) : half;
  const axes = g.constant(i64([-1]));
  const first = g.node('Slice', [x, g.constant(i64([0])), at, axes]);
  const second = g.node('Slice', [x, at, g.constant(i64([END])), axes]);
  return g.node('Concat', [g.node('Neg', [second]), first], { axis: -1 });
}

export function turn(g: Graph, x: string, cos: string, sin: string, rotated: string, more = {}): string {
  return g.node('Add', [g.node('Mul', [x, cos]), g.node('Mul', [rotated, sin])], {}, more);
}

const llama: RopeSpec = { headDim: 8, pairing: 'half', base: 10000 };

/** position_ids [batch, seq] → angles [batch, seq, pairs], as the trace of LlamaRotaryEmbedding.forward. */
function anglesByMatMul(g: Graph, spec: RopeSpec, position: string): string {
  const inv = frequenciesOf(spec).invFreq;
  const freq = g.constant(f32(inv, [1, inv.length, 1]), 'rotary_emb.inv_freq');
  const batch = g.node('Gather', [g.node('Shape', [position]), g.constant(scalar(0))], { axis: 0 });
  const target = g.node('Concat', [g.node('Unsqueeze', [batch, g.constant(i64([0]))]), g.constant(i64([-1, 1]))], {
    axis: 0,
  });
  const expanded = g.node('Expand', [
    freq,
    g.node('Where', [g.node('Equal', [target, g.constant(i64([-1, -1, -1]))]), g.constant(i64([1, 1, 1])), target]),
  ]);
  const rows = g.node('Cast', [g.node('Unsqueeze', [position, g.constant(i64([1]))])], { to: 1 });
  return g.node('Transpose', [g.node('MatMul', [g.node('Cast', [expanded], { to: 1 }), rows])], { perm: [0, 2, 1] });
}

/** `normed`: q has a norm after its heads were moved, as torch.onnx (dynamo) writes Gemma 3 of transformers 5.24.0. */
function hfComputed(normed = false): Form {
  const spec: RopeSpec = { ...llama, base: 500000, scaling: { kind: 'linear', factor: 4 }, attentionFactor: 1.25 };
  const g = new Graph();
  const hidden = g.input('hidden', 'f32', ['batch', 'seq', 24]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  const heads = g.node('Reshape', [hidden, g.constant(i64([0, 0, 3, 8]))]);
  const moved = g.node('Transpose', [heads], { perm: [0, 2, 1, 3] }, { to: normed ? 'moved' : 'q' });
  const mean = (): string => g.node('ReduceMean', [g.node('Mul', [moved, moved]), g.constant(i64([-1]))]);
  const inverse = (): string => g.node('Reciprocal', [g.node('Sqrt', [mean()])]);
  const gain = f32([1, 0.5, 2, 1.5, 0.25, 3, 1.25, 0.75], [8]);
  const x = normed ? g.node('Mul', [g.node('Mul', [moved, inverse()]), g.constant(gain)], {}, { to: 'q' }) : moved;
  const angles = anglesByMatMul(g, spec, position);
  const emb = g.node('Concat', [angles, angles], { axis: -1 });
  const [cos, sin] = ['Cos', 'Sin'].map((op) => {
    const scaled = g.node('Mul', [g.node(op, [emb]), g.constant(f32([1.25], []))]);
    return g.node('Unsqueeze', [g.node('Cast', [scaled], { to: 1 }), g.constant(i64([1]))]);
  });
  // The trace of x.shape[-1] // 2: Shape, Gather, Div, Cast, Cast, Unsqueeze.
  const size = g.node('Gather', [g.node('Shape', [x]), g.constant(scalar(3))]);
  const half = g.node('Cast', [g.node('Cast', [g.node('Div', [size, g.constant(scalar(2))])], { to: 7 })], { to: 7 });
  const rotated = rotateHalf(g, x, g.node('Unsqueeze', [half, g.constant(i64([0]))]));
  g.output(turn(g, x, cos!, sin!, rotated, { to: 'y', name: '/layers.0/self_attn/Add' }), 'f32');
  return {
    name: `halves, angles by MatMul from inv_freq, slices by Shape${normed ? ', x normed after its heads were moved' : ''}`,
    from: 'torch.onnx of LlamaRotaryEmbedding, huggingface/transformers@5dd4a63 modeling_llama.py; microsoft/onnxruntime@0d528d7 fusion_rotary_attention.py (on-the-fly path)',
    bytes: g.model(),
    x: 'q',
    y: 'y',
    shape: [2, 3, 4, 8],
    layout: 'bnsh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'computed',
    runtime: false, // x is no input of the model; the test below feeds `hidden`
  };
}

function hfCached(): Form {
  const g = new Graph();
  const x = g.input('x', 'f32', ['batch', 3, 'seq', 8]);
  const past = g.input('past_key', 'f32', ['batch', 3, 'past', 8]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  const length = (value: string): string => g.node('Gather', [g.node('Shape', [value]), g.constant(scalar(2))]);
  const total = g.node('Unsqueeze', [g.node('Add', [length(x), length(past)]), g.constant(i64([0]))]);
  const [cos, sin] = (['cos', 'sin'] as const).map((part) => {
    const table = cache(llama, 64, part, 'halves');
    const whole = g.constant(table.view([1, 1, 64, 8]), `rotary_emb.${part}_cached`);
    const cut = g.node('Slice', [whole, g.constant(i64([0])), total, g.constant(i64([2])), g.constant(i64([1]))]);
    const rows = g.node('Squeeze', [g.node('Squeeze', [cut, g.constant(i64([1]))]), g.constant(i64([0]))]);
    return g.node('Unsqueeze', [g.node('Gather', [rows, position]), g.constant(i64([1]))]);
  });
  g.output(turn(g, x, cos!, sin!, rotateHalf(g, x, 4), { to: 'y' }), 'f32');
  return {
    name: 'halves, caches cut to the length in use and gathered',
    from: 'caches cut and gathered: microsoft/onnxruntime@0d528d7 fusion_rotary_attention.py (cos_path with Squeeze, Squeeze, Slice)',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 3, 4, 8],
    layout: 'bnsh',
    spec: llama,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    inputs: { past_key: f32(new Array(2 * 3 * 50 * 8).fill(0), [2, 3, 50, 8]) },
    tables: 'cache',
  };
}

function gptJ(): Form {
  const spec: RopeSpec = { headDim: 12, rotaryDim: 8, pairing: 'interleaved', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', ['batch', 'seq', 2, 12]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  // embed_positions holds sin and cos side by side.
  const [sinTable, cosTable] = [cache(spec, 64, 'sin', 'none'), cache(spec, 64, 'cos', 'none')].map(
    (t) => t.read() as Float32Array,
  );
  const both = Float32Array.from({ length: 64 * 8 }, (_, n) =>
    n % 8 < 4 ? sinTable![(n >> 3) * 4 + (n % 8)]! : cosTable![(n >> 3) * 4 + (n % 8) - 4]!,
  );
  const rows = g.node('Gather', [g.constant(f32(both, [64, 8]), 'embed_positions'), position], { axis: 0 });
  const [sin4, cos4] = g.nodeOf('Split', [rows, g.constant(i64([4, 4]))], { axis: -1 }, { outputs: 2 });
  // repeat_interleave(2, 3): Unsqueeze, Expand, Reshape.
  const twice = (value: string): string => {
    const five = g.node('Unsqueeze', [g.node('Unsqueeze', [value, g.constant(i64([2]))]), g.constant(i64([4]))]);
    const tiled = g.node('Tile', [five, g.constant(i64([1, 1, 1, 1, 2]))]);
    return g.node('Reshape', [tiled, g.constant(i64([0, 0, 0, 8]))]);
  };
  const axes = g.constant(i64([3]));
  const part = g.node('Slice', [x, g.constant(i64([0])), g.constant(i64([8])), axes]);
  const pass = g.node('Slice', [x, g.constant(i64([8])), g.constant(i64([END])), axes]);
  const step = g.constant(i64([2]));
  const even = g.node('Slice', [part, g.constant(i64([0])), g.constant(i64([END])), axes, step]);
  const odd = g.node('Slice', [part, g.constant(i64([1])), g.constant(i64([END])), axes, step]);
  const last = g.constant(i64([-1]));
  const stack = g.node(
    'Concat',
    [g.node('Unsqueeze', [g.node('Neg', [odd]), last]), g.node('Unsqueeze', [even, last])],
    { axis: -1 },
  );
  const shape = g.node(
    'Concat',
    [g.node('Slice', [g.node('Shape', [stack]), g.constant(i64([0])), g.constant(i64([3]))]), g.constant(i64([-1]))],
    { axis: 0 },
  );
  const rotated = g.node('Reshape', [stack, shape]);
  const turned = turn(g, part, twice(cos4!), twice(sin4!), rotated);
  g.output(g.node('Concat', [turned, pass], { axis: -1 }, { to: 'y' }), 'f32');
  return {
    name: 'neighbours by steps and a stack, part of the head, sin and cos in one table',
    from: 'modeling_gptj.py (rotate_every_two, apply_rotary_pos_emb), huggingface/transformers@cb6cd7e; openvinotoolkit/openvino@16f3e84 RoPEFusionGPTJ',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 4, 2, 12],
    layout: 'bsnh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'cache',
  };
}

function glm(): Form {
  const spec: RopeSpec = { headDim: 8, rotaryDim: 4, pairing: 'interleaved', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', ['batch', 'seq', 2, 8]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  const inv = frequenciesOf(spec).invFreq;
  const angles = g.node('Mul', [
    g.node('Cast', [g.node('Unsqueeze', [position, g.constant(i64([2]))])], { to: 1 }),
    g.constant(f32(inv, [2])),
  ]);
  const [cos, sin] = ['Cos', 'Sin'].map((op) => g.node('Unsqueeze', [g.node(op, [angles]), g.constant(i64([2]))]));
  const [part, pass] = g.nodeOf('Split', [x, g.constant(i64([4, 4]))], { axis: 3 }, { outputs: 2 });
  // x.reshape(…, -1, 2)[..., 0]
  const lead = g.node('Slice', [g.node('Shape', [part!]), g.constant(i64([0])), g.constant(i64([-1]))]);
  const pairs = g.node('Reshape', [part!, g.node('Concat', [lead, g.constant(i64([-1, 2]))], { axis: 0 })]);
  const [a, b] = [0, 1].map((n) => g.node('Gather', [pairs, g.constant(scalar(n))], { axis: -1 }));
  const y0 = g.node('Sub', [g.node('Mul', [a!, cos!]), g.node('Mul', [b!, sin!])]);
  const y1 = g.node('Add', [g.node('Mul', [b!, cos!]), g.node('Mul', [a!, sin!])]);
  const last = g.constant(i64([-1]));
  const stack = g.node('Concat', [g.node('Unsqueeze', [y0, last]), g.node('Unsqueeze', [y1, last])], { axis: -1 });
  const flat = g.node('Reshape', [stack, g.constant(i64([0, 0, 0, 4]))]);
  g.output(g.node('Concat', [flat, pass!], { axis: -1 }, { to: 'y' }), 'f32');
  return {
    name: 'neighbours by Reshape and Gather, half of the head by Split',
    from: "ChatGLM's apply_rotary_pos_emb: openvinotoolkit/openvino@16f3e84 RoPEFusionChatGLM",
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 4, 2, 8],
    layout: 'bsnh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'computed',
  };
}

function splitHalves(): Form {
  const spec: RopeSpec = { headDim: 8, pairing: 'half', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f16', [2, 3, 4, 8]);
  const position = g.input('position_ids', 'i64', [2, 4]);
  const wide = g.node('Cast', [x], { to: 1 });
  const [cos, sin] = (['cos', 'sin'] as const).map((part) =>
    g.node('Unsqueeze', [
      g.node('Gather', [g.constant(cache(spec, 41, part, 'none')), position]),
      g.constant(i64([1])),
    ]),
  );
  const [a, b] = g.nodeOf('Split', [wide], { axis: -1, num_outputs: 2 }, { outputs: 2 });
  const y0 = g.node('Sub', [g.node('Mul', [a!, cos!]), g.node('Mul', [b!, sin!])]);
  const y1 = g.node('Add', [g.node('Mul', [sin!, a!]), g.node('Mul', [cos!, b!])]);
  g.output(g.node('Cast', [g.node('Concat', [y0, y1], { axis: -1 })], { to: 10 }, { to: 'y' }), 'f16');
  return {
    name: 'halves by Split, in f32 between casts',
    from: "RotaryEmbedding-23's own function body, onnx/onnx@f754691 onnx/defs/nn/defs.cc",
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 3, 4, 8],
    layout: 'bnsh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'cache',
  };
}

function neox(): Form {
  const spec: RopeSpec = { headDim: 10, rotaryDim: 6, pairing: 'half', base: 10000 };
  const g = new Graph();
  // qkv is one value with heads outside, so q is a part of the last dimension.
  const qkv = g.input('qkv', 'f32', ['batch', 2, 'seq', 30]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  const axes = g.constant(i64([3]));
  const x = g.node('Slice', [qkv, g.constant(i64([0])), g.constant(i64([10])), axes], {}, { to: 'q' });
  const part = g.node('Slice', [x, g.constant(i64([0])), g.constant(i64([6])), axes]);
  const pass = g.node('Slice', [x, g.constant(i64([6])), g.constant(i64([END])), axes]);
  const [cos, sin] = (['cos', 'sin'] as const).map((name) =>
    g.node('Unsqueeze', [
      g.node('Gather', [g.constant(cache(spec, 64, name, 'halves')), position]),
      g.constant(i64([1])),
    ]),
  );
  g.output(
    g.node('Concat', [turn(g, part, cos!, sin!, rotateHalf(g, part, 3)), pass], { axis: -1 }, { to: 'y' }),
    'f32',
  );
  return {
    name: 'halves of a part of the head, which is a part of qkv',
    from: 'modeling_gpt_neox.py, huggingface/transformers@203bf6f; microsoft/onnxscript@0b9afd9 rules/fusion/_rotary_embedding.py (partial)',
    bytes: g.model(),
    x: 'q',
    y: 'y',
    shape: [2, 2, 4, 10],
    layout: 'bnsh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'cache',
    runtime: false,
  };
}

function deepseek(): Form {
  const spec: RopeSpec = { headDim: 8, pairing: 'interleaved-to-half', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', ['batch', 2, 'seq', 8]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  const five = g.node('Reshape', [x, g.constant(i64([0, 0, 0, 4, 2]))]);
  const swapped = g.node('Transpose', [five], { perm: [0, 1, 2, 4, 3] });
  const halves = g.node('Reshape', [swapped, g.constant(i64([0, 0, 0, 8]))]);
  const angles = anglesByMatMul(g, spec, position);
  const emb = g.node('Concat', [angles, angles], { axis: -1 });
  const [cos, sin] = ['Cos', 'Sin'].map((op) => g.node('Unsqueeze', [g.node(op, [emb]), g.constant(i64([1]))]));
  g.output(turn(g, halves, cos!, sin!, rotateHalf(g, halves, 4), { to: 'y' }), 'f32');
  return {
    name: 'neighbours read, halves written',
    from: 'modeling_deepseek_v3.py (apply_rotary_pos_emb_interleave), huggingface/transformers@00b676f',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 2, 4, 8],
    layout: 'bnsh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'computed',
  };
}

function mrope(): Form {
  const spec: RopeSpec = { headDim: 12, pairing: 'half', base: 10000, axes: { rule: 'sections', sections: [1, 2, 3] } };
  const g = new Graph();
  const x = g.input('x', 'f32', ['batch', 2, 'seq', 12]);
  const position = g.input('position_ids', 'i64', [3, 'batch', 'seq']);
  const inv = frequenciesOf({ headDim: 12, pairing: 'half', base: 10000 }).invFreq;
  const four = g.node('Cast', [g.node('Unsqueeze', [position, g.constant(i64([3]))])], { to: 1 });
  const angles = g.node('Mul', [four, g.constant(f32(inv, [6]))]);
  const emb = g.node('Concat', [angles, angles], { axis: -1 });
  const [cos, sin] = ['Cos', 'Sin'].map((op) => {
    const parts = g.nodeOf(
      'Split',
      [g.node(op, [emb]), g.constant(i64([1, 2, 3, 1, 2, 3]))],
      { axis: -1 },
      { outputs: 6 },
    );
    const chosen = parts.map((part, n) => g.node('Gather', [part, g.constant(scalar(n % 3))], { axis: 0 }));
    return g.node('Unsqueeze', [g.node('Concat', chosen, { axis: -1 }), g.constant(i64([1]))]);
  });
  g.output(turn(g, x, cos!, sin!, rotateHalf(g, x, 6), { to: 'y' }), 'f32');
  const ids = i64([...[0, 1, 2, 3, 4, 5, 6, 7], ...[0, 1, 1, 9, 9, 9, 2, 2], ...[5, 4, 3, 2, 1, 0, 30, 20]], [3, 2, 4]);
  return {
    name: 'three position axes by sections',
    from: 'modeling_qwen2_vl.py (apply_multimodal_rotary_pos_emb), huggingface/transformers@928b556',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 2, 4, 12],
    layout: 'bnsh',
    spec,
    positions: { name: 'position_ids', tensor: ids },
    means: ids,
    tables: 'computed',
  };
}

function einsumRange(): Form {
  const spec: RopeSpec = { headDim: 8, pairing: 'half', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', ['heads', 'seq', 8]);
  const seq = g.node('Gather', [g.node('Shape', [x]), g.constant(scalar(1))]);
  const range = g.node('Cast', [g.node('Range', [g.constant(scalar(0)), seq, g.constant(scalar(1))])], { to: 1 });
  const angles = g.node('Einsum', [range, g.constant(f32(frequenciesOf(spec).invFreq, [4]))], { equation: 'i,j->ij' });
  const emb = g.node('Concat', [angles, angles], { axis: -1 });
  const matrix = new Float32Array(64);
  for (let j = 0; j < 4; j++) {
    matrix[(j + 4) * 8 + j] = -1;
    matrix[j * 8 + j + 4] = 1;
  }
  const rotated = g.node('MatMul', [x, g.constant(f32(matrix, [8, 8]))]);
  g.output(turn(g, x, g.node('Cos', [emb]), g.node('Sin', [emb]), rotated, { to: 'y' }), 'f32');
  return {
    name: 'positions counted in the graph, rotate_half as a matrix of signs, heads without batch',
    from: 'made up: rotate_half by a matrix, for accelerators without slices',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [3, 5, 8],
    layout: 'nsh',
    spec,
    positions: undefined,
    means: i64([0, 1, 2, 3, 4]),
    tables: 'computed',
  };
}

function tableInputs(): Form {
  const spec: RopeSpec = { headDim: 8, pairing: 'half', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', [1, 3, 4, 8]);
  const [cos, sin] = ['cos', 'sin'].map((name) => g.input(name, 'f32', [1, 1, 4, 8]));
  g.output(turn(g, x, cos!, sin!, rotateHalf(g, x, 4), { to: 'y' }), 'f32');
  const rows = (part: 'cos' | 'sin'): Tensor => cache(spec, 4, part, 'halves').view([1, 1, 4, 8]);
  return {
    name: 'cos and sin are inputs of the graph',
    from: 'static graphs, which take cos and sin from outside: the pattern of microsoft/onnxscript@0b9afd9 rules/fusion/_rotary_embedding.py with free cos and sin',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [1, 3, 4, 8],
    layout: 'bnsh',
    spec,
    positions: undefined,
    means: i64([0, 1, 2, 3]),
    inputs: { cos: rows('cos'), sin: rows('sin') },
    tables: 'input',
  };
}

function backward(): Form {
  const spec: RopeSpec = { headDim: 8, pairing: 'half', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', [2, 3, 4, 8]);
  const position = g.input('position_ids', 'i64', [2, 4]);
  const [cos, sin] = (['cos', 'sin'] as const).map((part) =>
    g.node('Unsqueeze', [
      g.node('Gather', [g.constant(cache(spec, 41, part, 'halves')), position]),
      g.constant(i64([1])),
    ]),
  );
  g.output(
    g.node('Sub', [g.node('Mul', [x, cos!]), g.node('Mul', [rotateHalf(g, x, 4), sin!])], {}, { to: 'y' }),
    'f32',
  );
  return {
    name: 'backward',
    from: 'the gradient of the first form',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 3, 4, 8],
    layout: 'bnsh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'cache',
  };
}

function standardNode(rank: 3 | 4): Form {
  const spec: RopeSpec =
    rank === 4
      ? { headDim: 8, pairing: 'half', base: 10000 }
      : { headDim: 8, rotaryDim: 4, pairing: 'interleaved', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', rank === 4 ? ['batch', 3, 'seq', 8] : ['batch', 'seq', 24]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  const [cos, sin] = (['cos', 'sin'] as const).map((part) =>
    g.constant(cache(spec, 64, part, 'none'), `${part}_cache`),
  );
  const attributes: Record<string, number> =
    rank === 4 ? {} : { interleaved: 1, rotary_embedding_dim: 4, num_heads: 3 };
  g.output(g.node('RotaryEmbedding', [x, cos!, sin!, position], attributes, { to: 'y', name: 'rope' }), 'f32');
  return {
    name: `RotaryEmbedding-23, ${rank === 4 ? '4-D' : '3-D, part of the head, interleaved'}`,
    from: 'onnx/onnx@f754691 onnx/defs/nn/defs.cc',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: rank === 4 ? [2, 3, 4, 8] : [2, 4, 24],
    layout: rank === 4 ? 'bnsh' : 'bs(nh)',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'cache',
  };
}

function standardGathered(): Form {
  const spec: RopeSpec = { headDim: 8, pairing: 'half', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', ['batch', 3, 'seq', 8]);
  const position = g.input('position_ids', 'i64', ['batch', 'seq']);
  const [cos, sin] = (['cos', 'sin'] as const).map((part) =>
    g.node('Gather', [g.constant(cache(spec, 64, part, 'none')), position]),
  );
  g.output(g.node('RotaryEmbedding', [x, cos!, sin!], {}, { to: 'y' }), 'f32');
  return {
    name: 'RotaryEmbedding-23 without position_ids, caches gathered before',
    from: 'onnx/onnx@f754691 onnx/defs/nn/defs.cc; what microsoft/onnxscript@0b9afd9 makes of the first form',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 3, 4, 8],
    layout: 'bnsh',
    spec,
    positions: { name: 'position_ids', tensor: POSITIONS },
    means: POSITIONS,
    tables: 'cache',
  };
}

function runtimeNode(offset: boolean): Form {
  const spec: RopeSpec = offset
    ? { headDim: 8, pairing: 'interleaved', base: 10000 }
    : { headDim: 8, rotaryDim: 4, pairing: 'half', base: 10000 };
  const g = new Graph();
  const x = g.input('x', 'f32', ['batch', 'seq', 24]);
  const position = g.input('position_ids', 'i64', offset ? [1] : ['batch', 'seq']);
  const [cos, sin] = (['cos', 'sin'] as const).map((part) => g.constant(cache(spec, 64, part, 'none')));
  const attributes: Record<string, number> = offset ? { interleaved: 1 } : { rotary_embedding_dim: 4, num_heads: 3 };
  g.output(
    g.node('RotaryEmbedding', [x, position, cos!, sin!], attributes, { to: 'y', domain: 'com.microsoft' }),
    'f32',
  );
  return {
    name: `com.microsoft.RotaryEmbedding, ${offset ? 'position_ids an offset' : 'part of the head'}`,
    from: 'microsoft/onnxruntime@076ffcd contrib_ops/cpu/bert/rotary_embedding_helper.h',
    bytes: g.model(),
    x: 'x',
    y: 'y',
    shape: [2, 4, 24],
    layout: 'bs(nh)',
    spec,
    positions: { name: 'position_ids', tensor: offset ? i64([7]) : POSITIONS },
    means: offset ? i64([7, 8, 9, 10]) : POSITIONS,
    tables: 'cache',
  };
}

/** All forms. */
export const FORMS: readonly Form[] = [
  hfComputed(),
  hfCached(),
  gptJ(),
  glm(),
  splitHalves(),
  neox(),
  deepseek(),
  mrope(),
  einsumRange(),
  tableInputs(),
  backward(),
  standardNode(4),
  standardNode(3),
  standardGathered(),
  runtimeNode(false),
  runtimeNode(true),
  hfComputed(true),
];
