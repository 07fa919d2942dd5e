/**
 * Golden cases as ONNX graphs of standard operators, opset 23: what a backend-test folder holds.
 *
 * RoPE becomes RotaryEmbedding with caches that were gathered by position, so that scaling, magnitude, axes and direction are in the caches.
 * 16-bit data is cast to f32 and back, as the golden outputs are rounded once; ONNX's own operators would round in between.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/; https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md
 */
import type { Dtype, FloatDtype } from '../../core/dtypes.js';
import { countElements, walk } from '../../core/shape.js';
import { type Tensor, tensorFrom } from '../../core/tensor.js';
import { type OnnxAttribute, type OnnxModel, type OnnxNode, type OnnxValue, onnxDataType } from '../../formats/onnx.js';
import type { RopePlan } from '../../ops/rope/plan.js';
import { referenceRunner } from '../../reference/index.js';
import { bindGolden, type GoldenCase, type GoldenRopePart } from './case.js';

/** RotaryEmbedding, RMSNormalization and Attention as they came with opset 23. */
const OPSET = 23;
/** The IR version that goes with opset 23. */
const IR_VERSION = 11;

/** A graph, and the tensors that go in and must come out. */
export interface OnnxTest {
  readonly model: OnnxModel;
  /** In the graph's order: input_0.pb, input_1.pb, … `golden` names the case's own tensor that this is. */
  readonly inputs: readonly { readonly name: string; readonly tensor: Tensor; readonly golden?: string }[];
  readonly outputs: readonly { readonly name: string; readonly tensor: Tensor; readonly golden: string }[];
}

/** A graph while it grows. */
class Graph {
  readonly nodes: OnnxNode[] = [];
  readonly initializers = new Map<string, Tensor>();
  readonly inputs: { name: string; tensor: Tensor; golden?: string }[] = [];
  readonly outputs: { name: string; tensor: Tensor; golden: string }[] = [];
  private count = 0;

  constructor(readonly c: GoldenCase) {}

  /** A tensor of the case as an input, perhaps of another shape. */
  input(golden: string, shape?: readonly number[]): string {
    const tensor = this.c.inputs.get(golden)!;
    this.inputs.push({ name: golden, tensor: shape ? tensor.view(shape) : tensor, golden });
    return golden;
  }

  /** An input that the case has not: a cache. */
  extra(name: string, tensor: Tensor): string {
    this.inputs.push({ name, tensor });
    return name;
  }

  constant(name: string, tensor: Tensor): string {
    this.initializers.set(name, tensor);
    return name;
  }

  integers(name: string, values: ArrayLike<number>): string {
    return this.constant(name, tensorFrom(BigInt64Array.from(Array.from(values), BigInt)));
  }

  add(opType: string, inputs: readonly string[], attributes: Readonly<Record<string, OnnxAttribute>> = {}, outputs = 1): string {
    const names = Array.from({ length: outputs }, (_, n) => `v${this.count}${outputs > 1 ? `_${n}` : ''}`);
    this.count++;
    this.nodes.push({ opType, inputs, outputs: names, attributes });
    return names[0]!;
  }

  /** 16-bit floats as f32, so that what follows rounds once at the end. */
  widen(value: string, dtype: Dtype): string {
    return dtype === 'f16' || dtype === 'bf16' ? this.cast(value, 'f32') : value;
  }

  narrow(value: string, dtype: Dtype): string {
    return dtype === 'f16' || dtype === 'bf16' ? this.cast(value, dtype) : value;
  }

  cast(value: string, to: Dtype): string {
    return this.add('Cast', [value], { to: { i: onnxDataType(to) } });
  }

  /** Names a value as an output of the case, perhaps of another shape. */
  output(value: string, golden: string, shape?: readonly number[]): void {
    const node = this.nodes.at(-1)!;
    // The last node writes the output itself; any other value is handed on by Identity.
    if (node.outputs.includes(value))
      this.nodes[this.nodes.length - 1] = { ...node, outputs: node.outputs.map((o) => (o === value ? golden : o)) };
    else this.nodes.push({ opType: 'Identity', inputs: [value], outputs: [golden] });
    const tensor = this.c.outputs.get(golden)!;
    this.outputs.push({ name: golden, tensor: shape ? tensor.view(shape) : tensor, golden });
  }

  done(producer: string): OnnxTest {
    const value = ({ name, tensor }: { name: string; tensor: Tensor }): OnnxValue => ({ name, dtype: tensor.dtype, shape: tensor.shape });
    const model = {
      name: this.c.id,
      doc: this.c.about,
      opset: OPSET,
      irVersion: IR_VERSION,
      producer,
      inputs: this.inputs.map(value),
      outputs: this.outputs.map(value),
      initializers: this.initializers,
      nodes: this.nodes,
    };
    return { model, inputs: this.inputs, outputs: this.outputs };
  }
}

