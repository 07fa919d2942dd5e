/**
 * A decoder's graph under construction: the model, its weights by place, and the values that layers share.
 *
 * @module
 */
import type { DecoderConfig } from '@ropewalk/model';
import type { WeightPlan } from '@ropewalk/model/description';
import { type AngleMode, GraphBuilder, OLDEST_OPSET, OPSET } from '@ropewalk/onnx';
import type { OnnxDtype } from '@ropewalk/onnx/internal';
import type { BlockFormat } from 'ropewalk';
import { countElements } from 'ropewalk/internal';

/** Which operators a decoder's graph is made of. */
export type DecoderForm = 'contrib' | 'standard' | 'primitives';

/** All of them. */
export const DECODER_FORMS: readonly DecoderForm[] = /* @__PURE__ */ Object.freeze([
  'contrib',
  'standard',
  'primitives',
]);

/**
 * Names of sizes that each call chooses. transformers.js makes empty caches by the first.
 *
 * @see huggingface/transformers.js@4.3.1
 */
export const BATCH = 'batch_size';
export const SEQ = 'sequence_length';
export const PAST = 'past_sequence_length';
export const TOTAL = 'total_sequence_length';
export const NUM_LOGITS = 'num_logits';

/** What a graph is to be, once all is decided. */
export interface DecoderSettings {
  readonly form: DecoderForm;
  readonly angles: AngleMode;
  /** Positions that it serves. */
  readonly context: number;
  /** Whether present.N.* are the rows of this call's tokens only. */
  readonly newRows: boolean;
  /** What is multiplied with matrices in blocks, in form contrib. */
  readonly activations: 'int8' | 'f32';
}

/** A matrix, or several whose rows follow each other, and their biases. */
export interface Matrix {
  readonly weights: readonly WeightPlan[];
  readonly biases: readonly WeightPlan[];
}

/** Weights of a block, in both formats. */
export const BLOCK = 32;

/** The block format of a weight in the graph; undefined where it has numbers. */
export function blocksOf(plan: WeightPlan): Extract<BlockFormat, 'q8_0' | 'q4_0'> | undefined {
  return plan.held === 'q8_0' || plan.held === 'q4_0' ? plan.held : undefined;
}

/** The graph under construction. */
export class DecoderScope {
  readonly b: GraphBuilder;
  readonly constants: WeightConstant[] = [];
  readonly #weights: ReadonlyMap<string, WeightPlan>;
  readonly #made = new Map<string, unknown>();

  constructor(
    readonly config: DecoderConfig,
    weights: readonly WeightPlan[],
    readonly settings: DecoderSettings,
  ) {
    this.b = new GraphBuilder(settings.form === 'standard' ? OPSET : OLDEST_OPSET);
    this.#weights = new Map(weights.map((plan) => [plan.place, plan]));
  }

  /** The weight of a place such as `3.q.weight`; undefined where the model has none. */
  at(place: string): WeightPlan | undefined {
    return this.#weights.get(place);
  }

  /** The matrices of some places, and their biases; undefined where the model has none of them. */
  matrix(...places: readonly string[]): Matrix | undefined {
    const found = (part: string): WeightPlan[] => places.flatMap((place) => this.at(`${place}.${part}`) ?? []);
    const weights = found('weight');
    return weights.length === 0 ? undefined : { weights, biases: found('bias') };
  }

  /** Makes a value, or several, once, under a name that tells all that it depends on. */
  once<T = string>(name: string, make: () => T): T {
    const made = this.#made.get(name) ?? make();
    this.#made.set(name, made);
    return made as T;
  }

  /** A constant that is made of weights: one after the other, or with rows that take turns. */
  constant(weights: readonly WeightPlan[], madeAs: MadeAs, shape: readonly number[], inTurns = false): string {
    const places = weights.map(({ place }) => place.replace(/^(\d)/, 'layers.$1')).join(inTurns ? '/' : '+');
    const name = `${places}${madeAs === 'numbers' ? '' : `.${madeAs}`}`;
    return this.once(`${name} [${shape}]`, () => {
      const dtype = dtypeOf(weights, madeAs, shape);
      const fresh = this.constants.some((other) => other.name === name) ? `${name}.${shape.length}d` : name;
      this.constants.push({ name: fresh, dtype, shape, weights, madeAs, inTurns });
      return fresh;
    });
  }

  /** Weights as numbers in f32, in the shape given or their own. */
  numbers(weights: readonly WeightPlan[], shape: readonly number[] = joined(weights), inTurns = false): string {
    const value = this.constant(weights, 'numbers', shape, inTurns);
    return weights[0]!.held === 'f32' ? value : this.once(`${value} as f32`, () => this.b.cast(value, 'f32'));
  }

