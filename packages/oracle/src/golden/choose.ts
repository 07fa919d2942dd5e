/** The choice of golden cases: by operator, by dialect, or for the RoPE of a model or of the caller. @module */
import { convertRope, type LayerRope, type ModelRope } from '@ropewalk/dialects';
import { type FloatDtype, isFloat, type OpName, type RopeSpec, RopewalkError, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  checkInteger,
  type OptionNames,
  randomFrom,
  readList,
  readName,
  readOptions,
  readPlain,
} from 'ropewalk/internal';
import { hostTensor } from '../host.js';
import type { GoldenCall, GoldenQuestion } from './case.js';
import { isGoldenId, SPEC_KEYS } from './manifest.js';
import { GOLDEN_OPERATORS, goldenOperatorQuestion } from './operators.js';
import { GOLDEN_POSITIONS, GOLDEN_ROPE, GOLDEN_SEED, type GoldenRopeDefinition, goldenRopeQuestion } from './rope.js';

/** The dialects that cases can be chosen for. */
export const GOLDEN_DIALECTS = ['ggml', 'onnx', 'infiniop', 'llaisys', 'huggingface', 'cann'] as const;
/** One of {@link GOLDEN_DIALECTS}. */
export type GoldenDialect = (typeof GOLDEN_DIALECTS)[number];

/** The most tokens of a case, whose tensors must fit into memory. */
const MAX_POSITIONS = 2 ** 24;

/** The parameters with which cases are drawn. */
export interface GoldenChoice {
  /** Default: `GOLDEN_SEED`. */
  readonly seed?: number;
  /** RoPE is made in each of these; other operators' cases are taken if they have one. Default: the case's dtype. */
  readonly dtypes?: readonly FloatDtype[];
  /** The positions of RoPE's tokens, the same in all batches. Default: those of the case. */
  readonly positions?: readonly number[];
  /** The number of heads in RoPE cases with one tensor. */
  readonly heads?: number;
}

const NAMES: OptionNames<GoldenChoice> = { seed: true, dtypes: true, positions: true, heads: true };

/** A chosen case, whose inputs are made when they are needed. */
export interface ChosenCase {
  readonly id: string;
  readonly op: OpName;
  make(): GoldenQuestion;
}

/** The chosen cases, and those that were left out with the reason. */
export interface Chosen {
  readonly cases: readonly ChosenCase[];
  readonly left: readonly { readonly id: string; readonly reason: string }[];
}

/** Chooses the built-in cases of some operators. */
export function chooseBuiltIn(names: readonly OpName[], given: GoldenChoice = {}): Chosen {
  const ops = Array.from(readList(names, 'vectors: ops'));
  const choice = readChoice(given);
  const isChosen = ({ dtype }: Tensor): boolean => choice.dtypes!.includes(dtype as FloatDtype);
  const rope = ops.includes('rope') ? GOLDEN_ROPE.flatMap((d) => ropeCases(d, choice)) : [];
  const others = GOLDEN_OPERATORS.filter(({ op }) => ops.includes(op))
    .map((d) => ({ id: d.id, op: d.op, make: () => goldenOperatorQuestion(d, choice.seed) }))
    .filter(({ make }) => !choice.dtypes || [...make().inputs.values()].some(isChosen));
  return { cases: [...rope, ...others], left: [] };
}

/**
 * Chooses the cases that a dialect can express, in its layout, positions and dtypes.
 *
 * @param given - how they are drawn
 * @param names - the operators. Default: rope
 */
export function chooseDialect(
  dialect: GoldenDialect,
  given: GoldenChoice = {},
  names: readonly OpName[] = ['rope'],
): Chosen {
  readName(dialect, GOLDEN_DIALECTS, 'vectors: dialect');
  const ops = Array.from(readList(names, 'vectors: ops'));
  const choice = readChoice(given);
  const cases: ChosenCase[] = [];
  const left: { id: string; reason: string }[] = [];
  for (const definition of GOLDEN_OPERATORS.filter(({ op }) => ops.includes(op))) {
    const chosen = operatorInDialect(definition, dialect, choice);
    if (typeof chosen === 'string') left.push({ id: definition.id, reason: chosen });
    else cases.push(...chosen);
  }
  for (const definition of ops.includes('rope') ? GOLDEN_ROPE : []) {
    for (const d of inDtypes(definition, choice)) {
      const adapted = { ggml, cann, onnx, infiniop, llaisys, huggingface }[dialect](d);
      if (typeof adapted === 'string') left.push({ id: d.id, reason: adapted });
      else cases.push(ropeCase(adapted, choice, callOf(dialect, adapted)));
    }
  }
  return { cases, left };
}

