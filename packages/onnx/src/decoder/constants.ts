/**
 * The weights of a decoder's graph: which constants they are, and what each is made of.
 *
 * @module
 */
import type { WeightPlan } from '@ropewalk/model/description';
import type { Dtype } from 'ropewalk';

/** How the elements of a constant come from a weight. */
export type MadeAs =
  /** The numbers of the weight, row by row. */
  | 'numbers'
  /** Of a matrix in blocks: its integers as MatMulNBits has them, `[n, blocks, bytes of a block]`, u8. */
  | 'codes'
  /** Of a matrix in blocks: its scales, `[n, blocks]`, f32. */
  | 'scales';

/** A constant of the graph whose elements come from the model's weights. */
export interface WeightConstant {
  readonly name: string;
  readonly dtype: Dtype;
  /** Constants of one weight that are made alike have the same bytes, and are stored once; shapes may differ. */
  readonly shape: readonly number[];
  readonly weights: readonly WeightPlan[];
  readonly madeAs: MadeAs;
}
