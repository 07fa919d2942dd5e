/**
 * The operators of the form `contrib`: those of ONNX Runtime's domain com.microsoft, where they exist.
 *
 * @module
 * @see https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
 */
import type { WeightPlan } from '@ropewalk/model/internal';
import type { Chosen } from '@ropewalk/onnx/internal';
import { angleConstants } from '@ropewalk/onnx/internal';
import { planRope, type RopeSpec } from 'ropewalk';
import type { AttentionCall, DecoderOperators, Heads } from './operators.js';
import { asGiven, tokensFirst } from './padding.js';
import { attention, gemm, halvesOf, portableOperators, present, scaled, tablesOf, withOffsets } from './portable.js';
import { alike, blocksOf, type DecoderScope, joined, type Matrix } from './scope.js';

const DOMAIN = 'com.microsoft';

export function contribOperators(s: DecoderScope): DecoderOperators {
  const { b, config } = s;
  const portable = portableOperators(s);
  return {
    ...portable,
    // If a table has three dimensions, ONNX Runtime 1.30 gathers wrong rows.
    rows: (ids, table) =>
      blocksOf(table) && table.shape.length === 2 ? gatherBlocks(s, ids, table) : portable.rows(ids, table),
    rmsNorm: (x, weight) =>
      b.add('SimplifiedLayerNormalization', [x, weight], { axis: -1, epsilon: { f: config.normEps }, stash_type: 1 }),
    layerNorm: (x, weight, bias) =>
      b.add('LayerNormalization', [x, weight, bias], { axis: -1, epsilon: { f: config.normEps } }),
    linear: (x, matrix) => (blocksOf(matrix.weights[0]!) ? matMulBlocks(s, x, matrix) : gemm(s, x, matrix)),
    swiglu: (gate, up) =>
      config.family.swiglu
        ? portable.swiglu(gate, up)
        : b.add('Mul', [b.add('Mul', [gate, b.add('Sigmoid', [gate])]), up]),
    tokensFirst: hasGrouped(s),
    experts: (x, chosen, layer) => fusedExperts(s, x, chosen, layer) ?? portable.experts(x, chosen, layer),
    packs: ({ rope }) => isGrouped(s, rope),
    // ONNX Runtime 1.30 infers a wrong width of the result where it does not know that of the input, after a Gemm.
    attentionOfPacked: (qkv, call) => s.reshape(grouped(s, [qkv, '', ''], call), config.numHeads * config.valueDim),
    attention: (heads, call) =>
      isGrouped(s, call.rope) ? grouped(s, [heads.q, heads.k, heads.v], call) : composedOf(s, heads, call),
  };
}

/** Builds attention that GroupQueryAttention does not take from ONNX's own operators. */
function composedOf(s: DecoderScope, heads: Heads, call: AttentionCall): string {
  if (!hasGrouped(s)) return attention(s, heads, call);
  const { q, k, v } = heads;
  return tokensFirst(s, attention(s, { q: asGiven(s, q), k: asGiven(s, k), v: asGiven(s, v) }, call));
}

function matMulBlocks(s: DecoderScope, x: string, { weights, biases }: Matrix): string {
  const [n, k] = joined(weights) as [number, number];
  const { bits, group } = blocksOf(weights[0]!)!;
  const codes = s.constant(weights, 'codes', [n, k / group, (group * bits) / 8]);
  const scales = s.constant(weights, 'scales', [n, k / group]);
  const bias = biases.length > 0 ? ['', '', s.numbers(biases)] : [];
  const y = s.b.add(
    'MatMulNBits',
    [x, codes, scales, ...bias],
    {
      K: k,
      N: n,
      bits: bits,
      block_size: group,
      accuracy_level: s.settings.activations === 'q8' ? 4 : 0,
    },
    DOMAIN,
  );
  return withOffsets(s, y, x, weights);
}

/**
 * Gathers rows of a table in blocks, whose integers are also those of a tied head. GatherBlockQuantized would be one
 * node, but the builds of onnxruntime-web 1.30 with WebGPU, which transformers.js uses, have it on the GPU only.
 */