/**
 * Expresses a case in ONNX.
 *
 * @param c - the case
 * @param producer - the program, for the model
 * @returns the test, or the reason why ONNX cannot express it
 */
export function onnxTestOf(c: GoldenCase, producer: string): OnnxTest | string {
  const graph = new Graph(c);
  const reason = build(graph);
  return reason ?? graph.done(producer);
}

function build(g: Graph): string | undefined {
  switch (g.c.op) {
    case 'rope':
      return buildRope(g);
    case 'add': {
      const dtype = g.c.inputs.get('a')!.dtype;
      g.output(g.narrow(g.add('Add', [g.widen(g.input('a'), dtype), g.widen(g.input('b'), dtype)]), dtype), 'c');
      return undefined;
    }
    case 'swiglu': {
      const dtype = g.c.inputs.get('gate')!.dtype;
      const gate = g.widen(g.input('gate'), dtype);
      const silu = g.add('Mul', [gate, g.add('Sigmoid', [gate])]);
      g.output(g.narrow(g.add('Mul', [g.widen(g.input('up'), dtype), silu]), dtype), 'out');
      return undefined;
    }
    case 'rms_norm': {
      const dtype = g.c.inputs.get('x')!.dtype;
      if (dtype === 'f64') return 'RMSNormalization computes in float32';
      const x = g.widen(g.input('x'), dtype);
      g.output(g.narrow(rmsNorm(g, x, g.widen(g.input('weight'), dtype), g.c.attributes.eps as number), dtype), 'y');
      return undefined;
    }
    case 'linear':
      return buildLinear(g);
    case 'self_attention':
      return buildAttention(g);
    case 'argmax':
      return buildArgmax(g);
    case 'embedding':
      g.output(g.add('Gather', [g.input('weight'), g.input('index')], { axis: { i: 0 } }), 'out');
      return undefined;
    case 'rearrange':
      return buildRearrange(g);
  }
}

function rmsNorm(g: Graph, x: string, weight: string, eps: number): string {
  return g.add('RMSNormalization', [x, weight], { axis: { i: -1 }, epsilon: { f: eps } });
}

function buildRope(g: Graph): string | undefined {
  const { c } = g;
  const rope = c.rope!;
  if (rope.parts.some((part) => part.cache !== undefined)) return 'RotaryEmbedding does not write into a KV cache';
  if (rope.parts.some((part) => c.inputs.get(part.x)!.dtype === 'f64')) return 'RotaryEmbedding takes no float64';
  const bound = bindGolden(c, referenceRunner());
  const call = bound.plan as Extract<typeof bound.plan, { op: 'rope' }>;
  const [batch] = call.parts[0]!.x.shape as [number];
  // x first, then the caches, as the standard has them; further parts after those.
  const xs = rope.parts.map((part, p) => (p === 0 ? partInput(g, part) : undefined));
  const caches = cachesOf(g, call.plan, batch);
  for (const [p, part] of rope.parts.entries()) buildPart(g, part, xs[p] ?? partInput(g, part), caches, call.plan);
  return undefined;
}

/** Whether a part needs its heads as a dimension of their own: something beside the leading dimensions of each head is touched. */
function needsFour(g: Graph, part: GoldenRopePart): boolean {
  const { spec } = g.c.rope!;
  return (spec.rotaryOffset ?? 0) > 0 || part.weight !== undefined || spec.pairing === 'interleaved-to-half';
}

function partInput(g: Graph, part: GoldenRopePart): string {
  const x = g.c.inputs.get(part.x)!;
  const [batch, seq, heads, headDim] = x.shape as [number, number, number, number];
  const folded = g.c.rope!.layout === 'bsnh' && !needsFour(g, part);
  return g.input(part.x, folded ? [batch, seq, heads * headDim] : undefined);
}

/** cos and sin `[batch, seq, pairs]`, a row for each token: without position_ids the operator takes them so. */
function cachesOf(g: Graph, plan: RopePlan, batch: number): [cos: string, sin: string] {
  const { table, seqLen } = plan;
  const gathered = (values: ArrayLike<number>): Tensor => {
    const data = new Float32Array(batch * seqLen * table.pairs);
    for (let n = 0; n < batch * seqLen; n++) {
      const row = plan.tableRows[plan.batch === undefined ? n % seqLen : n]! * table.pairs;
      for (let j = 0; j < table.pairs; j++) data[n * table.pairs + j] = values[row + j]!;
    }
    return tensorFrom(data, { shape: [batch, seqLen, table.pairs] });
  };
  return [g.extra('cos_cache', gathered(table.cos)), g.extra('sin_cache', gathered(table.sin))];
}

