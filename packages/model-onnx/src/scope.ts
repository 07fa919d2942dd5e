/**
 * A decoder's graph under construction: the model, its weights by place, and the values that layers share.
 *
 * @module
 */
import type { DecoderConfig } from '@ropewalk/model';
import { type BlockSplit, SPLITS, type WeightPlan } from '@ropewalk/model/internal';
import { type AngleMode, GraphBuilder, type GraphForm } from '@ropewalk/onnx';
import type { OnnxDtype } from '@ropewalk/onnx/internal';
import { OLDEST_OPSET, OPSET } from '@ropewalk/onnx/internal';
import { countElements } from 'ropewalk/internal';

/** The kind of operators in a decoder's graph. */
export type DecoderForm = 'contrib' | 'standard' | 'primitives';

/** All values of {@link DecoderForm}. */
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

/** The settings of a graph, with all defaults. */
export interface DecoderSettings {
  readonly form: DecoderForm;
  readonly angles: AngleMode;
  /** The number of positions that it serves. */
  readonly context: number;
  /** True if present.N.* are the rows of this call's tokens only. */
  readonly newRows: boolean;
  /** The dtype of keys and values that a call gets and gives. */
  readonly cacheDtype: 'f32' | 'f16';
  /** Form contrib: how activations are multiplied with matrices in blocks. */
  readonly activations: 'q8' | 'f32';
}

/** A matrix, or several matrices whose rows follow each other, and their biases. */
export interface Matrix {
  readonly weights: readonly WeightPlan[];
  readonly biases: readonly WeightPlan[];
}

/** Returns how a weight in blocks is split into integers and factors; undefined for numbers. */
export function blocksOf(plan: WeightPlan): BlockSplit | undefined {
  return SPLITS.get(plan.held);
}

/** True if weights can be one constant: the same numbers, or integers and factors of the same sizes. */
export function alike([first, ...others]: readonly WeightPlan[]): boolean {
  const key = (plan: WeightPlan): string => {
    const { bits, group, hasOffset } = blocksOf(plan) ?? {};
    return bits ? `${bits}/${group}/${hasOffset}` : plan.held;
  };
  return others.every((plan) => key(plan) === key(first!));
}

/** The graph under construction. */
export class DecoderScope {
  readonly b: GraphBuilder;
  readonly form: GraphForm;
  readonly compute = 'f32';
  readonly constants: WeightConstant[] = [];
  readonly #weights: ReadonlyMap<string, WeightPlan>;
  readonly #made = new Map<string, unknown>();

  constructor(
    readonly config: DecoderConfig,
    weights: readonly WeightPlan[],
    readonly settings: DecoderSettings,
  ) {
    this.form = settings.form === 'standard' ? 'standard' : 'primitives';
    this.b = new GraphBuilder(this.form === 'standard' ? OPSET : OLDEST_OPSET);
    this.#weights = new Map(weights.map((plan) => [plan.place, plan]));
  }

  /** Returns the weight of a place such as `3.q.weight`; undefined if the model has none. */
  at(place: string): WeightPlan | undefined {
    return this.#weights.get(place);
  }

  /** Returns the matrices of some places, and their biases; undefined if the model has none of them. */
  matrix(...places: readonly string[]): Matrix | undefined {
    const found = (part: string): WeightPlan[] => places.flatMap((place) => this.at(`${place}.${part}`) ?? []);
    const weights = found('weight');
    return weights.length === 0 ? undefined : { weights, biases: found('bias') };
  }

  /** Makes one or several values once. The name must tell everything on which they depend. */
  once<T = string>(name: string, make: () => T): T {
    const made = this.#made.get(name) ?? make();
    this.#made.set(name, made);
    return made as T;
  }

  /** Makes a constant from weights, which follow each other or have alternating rows. */
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

  /** Makes weights numbers in f32. */
  numbers(weights: readonly WeightPlan[], shape: readonly number[] = joined(weights), inTurns = false): string {
    const value = this.constant(weights, 'numbers', shape, inTurns);
    return floatsOf(weights) === 'f32' ? value : this.once(`${value} as f32`, () => this.b.cast(value, 'f32'));
  }

  /** Makes a constant number in f32. */
  number(value: number): string {
    return this.once(`number ${value}`, () => this.b.scalar('number', 'f32', value));
  }