function gatherBlocks(s: DecoderScope, ids: string, table: WeightPlan): string {
  const { b } = s;
  const { bits, group, hasOffset } = blocksOf(table)!;
  const [n, k] = table.shape as [number, number];
  const rowsOf = (constant: string): string => b.add('Gather', [constant, ids], { axis: 0 });
  // ONNX Runtime frees a constant after packing if only MatMulNBits reads it, so the same bytes get a second shape.
  const codes = s.constant([table], 'codes', [n, (k * bits) / 8]);
  const bytes = b.cast(s.reshape(rowsOf(codes), k / group, (group * bits) / 8), 'f32');
  const unsigned = bits === 8 ? [bytes] : halvesOf(s, bytes);
  const members = unsigned.map((x) => b.add('Sub', [x, s.number(2 ** (bits - 1))]));
  const factors = (what: 'scales' | 'offsets'): string => rowsOf(s.constant([table], what, [n, k / group, 1]));
  return scaled(s, members, factors('scales'), hasOffset ? factors('offsets') : undefined, [0, 0, -1]);
}

/** The least weight of an expert that differs from none: f32's smallest normal number. */
const LEAST_WEIGHT = 2 ** -126;

/**
 * Appends MoE or QMoE, which multiply each matrix with the tokens that chose it; undefined if they do not take the
 * layer. They choose experts by the softmax of their input, so they get the logarithms of the weights of the chosen
 * experts, and −∞ for the others. Their weights are divided by the sum, so the result is multiplied by it.
 *
 * @see microsoft/onnxruntime@0aab72a onnxruntime/contrib_ops/cpu/moe/moe_cpu.cc and moe_quantization_cpu.cc
 */
function fusedExperts(s: DecoderScope, x: string, chosen: Chosen, layer: number): string | undefined {
  const { b, config } = s;
  const { count, used, width } = config.experts!;
  const h = config.hiddenSize;
  const at = (part: string): WeightPlan | undefined => s.at(`${layer}.${part}`);
  const [gate, up, down] = ['expertGate', 'expertUp', 'expertDown'].map((part) => at(`${part}.weight`));
  const both = at('expertGateUpBlocks.weight');
  // Rows of gate and up alternate there, as in the file of this weight.
  const first = both ? [{ ...both, shape: [count, 2 * width, h], turns: 1 as const }] : [gate, up];
  if (!down || config.activation !== 'silu') return undefined;
  const held = blocksOf(down);
  if (first.some((plan) => !plan) || held?.hasOffset || (held && held.group !== 32)) return undefined;
  const together = [...(first as WeightPlan[]), down];
  if (held ? !alike(together) : together.some(blocksOf)) return undefined;
  const bits = held?.bits ?? 8;
  const matrix = (weights: readonly WeightPlan[], n: number, k: number): string[] => {
    if (!held) return [s.numbers(weights, [count, n, k], weights.length > 1)];
    return [
      s.constant(weights, 'codes', [count, n, (k * bits) / 8], weights.length > 1),
      s.constant(weights, 'scales', [count, n, k / 32], weights.length > 1),
    ];
  };
  const biasOf = (part: string): string | undefined => {
    const plan = at(`${part}.bias`);
    return plan && s.numbers([plan]);
  };
  const inTurns = (biases: readonly string[]): string => {
    const pairs = b.add(
      'Concat',
      biases.map((bias) => b.add('Unsqueeze', [bias, s.integers(2)])),
      { axis: 2 },
    );
    return b.add('Reshape', [pairs, s.integers(count, 2 * width)]);
  };
  const [gateBias, upBias] = [biasOf('expertGate'), biasOf('expertUp')];
  const firstBias = gateBias && upBias ? inTurns([gateBias, upBias]) : biasOf('expertGateUpBlocks');
  const tokens = b.add('Shape', [chosen.indices], { start: 0, end: 1 });
  const none = b.add('Expand', [s.number(-Infinity), b.add('Concat', [tokens, s.integers(count)], { axis: 0 })]);
  const logs = b.add('Log', [b.add('Max', [chosen.weights, s.number(LEAST_WEIGHT)])]);
  const rank = b.add('ScatterElements', [none, chosen.indices, logs], { axis: 1 });
  const { limit, alpha = 1, offset = 0 } = config.family.swiglu ?? {};
  const inputs = [
    x,
    rank,
    ...matrix(first as WeightPlan[], 2 * width, h),
    firstBias ?? '',
    ...matrix([down], h, width),
    biasOf('expertDown') ?? '',
  ];
  if (inputs.at(-1) === '') inputs.pop();
  const made = b.add(
    held ? 'QMoE' : 'MoE',
    inputs,
    {
      k: used,
      normalize_routing_weights: 1,
      activation_type: 'swiglu',
      swiglu_fusion: 1,
      activation_alpha: { f: alpha },
      activation_beta: { f: offset },
      swiglu_limit: limit === undefined ? undefined : { f: limit },
      expert_weight_bits: held && bits,
      block_size: held?.group,
    },
    DOMAIN,
  );
  const sum = b.add('ReduceSum', [chosen.weights, s.integers(1)], { keepdims: 1 });
  return b.add('Mul', [made, sum]);
}

