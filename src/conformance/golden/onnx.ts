/**
 * Golden cases as ONNX graphs of standard operators, opset 23: what a backend-test folder holds.
 *
 * RoPE becomes RotaryEmbedding with caches that were gathered by position, so that scaling, magnitude, axes and direction are in the caches.
 * 16-bit data is cast to f32 and back, as the golden outputs are rounded once; ONNX's own operators would round in between.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/; https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md
 */
import type { FloatDtype } from '../../core/dtypes.js';
import { countElements, walk } from '../../core/shape.js';
import { type Tensor, tensorFrom } from '../../core/tensor.js';
import type { OnnxAttribute, OnnxModel } from '../../formats/onnx.js';
import { GraphBuilder } from '../../graph/builder.js';
import type { RopePlan } from '../../ops/rope/plan.js';
import { referenceRunner } from '../../reference/index.js';
import { bindGolden, type GoldenCase, type GoldenRopePart } from './case.js';

/** A graph, and the tensors that go in and must come out. */
export interface OnnxTest {
  readonly model: OnnxModel;
  /** In the graph's order: input_0.pb, input_1.pb, … `golden` names the case's own tensor that this is. */
  readonly inputs: readonly { readonly name: string; readonly tensor: Tensor; readonly golden?: string }[];
  readonly outputs: readonly { readonly name: string; readonly tensor: Tensor; readonly golden: string }[];
}

/** A graph while it grows, and the case's tensors that go in and out. */
class Graph extends GraphBuilder {
  readonly given: { name: string; tensor: Tensor; golden?: string }[] = [];
  readonly wanted: { name: string; tensor: Tensor; golden: string }[] = [];

  constructor(readonly c: GoldenCase) {
    super();
  }

  /** A tensor of the case as an input, perhaps of another shape. */
  take(golden: string, shape?: readonly number[]): string {
    const whole = this.c.inputs.get(golden)!;
    const tensor = shape ? whole.view(shape) : whole;
    this.given.push({ name: golden, tensor, golden });
    return this.input(golden, tensor.dtype, tensor.shape);
  }

  /** An input that the case has not: a cache. */
  extra(name: string, tensor: Tensor): string {
    this.given.push({ name, tensor });
    return this.input(name, tensor.dtype, tensor.shape);
  }