/**
 * Makes cases of one RoPE.
 *
 * @param rope - its parameters, an id and a sentence about it
 * @param choice - the parameters with which they are drawn. Default dtype: f32
 * @throws {RopewalkError} FORMAT when the id cannot name a file, or the parameters have an unknown field
 */
export function chooseRope(
  rope: Pick<GoldenRopeDefinition, 'id' | 'about' | 'spec' | 'direction'>,
  choice: GoldenChoice = {},
): Chosen {
  const names = { id: true, about: true, spec: true, direction: true } as const;
  const { id, about, spec, direction } = readOptions(rope, 'vectors: rope', names);
  if (!isGoldenId(id)) refuse('FORMAT', 'vectors: id', 'up to 100 letters, digits, -, _ and .', id);
  if (typeof about !== 'string') refuse('RANGE', 'vectors: about', 'a text', about);
  if (direction !== undefined) readName(direction, ['forward', 'backward'], 'vectors: direction');
  const read = readChoice(choice);
  const [dtype = 'f32'] = read.dtypes ?? [];
  const definition = { id, about, spec: specOnly(spec), direction, separates: [], dtype };
  return { cases: ropeCases(definition, read), left: [] };
}

/**
 * Makes a case for each RoPE that a model's layers have.
 *
 * @param model - the result of ropeFromConfig or ropeFromGguf
 * @param choice - the parameters with which they are drawn. Default dtype: f32
 * @param layer - the only layer to take. Default: all layers
 * @throws {RopewalkError} RANGE for a model, or a layer, without RoPE
 */
export function chooseModel(model: ModelRope, choice: GoldenChoice = {}, layer?: number): Chosen {
  const { layers, architecture, source } = readPlain(readOptions(model, 'vectors: model'), 'vectors: model');
  if (layer !== undefined) checkInteger(layer, 'vectors: layer', 0);
  const firsts = new Map<string, LayerRope>();
  for (const given of Array.from(readList(layers, 'vectors: model: layers'))) {
    const one = readOptions(given, 'vectors: model: layers');
    if (!one.rope || (layer !== undefined && one.layer !== layer)) continue;
    const key = JSON.stringify(one.rope);
    if (!firsts.has(key)) firsts.set(key, one);
  }
  if (firsts.size === 0)
    fail('RANGE', 'vectors: model', layer === undefined ? 'it has no RoPE' : `its layer ${layer} has no RoPE`);
  if (typeof architecture !== 'string') refuse('RANGE', 'vectors: model: architecture', 'a text', architecture);
  if (typeof source !== 'string') refuse('RANGE', 'vectors: model: source', 'a text', source);
  const name = architecture.replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 60) || 'model';
  const chosen = [...firsts.values()].map(({ rope, layer: number, layerType }) => {
    const kind = layerType ? ` (${layerType})` : '';
    const about = `${architecture}, layer ${number}${kind}, as its ${source} file says.`;
    return chooseRope({ id: `${name}-layer-${number}`, about, spec: rope! }, choice);
  });
  return { cases: chosen.flatMap(({ cases }) => cases), left: [] };
}

function readChoice(given: GoldenChoice): GoldenChoice {
  const { seed, dtypes, positions, heads } = readOptions(given, 'vectors: choice', NAMES);
  if (seed !== undefined) checkInteger(seed, 'vectors: seed', Number.MIN_SAFE_INTEGER);
  if (heads !== undefined) checkInteger(heads, 'vectors: heads', 1);
  const dtypeOf = (dtype: FloatDtype) => readName(dtype, ['f64', 'f32', 'f16', 'bf16'], 'vectors: dtypes');
  return {
    seed,
    dtypes: dtypes === undefined ? undefined : Array.from(readList(dtypes, 'vectors: dtypes'), dtypeOf),
    positions: positions === undefined ? undefined : Array.from(readList(positions, 'vectors: positions')),
    heads,
  };
}

