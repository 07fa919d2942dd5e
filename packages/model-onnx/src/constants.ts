/**
 * The weights of a decoder's graph: which constants they are, and what each is made of.
 *
 * @module
 */
import type { WeightPlan } from '@ropewalk/model/internal';
import type { OnnxDtype } from '@ropewalk/onnx/internal';

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