function buildPart(g: Graph, part: GoldenRopePart, input: string, [cos, sin]: readonly [string, string], plan: RopePlan): void {
  const { spec, layout } = g.c.rope!;
  const { headDim, rotaryDim, rotaryOffset } = plan;
  const tensor = g.c.inputs.get(part.x)! as Tensor<FloatDtype>;
  const [batch, seq, heads] = tensor.shape as [number, number, number];
  const interleaved = plan.read.step === 2 ? 1 : 0;
  let x = g.widen(input, tensor.dtype);
  const attributes = (dim: number): Record<string, OnnxAttribute> => ({
    interleaved: { i: interleaved },
    ...(rotaryDim < dim ? { rotary_embedding_dim: { i: rotaryDim } } : {}),
  });
  if (!needsFour(g, part)) {
    const folded = layout === 'bsnh';
    x = g.add('RotaryEmbedding', [x, cos, sin], { ...attributes(headDim), ...(folded ? { num_heads: { i: heads } } : {}) });
    g.output(g.narrow(x, tensor.dtype), part.out, folded ? [batch, seq, heads * headDim] : undefined);
    return;
  }
  const turned: OnnxAttribute = { ints: [0, 2, 1, 3] };
  if (part.weight !== undefined) x = rmsNorm(g, x, g.widen(g.input(part.weight), tensor.dtype), part.eps ?? 0);
  if (layout === 'bsnh') x = g.add('Transpose', [x], { perm: turned });
  if (rotaryOffset > 0) {
    const rest = headDim - rotaryOffset - rotaryDim;
    const sizes = [rotaryOffset, rotaryDim, ...(rest > 0 ? [rest] : [])];
    const first = g.add('Split', [x, g.integers(`${part.out}_split`, sizes)], { axis: { i: 3 } }, sizes.length);
    const at = (n: number): string => first.replace(/_0$/, `_${n}`);
    const middle = g.add('RotaryEmbedding', [at(1), cos, sin], attributes(rotaryDim));
    x = g.add('Concat', [at(0), middle, ...(rest > 0 ? [at(2)] : [])], { axis: { i: 3 } });
  } else x = g.add('RotaryEmbedding', [x, cos, sin], attributes(headDim));
  if (spec.pairing === 'interleaved-to-half') {
    // The operator writes where it reads: a Gather takes each element to where the pairing writes it.
    const from = Array.from({ length: headDim }, (_, i) => i);
    for (let j = 0; j < rotaryDim / 2; j++) {
      for (const k of [0, 1])
        from[rotaryOffset + j * plan.write.step + k * plan.write.gap] = rotaryOffset + j * plan.read.step + k * plan.read.gap;
    }
    x = g.add('Gather', [x, g.integers(`${part.out}_order`, from)], { axis: { i: 3 } });
  }
  if (layout === 'bsnh') x = g.add('Transpose', [x], { perm: turned });
  g.output(g.narrow(x, tensor.dtype), part.out);
}

function buildLinear(g: Graph): string | undefined {
  const { c } = g;
  if (c.attributes.format !== undefined) return `ONNX has no ${String(c.attributes.format)} blocks`;
  const x = c.inputs.get('x')!;
  const { dtype } = x;
  const weight = (): string => g.widen(g.input('weight'), dtype);
  if (x.rank === 2) {
    const operands = [g.widen(g.input('x'), dtype), weight()];
    if (c.inputs.has('bias')) operands.push(g.widen(g.input('bias'), dtype));
    g.output(g.narrow(g.add('Gemm', operands, { transB: { i: 1 } }), dtype), 'y');
    return undefined;
  }
  let y = g.add('MatMul', [g.widen(g.input('x'), dtype), g.add('Transpose', [weight()], { perm: { ints: [1, 0] } })]);
  if (c.inputs.has('bias')) y = g.add('Add', [y, g.widen(g.input('bias'), dtype)]);
  g.output(g.narrow(y, dtype), 'y');
  return undefined;
}