  /** Makes a constant vector of i64. */
  integers(...values: readonly number[]): string {
    return this.once(`integers ${values}`, () => this.b.integers('integers', values));
  }

  /** Makes a constant of i64 without dimensions. */
  integer(value: number): string {
    return this.once(`integer ${value}`, () => this.b.add('Squeeze', [this.integers(value), this.integers(0)]));
  }

  /** Returns the second dimension of an input, i64 without dimensions: seq of input_ids, total of attention_mask. */
  sizeOf(input: 'input_ids' | 'attention_mask'): string {
    return this.once(`size of ${input}`, () =>
      this.b.add('Gather', [this.b.add('Shape', [input]), this.integer(1)], { axis: 0 }),
    );
  }

  /** Gives a value of `[batch, seq, …]` the shape `[batch, seq, ...last]`. One number of `last` may be −1. */
  reshape(x: string, ...last: readonly number[]): string {
    return this.b.add('Reshape', [x, this.integers(0, 0, ...last)]);
  }

  /** Gives a value of `[batch · rows, width]` the shape `[batch, rows, width]`. */
  unflatten(x: string, width: number): string {
    const { b } = this;
    const shape = this.once(`batch, rows, ${width}`, () => {
      const batch = b.add('Shape', ['input_ids'], { start: 0, end: 1 });
      return b.add('Concat', [batch, this.integers(-1, width)], { axis: 0 });
    });
    return b.add('Reshape', [x, shape]);
  }

  /** Returns keys or values of the caches' dtype as f32. */
  widened(cached: string): string {
    return this.settings.cacheDtype === 'f32' ? cached : this.b.cast(cached, 'f32');
  }

  /** Returns the number of past and present tokens, i64 `[1]`. */
  totalRows(): string {
    return this.once('total', () => this.b.add('Shape', ['attention_mask'], { start: 1, end: 2 }));
  }

  /** Returns the number of past tokens, i64 `[1]`. */
  pastRows(): string {
    const { b } = this;
    return this.once('past', () => {
      const seq = b.add('Shape', ['input_ids'], { start: 1, end: 2 });
      return b.add('Sub', [this.totalRows(), seq]);
    });
  }

  /** Returns `[batch, seq]` of this call, i64 `[2]`. */
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
  if (madeAs === 'scales' || madeAs === 'offsets') return 'f32';
  if (madeAs === 'numbers') return floatsOf(weights);
  const pairs = countElements(shape) < countElements(joined(weights));
  return blocksOf(weights[0]!)!.bits === 8 || pairs ? 'i8' : 'i4';
}

/** Returns the dtype of weights in one constant: f32, which is exact, if they have several. */
function floatsOf([first, ...others]: readonly WeightPlan[]): 'f32' | 'f16' | 'bf16' {
  return alike([first!, ...others]) ? (first!.held as 'f16') : 'f32';
}

/** Returns the shape of weights whose rows follow each other. */
export function joined(weights: readonly WeightPlan[]): number[] {
  const rows = weights.reduce((sum, { shape }) => sum + shape[0]!, 0);
  return [rows, ...weights[0]!.shape.slice(1)];
}

/** How the elements of a constant are made from a weight. */
export type MadeAs =
  /** The numbers of the weight, row by row. */
  | 'numbers'
  /** The integers of a matrix in blocks in the form of MatMulNBits, `[n, blocks, bytes of a block]`, u8. */
  | 'codes'
  /**
   * The integers of a matrix in blocks in the form of ONNX's own operators, row by row: i8; or i4, where each byte has
   * two neighbours, the first in its low half.
   */
  | 'signed'
  /** The scales of a matrix in blocks, `[n, groups]`, f32. */
  | 'scales'
  /** The numbers that are added to integers times scales, `[n, groups]`, f32. */
  | 'offsets';

/** A constant of the graph whose elements come from the model's weights. */
export interface WeightConstant {
  readonly name: string;
  /** i8 instead of i4 holds a pair of neighbours in each element. */
  readonly dtype: OnnxDtype;
  /**
   * Constants that are made of one weight in the same way have the same bytes and are stored once. Shapes may differ.
   */
  readonly shape: readonly number[];
  readonly weights: readonly WeightPlan[];
  readonly madeAs: MadeAs;
  /**
   * True if the rows of the weights alternate: row 0 of each, then row 1 of each. Otherwise one weight follows another.
   */
  readonly inTurns?: boolean;
}
