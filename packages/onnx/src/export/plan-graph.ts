/**
 * A graph under construction, with the plan's tensors that go in and come out.
 *
 * @module
 */
import type { Dtype, FloatDtype, Tensor } from 'ropewalk';
import type { AngleMode } from './angles.js';
import type { GraphBuilder } from './builder.js';
import { type GraphForm, narrowed } from './fragments.js';

/** How a plan becomes a graph. */
export interface EmitOptions {
  readonly form: GraphForm;
  /** Primitives: how angles are computed from positions. Unless given, f64; f64 tables are inputs instead. */
  readonly angles?: Extract<AngleMode, 'f64' | 'f32' | 'f32-reduced'>;
  /**
   * `inputs`: cos, sin and attention's mask are inputs, so that a graph depends on shapes alone. Unless given, a graph
   * of primitives computes the first two where it can, and the mask is a constant.
   */
  readonly tables?: 'inputs';
  /** Other names for graph inputs and outputs, by the names that {@link emitPlan} lists. */
  readonly names?: ReadonlyMap<string, string>;
  /** Argmax: `first` (the default) finds the first NaN, as the plan says; `unspecified` needs fewer nodes. */
  readonly nan?: 'first' | 'unspecified';
  /** Rearrange: always by places in the two storages, with `initial` as an input, even where a Transpose would do. */
  readonly places?: boolean;
}

/** An input or output of a graph, and the tensor whose elements it holds. */
export interface EmittedValue {
  /** As the graph calls it. */
  readonly name: string;
  /** Of the graph's shape and dtype; any strides. Of an output: where its elements go. */
  readonly tensor: Tensor;
}

/** What goes into a graph and comes out, in the graph's order. */
export interface EmittedGraph {
  readonly inputs: readonly EmittedValue[];
  readonly outputs: readonly EmittedValue[];
}

/** A plan that no graph can say. */
export interface NotEmitted {
  readonly whyNot: string;
}

/** A graph under construction, and the tensors of a plan that it takes. */
export class PlanGraph {
  readonly inputs: EmittedValue[] = [];
  readonly outputs: EmittedValue[] = [];

  constructor(
    readonly b: GraphBuilder,
    readonly options: EmitOptions,
  ) {}

  get primitives(): boolean {
    return this.options.form === 'primitives';
  }

  /** A tensor as an input of the graph. */
  take(name: string, tensor: Tensor): string {
    const called = this.options.names?.get(name) ?? name;
    this.inputs.push({ name: called, tensor });
    return this.b.input(called, tensor.dtype, tensor.shape);
  }

  /** {@link take}, then cast to what is computed in. */
  wide(name: string, tensor: Tensor, compute: 'f32' | 'f64'): string {
    const value = this.take(name, tensor);
    return tensor.dtype === compute ? value : this.b.cast(value, compute);
  }

  /** A value as an output of the graph. */
  give(value: string, name: string, tensor: Tensor): void {
    const called = this.options.names?.get(name) ?? name;
    this.outputs.push({ name: called, tensor });
    this.b.output(value, called, tensor.dtype, tensor.shape);
  }

  /** {@link give}, after rounding from what was computed in. */
  round(value: string, compute: 'f32' | 'f64', name: string, tensor: Tensor<FloatDtype>): void {
    this.give(narrowed(this.b, value, compute, tensor.dtype), name, tensor);
  }
}

/** What a graph computes in for data of a dtype. */
export function computeIn(...dtypes: readonly Dtype[]): 'f32' | 'f64' {
  return dtypes.includes('f64') ? 'f64' : 'f32';
}
