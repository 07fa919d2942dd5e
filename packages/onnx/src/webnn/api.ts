/**
 * The part of WebNN that is used here. TypeScript's DOM library has none of it.
 *
 * @module
 * @see webmachinelearning/webnn@c515210 index.bs
 */

/** The dtypes of WebNN that our graphs use. */
export type MlDtype = 'float32' | 'float16' | 'int32' | 'uint8';

/** The dtype and shape of a tensor. Every dimension is at least 1. */
export interface MlDescriptor {
  readonly dataType: MlDtype;
  readonly shape: readonly number[];
}

export interface MlOperand extends MlDescriptor {}

export interface MlTensor extends MlDescriptor {
  destroy(): void;
}

/** A compiled graph. Some builds of Chromium tell which devices run it. */
export interface MlGraph {
  readonly devices?: readonly string[];
  destroy(): void;
}

/** The types that an operator takes in one of its places. */
export interface MlSupport {
  readonly dataTypes: readonly string[];
  readonly rankRange?: { readonly min: number; readonly max: number };
}

/** The result of `opSupportLimits()`, by operator and place. Some entries are numbers or texts. */
export type MlLimits = Readonly<Record<string, unknown>>;

export interface MlContext {
  readonly lost: Promise<{ readonly message: string }>;
  createTensor(
    descriptor: MlDescriptor & { readonly readable: boolean; readonly writable: boolean },
  ): Promise<MlTensor>;
  writeTensor(tensor: MlTensor, data: ArrayBufferView): void;
  readTensor(tensor: MlTensor): Promise<ArrayBuffer>;
  dispatch(
    graph: MlGraph,
    inputs: Readonly<Record<string, MlTensor>>,
    outputs: Readonly<Record<string, MlTensor>>,
  ): void;
  opSupportLimits(): MlLimits;
  destroy(): void;
}

type Unary = (x: MlOperand) => MlOperand;
type Binary = (a: MlOperand, b: MlOperand) => MlOperand;
type Reduction = (
  x: MlOperand,
  options: { readonly axes: readonly number[]; readonly keepDimensions: boolean },
) => MlOperand;

export interface MlBuilder {
  input(name: string, descriptor: MlDescriptor): MlOperand;
  constant(descriptor: MlDescriptor, data: ArrayBufferView): MlOperand;
  readonly abs: Unary;
  readonly erf: Unary;
  readonly exp: Unary;
  readonly identity: Unary;
  readonly isNaN: Unary;
  readonly neg: Unary;
  readonly sqrt: Unary;
  readonly tanh: Unary;
  readonly add: Binary;
  readonly div: Binary;
  readonly equal: Binary;
  readonly lesser: Binary;
  readonly logicalAnd: Binary;
  readonly matmul: Binary;
  readonly max: Binary;
  readonly min: Binary;
  readonly mul: Binary;
  readonly notEqual: Binary;
  readonly sub: Binary;
  readonly reduceMax: Reduction;
  readonly reduceMean: Reduction;
  readonly reduceSum: Reduction;
  argMax(x: MlOperand, axis: number, options: { readonly outputDataType: 'int32' }): MlOperand;
  cast(x: MlOperand, type: MlDtype): MlOperand;
  concat(parts: readonly MlOperand[], axis: number): MlOperand;
  expand(x: MlOperand, shape: readonly number[]): MlOperand;
  gather(x: MlOperand, indices: MlOperand, options: { readonly axis: number }): MlOperand;
  gemm(a: MlOperand, b: MlOperand, options: { readonly bTranspose: boolean }): MlOperand;
  reshape(x: MlOperand, shape: readonly number[]): MlOperand;
  scatterND(x: MlOperand, indices: MlOperand, updates: MlOperand): MlOperand;
  slice(x: MlOperand, starts: readonly number[], sizes: readonly number[]): MlOperand;
  softmax(x: MlOperand, axis: number): MlOperand;
  split(x: MlOperand, sizes: readonly number[], options: { readonly axis: number }): readonly MlOperand[];
  transpose(x: MlOperand, options: { readonly permutation: readonly number[] }): MlOperand;
  where(condition: MlOperand, a: MlOperand, b: MlOperand): MlOperand;
  build(outputs: Readonly<Record<string, MlOperand>>): Promise<MlGraph>;
}

/** The entry points of WebNN: `navigator.ml` and a global class. */
export interface Webnn {
  readonly ml: { createContext(options?: { readonly powerPreference?: string }): Promise<MlContext> };
  readonly MLGraphBuilder: new (context: MlContext) => MlBuilder;
}