  /** Names a value as an output of the case, perhaps of another shape. */
  give(value: string, golden: string, shape?: readonly number[]): void {
    const whole = this.c.outputs.get(golden)!;
    const tensor = shape ? whole.view(shape) : whole;
    this.wanted.push({ name: golden, tensor, golden });
    this.output(value, golden, tensor.dtype, tensor.shape);
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
  return reason ?? { model: graph.model(c.id, producer, c.about), inputs: graph.given, outputs: graph.wanted };
}

function build(g: Graph): string | undefined {
  switch (g.c.op) {
    case 'rope':
      return buildRope(g);
    case 'add': {
      const dtype = g.c.inputs.get('a')!.dtype;
      g.give(g.narrow(g.add('Add', [g.widen(g.take('a'), dtype), g.widen(g.take('b'), dtype)]), dtype), 'c');
      return undefined;
    }
    case 'swiglu': {
      const dtype = g.c.inputs.get('gate')!.dtype;
      const gate = g.widen(g.take('gate'), dtype);
      const silu = g.add('Mul', [gate, g.add('Sigmoid', [gate])]);
      g.give(g.narrow(g.add('Mul', [g.widen(g.take('up'), dtype), silu]), dtype), 'out');
      return undefined;
    }
    case 'rms_norm': {
      const dtype = g.c.inputs.get('x')!.dtype;
      if (dtype === 'f64') return 'RMSNormalization computes in float32';
      const x = g.widen(g.take('x'), dtype);
      g.give(g.narrow(rmsNorm(g, x, g.widen(g.take('weight'), dtype), g.c.attributes.eps as number), dtype), 'y');
      return undefined;
    }
    case 'linear':
      return buildLinear(g);
    case 'self_attention':
      return buildAttention(g);
    case 'argmax':
      return buildArgmax(g);
    case 'embedding':
      g.give(g.add('Gather', [g.take('weight'), g.take('index')], { axis: { i: 0 } }), 'out');
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
  return g.take(part.x, folded ? [batch, seq, heads * headDim] : undefined);
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
    g.give(g.narrow(x, tensor.dtype), part.out, folded ? [batch, seq, heads * headDim] : undefined);
    return;
  }
  const turned: OnnxAttribute = { ints: [0, 2, 1, 3] };
  if (part.weight !== undefined) x = rmsNorm(g, x, g.widen(g.take(part.weight), tensor.dtype), part.eps ?? 0);
  if (layout === 'bsnh') x = g.add('Transpose', [x], { perm: turned });
  if (rotaryOffset > 0) {
    const rest = headDim - rotaryOffset - rotaryDim;
    const sizes = [rotaryOffset, rotaryDim, ...(rest > 0 ? [rest] : [])];
    const [before, window, ...after] = g.addMany('Split', [x, g.integers(`${part.out}_split`, sizes)], { axis: { i: 3 } }, sizes.length);
    const turnedWindow = g.add('RotaryEmbedding', [window!, cos, sin], attributes(rotaryDim));
    x = g.add('Concat', [before!, turnedWindow, ...after], { axis: { i: 3 } });
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
  g.give(g.narrow(x, tensor.dtype), part.out);
}

function buildLinear(g: Graph): string | undefined {
  const { c } = g;
  if (c.attributes.format !== undefined) return `ONNX has no ${String(c.attributes.format)} blocks`;
  const x = c.inputs.get('x')!;
  const { dtype } = x;
  const weight = (): string => g.widen(g.take('weight'), dtype);
  if (x.rank === 2) {
    const operands = [g.widen(g.take('x'), dtype), weight()];
    if (c.inputs.has('bias')) operands.push(g.widen(g.take('bias'), dtype));
    g.give(g.narrow(g.add('Gemm', operands, { transB: { i: 1 } }), dtype), 'y');
    return undefined;
  }
  let y = g.add('MatMul', [g.widen(g.take('x'), dtype), g.add('Transpose', [weight()], { perm: { ints: [1, 0] } })]);
  if (c.inputs.has('bias')) y = g.add('Add', [y, g.widen(g.take('bias'), dtype)]);
  g.give(g.narrow(y, dtype), 'y');
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
      g.take('q', [batch, seq, heads * d]),
      g.take('k', [batch, total, kvHeads * d]),
      g.take('v', [batch, total, kvHeads * dv]),
    ];
    const y = g.add('Attention', [...values.map((name) => g.widen(name, dtype)), ...(mask ? [mask] : [])], {
      q_num_heads: { i: heads },
      kv_num_heads: { i: kvHeads },
      scale: { f: scale },
    });
    g.give(g.narrow(y, dtype), 'attn_val', [batch, seq, heads * dv]);
    return undefined;
  }
  // Attention-23 adds the mask before it caps, which would let masked keys back in: spelled out instead, the cap first.
  const headsFirst = (name: string, shape: readonly number[], perm: readonly number[]): string =>
    g.add('Transpose', [g.widen(g.take(name, shape), dtype)], { perm: { ints: perm } });
  const group = g.integers(
    'kv_head_of',
    Array.from({ length: heads }, (_, h) => Math.floor(h / (heads / kvHeads))),
  );
  const spread = (value: string): string => (heads === kvHeads ? value : g.add('Gather', [value, group], { axis: { i: 1 } }));
  const number = (name: string, value: number): string => g.scalar(name, dtype === 'f64' ? 'f64' : 'f32', value);
  const qs = headsFirst('q', [batch, seq, heads, d], [0, 2, 1, 3]);
  const ks = spread(headsFirst('k', [batch, total, kvHeads, d], [0, 2, 3, 1]));
  const vs = spread(headsFirst('v', [batch, total, kvHeads, dv], [0, 2, 1, 3]));
  const scores = g.add('Mul', [g.add('MatMul', [qs, ks]), number('scale_over_cap', scale / softcap)]);
  const capped = g.add('Mul', [g.add('Tanh', [scores]), number('cap', softcap)]);
  const weights = g.add('Softmax', [mask ? g.add('Add', [capped, mask]) : capped], { axis: { i: -1 } });
  const y = g.add('Transpose', [g.add('MatMul', [weights, vs])], { perm: { ints: [0, 2, 1, 3] } });
  g.give(g.narrow(y, dtype), 'attn_val', [batch, seq, heads, dv]);
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
  const input = g.take('values');
  // bf16 is no type of ArgMax in every runtime; a cast to f32 keeps order and ties.
  const index = g.add('ArgMax', [g.widen(input, values.dtype)], { axis: { i: -1 }, keepdims: { i: 1 }, select_last_index: { i: 0 } });
  const picked = g.add('GatherElements', [input, index], { axis: { i: -1 } });
  g.give(picked, 'max_val');
  g.give(g.c.outputs.get('max_idx')!.dtype === 'i32' ? g.cast(index, 'i32') : index, 'max_idx');
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
  const flat = g.add('Gather', [g.take('x', [countElements(g.c.inputs.get('x')!.shape)]), g.integers('x_places', places('x'))], {
    axis: { i: 0 },
  });
  const y = g.add('ScatterElements', [g.take('y_initial', [initial.size]), g.integers('y_places', places('y')), flat], { axis: { i: 0 } });
  g.give(y, 'y', [initial.size]);
  return undefined;
}