/** The fields that planRope's options have beside the spec. */
const CALL_KEYS: readonly string[] = ['positions', 'seqLen', 'direction', 'recipe', 'tableDtype'];

/** Takes the spec out of what may be planRope's options. An unknown field is refused, as it may be misspelt. */
function specOnly(spec: RopeSpec): RopeSpec {
  const given = readPlain(readOptions(spec, 'vectors: spec'), 'vectors: spec');
  for (const key of Object.keys(given)) {
    if (!SPEC_KEYS.includes(key) && !CALL_KEYS.includes(key))
      refuse('FORMAT', 'vectors: spec', `fields among ${SPEC_KEYS.join(', ')}`, key);
  }
  return Object.fromEntries(Object.entries(given).filter(([key]) => SPEC_KEYS.includes(key))) as unknown as RopeSpec;
}

/**
 * Chooses positions for a number of tokens: near and far ones alternate, then random ones below 2^20 follow.
 *
 * @param seed - the seed of the positions after the first six
 */
export function positionsFor(count: number, seed = GOLDEN_SEED): number[] {
  checkInteger(count, 'vectors: positions', 0, MAX_POSITIONS);
  checkInteger(seed, 'vectors: seed', Number.MIN_SAFE_INTEGER);
  const first = [1, 1048575, 40, 131072, 0, 8192].slice(0, count);
  const random = randomFrom(`${seed}/positions`);
  while (first.length < count) first.push(random.integer(2 ** 20));
  return first;
}

function ropeCases(d: GoldenRopeDefinition, choice: GoldenChoice): ChosenCase[] {
  return inDtypes(d, choice).map((one) => ropeCase(one, choice));
}

/** Returns the case in each chosen dtype. The id names the dtype where it differs from the definition's. */
function inDtypes(d: GoldenRopeDefinition, { dtypes }: GoldenChoice): GoldenRopeDefinition[] {
  if (!dtypes) return [d];
  return dtypes.map((dtype) => (dtype === d.dtype ? d : { ...d, dtype, id: `${d.id}-${dtype}` }));
}

function ropeCase(d: GoldenRopeDefinition, choice: GoldenChoice, call?: GoldenCall): ChosenCase {
  const { seed, positions = d.positions, heads } = choice;
  const [part = { name: 'x', heads: 2 }, ...more] = d.parts ?? [];
  const parts = heads !== undefined && more.length === 0 ? [{ ...part, heads }] : d.parts;
  return {
    id: d.id,
    op: 'rope',
    make: () => ({ ...goldenRopeQuestion({ ...d, positions, parts }, seed), ...(call && { call }) }),
  };
}

/** The tensors of a case with one part, by the names of each dialect. */
const TENSORS: Readonly<Partial<Record<GoldenDialect, Readonly<Record<string, string>>>>> = {
  ggml: { a: 'x', b: 'positions' },
  cann: { src0: 'x', pos: 'positions', dst: 'y' },
  onnx: { X: 'x', position_ids: 'positions', Y: 'y' },
  infiniop: { x: 'x', pos_ids: 'positions', y: 'y' },
  llaisys: { out: 'y', in: 'x', pos_ids: 'positions' },
};

/** Returns a case's call in the dialect's own arguments; undefined where they are in a file or do not express it. */
function callOf(dialect: GoldenDialect, { spec, direction, parts }: GoldenRopeDefinition): GoldenCall | undefined {
  const tensors = (parts?.length ?? 1) > 1 ? {} : { tensors: TENSORS[dialect] };
  if (dialect === 'llaisys') return { function: 'llaisysROPE', arguments: { theta: spec.base }, ...tensors };
  if (dialect === 'huggingface') return undefined;
  try {
    const made = convertRope(spec, dialect);
    const forward = dialect === 'cann' ? { forward: direction !== 'backward' } : {};
    const name = direction === 'backward' && dialect === 'ggml' ? `${made.call}_back` : made.call;
    return { function: name, arguments: { ...made.arguments, ...forward } as GoldenCall['arguments'], ...tensors };
  } catch (error) {
    if (error instanceof RopewalkError && error.code === 'UNSUPPORTED') return undefined;
    throw error;
  }
}