function buildAttention(g: Graph): string | undefined {
  const { c } = g;
  const q = c.inputs.get('q')!;
  const v = c.inputs.get('v')!;
  const { dtype } = q;
  const [seq, heads, d] = q.shape.slice(-3) as [number, number, number];
  const [total, kvHeads, dv] = v.shape.slice(-3) as [number, number, number];
  const batch = q.rank === 4 ? q.shape[0]! : 1;
  const { scale, softcap, causal } = c.attributes as { scale: number; softcap?: number; causal?: boolean };
  const mask = causal === false ? undefined : g.constant('attn_mask', maskOf(c, seq, total));
  if (softcap === undefined) {
    const values = [
      g.input('q', [batch, seq, heads * d]),
      g.input('k', [batch, total, kvHeads * d]),
      g.input('v', [batch, total, kvHeads * dv]),
    ];
    const y = g.add('Attention', [...values.map((name) => g.widen(name, dtype)), ...(mask ? [mask] : [])], {
      q_num_heads: { i: heads },
      kv_num_heads: { i: kvHeads },
      scale: { f: scale },
    });
    g.output(g.narrow(y, dtype), 'attn_val', [batch, seq, heads * dv]);
    return undefined;
  }
  // Attention-23 adds the mask before it caps, which would let masked keys back in: spelled out instead, the cap first.
  const headsFirst = (name: string, shape: readonly number[], perm: readonly number[]): string =>
    g.add('Transpose', [g.widen(g.input(name, shape), dtype)], { perm: { ints: perm } });
  const group = g.integers(
    'kv_head_of',
    Array.from({ length: heads }, (_, h) => Math.floor(h / (heads / kvHeads))),
  );
  const spread = (value: string): string => (heads === kvHeads ? value : g.add('Gather', [value, group], { axis: { i: 1 } }));
  const number = (name: string, value: number): string =>
    g.constant(name, tensorFrom(dtype === 'f64' ? Float64Array.of(value) : Float32Array.of(value), { shape: [] }));
  const qs = headsFirst('q', [batch, seq, heads, d], [0, 2, 1, 3]);
  const ks = spread(headsFirst('k', [batch, total, kvHeads, d], [0, 2, 3, 1]));
  const vs = spread(headsFirst('v', [batch, total, kvHeads, dv], [0, 2, 1, 3]));
  const scores = g.add('Mul', [g.add('MatMul', [qs, ks]), number('scale_over_cap', scale / softcap)]);
  const capped = g.add('Mul', [g.add('Tanh', [scores]), number('cap', softcap)]);
  const weights = g.add('Softmax', [mask ? g.add('Add', [capped, mask]) : capped], { axis: { i: -1 } });
  const y = g.add('Transpose', [g.add('MatMul', [weights, vs])], { perm: { ints: [0, 2, 1, 3] } });
  g.output(g.narrow(y, dtype), 'attn_val', [batch, seq, heads, dv]);
  return undefined;
}

/** 0 where query i sees key t, −∞ where it does not: the past's length is in it, which is_causal leaves open. */
function maskOf(c: GoldenCase, seq: number, total: number): Tensor {
  const window = c.attributes.window as number | undefined;
  const double = c.inputs.get('q')!.dtype === 'f64';
  const data = double ? new Float64Array(seq * total) : new Float32Array(seq * total);
  for (let i = 0; i < seq; i++) {
    const position = total - seq + i;
    for (let t = 0; t < total; t++) {
      const seen = t <= position && (window === undefined || t > position - window);
      data[i * total + t] = seen ? 0 : -Infinity;
    }
  }
  return tensorFrom(data, { shape: [seq, total] });
}

function buildArgmax(g: Graph): string | undefined {
  const values = g.c.inputs.get('values')!;
  if ((values.readNumbers() as Float64Array).some(Number.isNaN)) return 'ArgMax says nothing of NaN';
  const input = g.input('values');
  // bf16 is no type of ArgMax in every runtime; a cast to f32 keeps order and ties.
  const index = g.add('ArgMax', [g.widen(input, values.dtype)], { axis: { i: -1 }, keepdims: { i: 1 }, select_last_index: { i: 0 } });
  const picked = g.add('GatherElements', [input, index], { axis: { i: -1 } });
  g.output(picked, 'max_val');
  g.output(g.c.outputs.get('max_idx')!.dtype === 'i32' ? g.cast(index, 'i32') : index, 'max_idx');
  return undefined;
}

/** Any layout: the elements of x by their places, scattered to their places in y. */
function buildRearrange(g: Graph): string | undefined {
  const places = (name: 'x' | 'y'): number[] => {
    const layout = g.c.attributes[name] as unknown as { shape: number[]; strides: number[]; offset: number };
    const list: number[] = [];
    walk(layout, (at) => list.push(at));
    return list;
  };
  const initial = g.c.inputs.get('y_initial')!;
  const flat = g.add('Gather', [g.input('x', [countElements(g.c.inputs.get('x')!.shape)]), g.integers('x_places', places('x'))], {
    axis: { i: 0 },
  });
  const y = g.add('ScatterElements', [g.input('y_initial', [initial.size]), g.integers('y_places', places('y')), flat], { axis: { i: 0 } });
  g.output(y, 'y', [initial.size]);
  return undefined;
}
