/**
 * A graph under construction, and the tensors of the plan that are its inputs and outputs.
 *
 * @module
 */
import type { Dtype, FloatDtype, Tensor } from 'ropewalk';
import type { AngleMode } from './angles.js';
import type { GraphBuilder } from './builder.js';
import type { GraphContext, GraphForm, Wide } from './fragments.js';
import { narrowed } from './fragments.js';

/** How a plan becomes a graph. */
export interface EmitOptions {
  readonly form: GraphForm;
  /** Primitives: how angles are computed from positions. Default: f64, or tables as inputs if they are f64. */
  readonly angles?: Extract<AngleMode, 'f64' | 'f32' | 'f32-reduced'>;
  /** With `inputs`, cos, sin and the mask of attention are inputs. Default: computed or constant where possible. */
  readonly tables?: 'inputs';
  /** Other names for graph inputs and outputs. The keys are the names that {@link emitPlan} lists. */
  readonly names?: ReadonlyMap<string, string>;
  /** Argmax: `first` (the default) finds the first NaN, as the plan does; `unspecified` needs fewer nodes. */
  readonly nan?: 'first' | 'unspecified';
  /** Rearrange: copies by places in the two storages, with `initial` as an input, even if a Transpose would do. */
  readonly places?: boolean;
}

/** An input or output of a graph, and the tensor that holds its elements. */
export interface EmittedValue {
  readonly name: string;
  /** A tensor of the graph's shape and dtype, with any strides. For an output it says where the elements go. */
  readonly tensor: Tensor;
}

/** The inputs and outputs of a graph, in the graph's order. */
export interface EmittedGraph {
  readonly inputs: readonly EmittedValue[];
  readonly outputs: readonly EmittedValue[];
}

/** The result for a plan that no graph can express. */
export interface NotEmitted {
  readonly whyNot: string;
}

export class PlanGraph implements GraphContext {
  readonly inputs: EmittedValue[] = [];
  readonly outputs: EmittedValue[] = [];
  readonly form: GraphForm;

  constructor(
    readonly b: GraphBuilder,
    readonly options: EmitOptions,
    readonly compute: Wide,
  ) {
    this.form = options.form;
  }

  /** Makes a tensor an input of the graph. */
  take(name: string, tensor: Tensor): string {
    const called = this.options.names?.get(name) ?? name;
    this.inputs.push({ name: called, tensor });
    return this.b.input(called, tensor.dtype, tensor.shape);
  }

  /** Does {@link take}, and casts to the dtype of the computation. */
  wide(name: string, tensor: Tensor, compute = this.compute): string {
    const value = this.take(name, tensor);
    return tensor.dtype === compute ? value : this.b.cast(value, compute);
  }

  /** Makes a value an output of the graph. */
  give(value: string, name: string, tensor: Tensor): void {
    const called = this.options.names?.get(name) ?? name;
    this.outputs.push({ name: called, tensor });
    this.b.output(value, called, tensor.dtype, tensor.shape);
  }

  /** Rounds from the dtype of the computation, and does {@link give}. */
  round(value: string, name: string, tensor: Tensor<FloatDtype>, compute = this.compute): void {
    this.give(narrowed(this.b, value, compute, tensor.dtype), name, tensor);
  }
}

/** Returns the dtype in which a graph computes with data of these dtypes. */
export function computeIn(...dtypes: readonly Dtype[]): Wide {
  return dtypes.includes('f64') ? 'f64' : 'f32';
}