/** The floating dtypes of each dialect's operators. */
const DTYPES: Readonly<Record<GoldenDialect, readonly FloatDtype[]>> = {
  ggml: ['f32', 'f16'],
  cann: ['f32', 'f16', 'bf16'],
  onnx: ['f32', 'f16', 'bf16'],
  infiniop: ['f32', 'f16', 'bf16', 'f64'],
  llaisys: ['f32', 'f16', 'bf16'],
  huggingface: ['f32', 'f16', 'bf16', 'f64'],
};

/** LLAISYS' other operators, with its calls. @see InfiniTensor/llaisys@7740d46f include/llaisys/ops.h */
const LLAISYS_CALLS: Readonly<Partial<Record<OpName, string>>> = {
  add: 'llaisysAdd(c, a, b)',
  argmax: 'llaisysArgmax(max_idx, max_val, vals=values)',
  embedding: 'llaisysEmbedding(out, index, weight)',
  linear: 'llaisysLinear(out=y, in=x, weight, bias)',
  rms_norm: 'llaisysRmsNorm(out=y, in=x, weight, eps)',
  self_attention: 'llaisysSelfAttention(attn_val, q, k, v, scale)',
  swiglu: 'llaisysSwiGLU(out, gate, up)',
  rearrange: 'llaisysRearrange(out=y, in=x)',
};
/** The attributes that LLAISYS' calls have, and those that a case may have as in every call of LLAISYS. */
const LLAISYS_ATTRIBUTES: readonly string[] = ['eps', 'scale', 'causal', 'x', 'y'];
/** Returns a case of another operator in each dtype of the dialect that is asked for, or why there is none. */
function operatorInDialect(
  definition: (typeof GOLDEN_OPERATORS)[number],
  dialect: GoldenDialect,
  { seed, dtypes }: GoldenChoice,
): ChosenCase[] | string {
  const { id, op } = definition;
  const question = goldenOperatorQuestion(definition, seed);
  const own = [...question.inputs.values()].find(({ dtype }) => isFloat(dtype))?.dtype as FloatDtype | undefined;
  const wanted = dtypes ?? DTYPES[dialect];
  if (dialect !== 'llaisys') {
    if (own === undefined || (DTYPES[dialect].includes(own) && wanted.includes(own)))
      return [{ id, op, make: () => question }];
    return `${dialect} has ${DTYPES[dialect].join(', ')}, and the case is in ${own}`;
  }
  const call = LLAISYS_CALLS[op];
  if (!call) return `LLAISYS has no ${op}`;
  const why = whyNotLlaisys(question);
  if (why !== undefined) return why;
  if (own === undefined) return 'LLAISYS has f32, f16 and bf16';
  const rows =
    op === 'argmax'
      ? question.inputs
          .get('values')!
          .shape.slice(0, -1)
          .reduce((n, size) => n * size, 1)
      : 1;
  return DTYPES.llaisys
    .filter((dtype) => wanted.includes(dtype))
    .flatMap((dtype) =>
      Array.from({ length: rows }, (_, row) => {
        const which = (rows > 1 ? `${id}-row-${row}` : id) + (dtype === own ? '' : `-in-${dtype}`);
        const about = `${question.about} ${call}.`;
        return { id: which, op, make: () => ({ ...inDtype(inLlaisysRanks(question, row), dtype), id: which, about }) };
      }),
    );
}

function whyNotLlaisys({ op, attributes, inputs }: GoldenQuestion): string | undefined {
  for (const [name, value] of Object.entries(attributes))
    if (!LLAISYS_ATTRIBUTES.includes(name) || value === false) return `LLAISYS' ${op} has no ${name}`;
  for (const [name, tensor] of inputs) {
    if (tensor.dtype === 'i32') return `LLAISYS' ${name} is i64`;
    if (name === 'sinks') return 'LLAISYS has no sinks';
  }
  return undefined;
}