/**
 * True if GroupQueryAttention takes a layer.
 *
 * @see microsoft/onnxruntime@00b376b onnxruntime/contrib_ops/cpu/bert/group_query_attention_helper.h, CheckInputs
 */
function isGrouped(s: DecoderScope, rope: RopeSpec | undefined): boolean {
  const { latent, headDim, valueDim, layerSizes, chunk } = s.config;
  if (latent || layerSizes || chunk || headDim !== valueDim || headDim % 8 !== 0) return false;
  return rope === undefined || rotatesInside(s, rope);
}

function hasGrouped(s: DecoderScope): boolean {
  return s.config.layers(s.settings.context).some(({ rope }) => isGrouped(s, rope));
}

function rotatesInside(s: DecoderScope, rope: RopeSpec): boolean {
  const { rotaryDim, rotaryOffset, read, write, headDim } = planRope({ ...rope, positions: 0, seqLen: 1 });
  if (s.settings.angles !== 'f32-table' || angleConstants(rope).numAxes > 1) return false;
  return headDim % 16 === 0 && rotaryDim % 16 === 0 && rotaryOffset === 0 && read.step === write.step;
}

/** Cuts out the rows of this call's tokens, if only they are outputs. */
function newRowsOf(s: DecoderScope, cache: string): string {
  if (!s.settings.newRows) return cache;
  return s.b.add('Slice', [cache, s.pastRows(), s.totalRows(), s.integers(2)]);
}

/** Appends GroupQueryAttention. Its caches may be the same memory before and after it. */
function grouped(s: DecoderScope, [q, k, v]: readonly [string, string, string], call: AttentionCall): string {
  const { b, config } = s;
  const { layer, rope, window, sinks } = call;
  const past = ['key', 'value'].map((what) => s.widened(`past_key_values.${layer}.${what}`));
  const lastOf = s.once('last key of each row', () => {
    const counts = b.add('ReduceSum', ['attention_mask', s.integers(1)], { keepdims: 0 });
    return b.cast(b.add('Sub', [counts, s.integers(1)]), 'i32');
  });
  const total = s.once('total as i32', () => b.cast(s.totalRows(), 'i32'));
  const tables = rope && tablesOf(s, angleConstants(rope));
  const interleaved = rope && planRope({ ...rope, positions: 0, seqLen: 1 }).read.step === 2;
  // position_ids are not used: ONNX Runtime 1.30 reads them for single tokens, and counts from 0 in a prompt.
  const inputs = [q, k, v, ...past, lastOf, total, tables?.cos ?? '', tables?.sin ?? '', '', '', sinks ?? ''];
  while (inputs.at(-1) === '') inputs.pop();
  const [out, presentKey, presentValue] = b.addMany(
    'GroupQueryAttention',
    inputs,
    {
      num_heads: config.numHeads,
      kv_num_heads: config.numKvHeads,
      scale: { f: config.attentionScale },
      softcap: config.attentionSoftcap === undefined ? undefined : { f: config.attentionSoftcap },
      local_window_size: window === undefined ? undefined : window,
      do_rotary: tables ? 1 : undefined,
      rotary_interleaved: interleaved ? 1 : undefined,
    },
    3,
    DOMAIN,
  );
  present(s, call, 'key', newRowsOf(s, presentKey!));
  present(s, call, 'value', newRowsOf(s, presentValue!));
  return out!;
}