  /** A constant number in f32. */
  number(value: number): string {
    return this.once(`number ${value}`, () => this.b.scalar('number', 'f32', value));
  }

  /** A constant vector of i64. */
  integers(...values: readonly number[]): string {
    return this.once(`integers ${values}`, () => this.b.integers('integers', values));
  }

  /** A constant of i64 without dimensions. */
  integer(value: number): string {
    return this.once(`integer ${value}`, () => this.b.add('Squeeze', [this.integers(value), this.integers(0)]));
  }

  /** The second dimension of an input, i64 without dimensions: seq of input_ids, total of attention_mask. */
  sizeOf(input: 'input_ids' | 'attention_mask'): string {
    return this.once(`size of ${input}`, () =>
      this.b.add('Gather', [this.b.add('Shape', [input]), this.integer(1)], { axis: 0 }),
    );
  }

  /** A value of `[batch, seq, …]` in the shape `[batch, seq, ...last]`; one of `last` may be −1. */
  reshape(x: string, ...last: readonly number[]): string {
    return this.b.add('Reshape', [x, this.integers(0, 0, ...last)]);
  }

  /** A value of `[batch · rows, width]` in the shape `[batch, rows, width]`. */
  unflatten(x: string, width: number): string {
    const { b } = this;
    const shape = this.once(`batch, rows, ${width}`, () => {
      const batch = b.add('Shape', ['input_ids'], { start: 0, end: 1 });
      return b.add('Concat', [batch, this.integers(-1, width)], { axis: 0 });
    });
    return b.add('Reshape', [x, shape]);
  }

  /** Tokens before and in this call, i64 `[1]`. */
  totalRows(): string {
    return this.once('total', () => this.b.add('Shape', ['attention_mask'], { start: 1, end: 2 }));
  }

  /** Tokens before this call, i64 `[1]`. */
  pastRows(): string {
    const { b } = this;
    return this.once('past', () => {
      const seq = b.add('Shape', ['input_ids'], { start: 1, end: 2 });
      return b.add('Sub', [this.totalRows(), seq]);
    });
  }

  /** `[batch, seq]` of this call, i64 `[2]`. */
  batchAndSeq(): string {
    return this.once('batch and seq', () => this.b.add('Shape', ['input_ids']));
  }

  /** `[batch, seq, heads, d]` → `[batch, heads, seq, d]`, and back. */
  headsFirst(x: string): string {
    return this.b.add('Transpose', [x], { perm: [0, 2, 1, 3] });
  }
}

function dtypeOf(weights: readonly WeightPlan[], madeAs: MadeAs, shape: readonly number[]): OnnxDtype {
  if (madeAs === 'codes') return 'u8';
  if (madeAs === 'scales') return 'f32';
  const { held } = weights[0]!;
  if (madeAs === 'numbers') return held as 'f32' | 'f16' | 'bf16';
  const pairs = countElements(shape) < countElements(joined(weights));
  return held === 'q8_0' || pairs ? 'i8' : 'i4';
}

/** The shape of weights whose rows follow each other. */
export function joined(weights: readonly WeightPlan[]): number[] {
  const rows = weights.reduce((sum, { shape }) => sum + shape[0]!, 0);
  return [rows, ...weights[0]!.shape.slice(1)];
}

/** How the elements of a constant come from a weight. */
export type MadeAs =
  /** The numbers of the weight, row by row. */
  | 'numbers'
  /** Of a matrix in blocks: its integers as MatMulNBits has them, `[n, blocks, bytes of a block]`, u8. */
  | 'codes'
  /**
   * Of a matrix in blocks: its integers as ONNX's own operators have them, row by row: q8_0 as i8; q4_0 as i4, each byte
   * with two neighbours, the first in its low half.
   */
  | 'signed'
  /** Of a matrix in blocks: its scales, `[n, blocks]`, f32. */
  | 'scales';

/** A constant of the graph whose elements come from the model's weights. */
export interface WeightConstant {
  readonly name: string;
  /** i4 may be i8 instead: a pair of neighbours in each element. */
  readonly dtype: OnnxDtype;
  /** Constants of one weight that are made alike have the same bytes, and are stored once; shapes may differ. */
  readonly shape: readonly number[];
  readonly weights: readonly WeightPlan[];
  readonly madeAs: MadeAs;
  /** Whether rows of the weights take turns: row 0 of each, then row 1 of each; unless so one weight follows another. */
  readonly inTurns?: boolean;
}