/**
 * Returns a case in LLAISYS' ranks: rows of more dimensions become rows of one, of batches the first is taken, and of
 * argmax one row.
 */
function inLlaisysRanks(question: GoldenQuestion, row: number): GoldenQuestion {
  const shapeOf = (name: string, shape: readonly number[]): readonly number[] => {
    if (question.op === 'argmax') return shape.slice(-1);
    if (question.op === 'self_attention') return shape.slice(-3);
    if (['x', 'gate', 'up'].includes(name) && question.op !== 'rearrange' && shape.length > 2)
      return [shape.slice(0, -1).reduce((rows, size) => rows * size, 1), shape.at(-1)!];
    return shape;
  };
  const inputs = new Map(
    [...question.inputs].map(([name, tensor]): [string, Tensor] => {
      const shape = shapeOf(name, tensor.shape);
      if (shape === tensor.shape) return [name, tensor];
      const values = tensor.readNumbers() as Float64Array;
      const first = question.op === 'argmax' ? row * shape.at(-1)! : 0;
      return [name, hostTensor(tensor.dtype as FloatDtype, shape, (n) => values[first + n]!)];
    }),
  );
  return { ...question, inputs };
}

/** Returns a case with floating inputs in another dtype, each rounded once. */
function inDtype(question: GoldenQuestion, dtype: FloatDtype): GoldenQuestion {
  const inputs = new Map(
    [...question.inputs].map(([name, tensor]): [string, Tensor] => {
      if (!isFloat(tensor.dtype) || tensor.dtype === dtype) return [name, tensor];
      const values = tensor.readNumbers() as Float64Array;
      return [name, hostTensor(dtype, tensor.shape, (n) => values[n]!)];
    }),
  );
  return { ...question, inputs };
}

// Each function below returns the case as the dialect would be called, or the reason why the dialect cannot be.

/** Returns one row of positions, which all batches share. */
const oneForAll = (d: GoldenRopeDefinition): readonly number[] => {
  const given = d.positions ?? GOLDEN_POSITIONS;
  return (typeof given[0] === 'object' ? given[0] : given) as readonly number[];
};
const hasCache = ({ parts }: GoldenRopeDefinition) => parts?.some(({ cache }) => cache !== undefined);
const hasNorm = ({ parts }: GoldenRopeDefinition) => parts?.some(({ normEps }) => normEps !== undefined);
const isWhole = ({ spec }: GoldenRopeDefinition): boolean => (spec.rotaryDim ?? spec.headDim) === spec.headDim;

/** ggml_rope_ext and _multi, and the operator of ggml's CANN backend: `[B, S, N, D]` with i32 positions for all. */
function ggml(d: GoldenRopeDefinition): GoldenRopeDefinition | string {
  const { spec } = d;
  if (d.dtype === 'f64' || d.dtype === 'bf16') return 'ggml rotates f32 and f16';
  if (spec.pairing === 'interleaved-to-half') return 'ggml writes each pair where it reads it';
  if (hasNorm(d) || hasCache(d) || (d.parts?.length ?? 1) > 1)
    return 'ggml rotates one tensor in a call, and has no norm in it';
  if (d.layout === 'bnsh') return "ggml's heads come after its tokens";
  if (spec.axes?.rule === 'interleaved') return "ggml's mode 40 gives the last pairs to axis e";
  const { scaling, attentionFactor } = spec;
  if (scaling && !['none', 'linear', 'yarn'].includes(scaling.kind))
    return `ggml has no ${scaling.kind}: llama.cpp writes freq_factors, as in llama-3.1-ggml, or another base`;
  if (scaling?.kind === 'yarn' && scaling.truncate === false) return "ggml rounds YaRN's edges to whole pairs";
  if (scaling?.kind === 'yarn' && scaling.mscale !== undefined)
    return 'ggml has no mscale: llama.cpp puts it into attn_factor';
  if (attentionFactor !== undefined) return 'ggml multiplies by attn_factor and cannot replace it';
  const axes = spec.axes && { ...spec.axes, sections: [0, 1, 2, 3].map((a) => spec.axes!.sections[a] ?? 0) };
  return { ...d, spec: { ...spec, axes }, positions: oneForAll(d), positionDtype: 'i32' };
}

/** The aclnn design's rope: ggml's, without an offset. */
function cann(d: GoldenRopeDefinition): GoldenRopeDefinition | string {
  return d.spec.rotaryOffset ? 'the operator rotates the first n_dims' : ggml(d);
}

/** ONNX RotaryEmbedding-23, which has everything in its caches. */
function onnx(d: GoldenRopeDefinition): GoldenRopeDefinition | string {
  if (d.dtype === 'f64') return 'RotaryEmbedding takes no float64';
  if (hasCache(d)) return 'RotaryEmbedding does not write into a KV cache';
  return d;
}

/** infiniopRoPE and infiniopMRoPE: whole heads, and positions that are rows of tables. */
function infiniop(d: GoldenRopeDefinition): GoldenRopeDefinition | string {
  const { spec } = d;
  if (d.direction === 'backward') return 'InfiniOp has no backward';
  if (spec.pairing !== 'half' && spec.pairing !== 'interleaved') return `InfiniOp has no pairing ${spec.pairing}`;
  if (d.layout === 'bnsh') return "InfiniOp's heads come after its tokens";
  if (hasNorm(d) || hasCache(d)) return 'InfiniOp norms and writes caches in other operators';
  if (spec.axes && spec.axes.rule !== 'sections' && spec.axes.rule !== 'interleaved')
    return `infiniopMRoPE has no axes ${spec.axes.rule}`;
  if (spec.axes && spec.axes.sections.length > 3) return 'infiniopMRoPE has three axes';
  if (!spec.axes && !isWhole(d)) return "infiniopRoPE's tables are half a head wide";
  if (!spec.axes && (d.parts?.length ?? 1) > 1) return 'infiniopRoPE rotates one tensor in a call';
  if (oneForAll(d).some((p) => p < 0)) return 'positions are rows of a table, so they cannot be negative';
  return d;
}

/** llaisysROPE: `[S, H, D]`, half pairing, and a base alone. */
function llaisys(d: GoldenRopeDefinition): GoldenRopeDefinition | string {
  const { axes, freqFactors, attentionFactor, pairing, scaling } = d.spec;
  if (d.dtype === 'f64') return 'LLAISYS rotates f32, f16 and bf16';
  if (pairing !== 'half') return 'LLAISYS pairs halves';
  if (!isWhole(d)) return 'LLAISYS rotates whole heads';
  if (axes || freqFactors || attentionFactor !== undefined || (scaling && scaling.kind !== 'none'))
    return 'LLAISYS has only a base';
  if (d.direction === 'backward') return 'LLAISYS has no backward';
  if (hasNorm(d) || hasCache(d) || (d.parts?.length ?? 1) > 1 || d.layout === 'bnsh')
    return 'LLAISYS rotates one [seq, head, head_dim] in a call';
  return { ...d, batch: 1, positions: oneForAll(d), positionDtype: 'i64' };
}

/** transformers' apply_rotary_pos_emb: heads before tokens, and i64 position_ids. */
function huggingface(d: GoldenRopeDefinition): GoldenRopeDefinition | string {
  const { spec } = d;
  if (d.direction === 'backward') return 'transformers leaves the backward direction to autograd';
  if (spec.pairing === 'vision' || spec.axes?.rule === 'interleaved-ggml') return 'only ggml has this rule';
  if (spec.axes && spec.axes.sections.length > 3) return 'transformers has three axes';
  if (spec.freqFactors) return 'transformers has no freq_factors';
  if ((spec.rotaryOffset ?? 0) > 0) return 'transformers slices the window out and rotates the slice';
  if (spec.scaling?.kind === 'yarn' && (spec.scaling.extFactor !== undefined || spec.scaling.attnFactor !== undefined))
    return 'transformers has no ext_factor';
  if (hasCache(d)) return 'transformers appends to its caches';
  return { ...d, layout: 'bnsh', positionDtype: 'i64' };
}
