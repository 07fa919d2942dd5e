/** The operators that compute element by element, in the terms of their kernel. @module */
import { Tensor } from '../core/tensor.js';
import type { AddPlan } from '../ops/add.js';
import type { GegluPlan, GeluPlan } from '../ops/gelu.js';
import { unknownPlan } from '../ops/op-plan.js';
import type { ScalePlan } from '../ops/scale.js';
import type { SwigluPlan } from '../ops/swiglu.js';
import type { XieluPlan } from '../ops/xielu.js';

/** A plan that the kernel for element-by-element operators computes. */
export type ElementwisePlan = AddPlan | GegluPlan | GeluPlan | ScalePlan | SwigluPlan | XieluPlan;

/** Such a plan in the terms of the kernel: `out = activation(a)`, times b where there is one; add, sigmoid, relu and clamped need b. */
export interface ElementwiseTerms {
  /** `clamped` is SwiGLU with options, `softcap` is scale with a soft cap. */
  readonly activation:
    | 'add'
    | 'swiglu'
    | 'sigmoid'
    | 'relu'
    | 'clamped'
    | 'gelu'
    | 'geluTanh'
    | 'xielu'
    | 'scale'
    | 'softcap';
  readonly a: Tensor;
  /** The second operand, in the shape of a. */
  readonly b: Tensor | undefined;
  /** For clamped limit, alpha and offset; for xielu positive, negative and beta; for scale and softcap the factor and the soft cap. */
  readonly parameters: readonly number[];
}

/** Translates a plan into the terms of the kernel. */
export function elementwiseTerms(plan: ElementwisePlan): ElementwiseTerms {
  switch (plan.op) {
    case 'add':
      return { activation: 'add', a: plan.a, b: plan.b, parameters: [] };
    case 'swiglu': {
      const { gate, up, limit = Number.POSITIVE_INFINITY, alpha, offset } = plan;
      if (plan.activation !== 'silu') return { activation: plan.activation, a: gate, b: up, parameters: [] };
      const plain = limit === Number.POSITIVE_INFINITY && alpha === 1 && offset === 0;
      return { activation: plain ? 'swiglu' : 'clamped', a: gate, b: up, parameters: [limit, alpha, offset] };
    }
    case 'gelu':
      return { activation: GELU[plan.approximate], a: plan.x, b: undefined, parameters: [] };
    case 'geglu':
      return { activation: GELU[plan.approximate], a: plan.gate, b: plan.up, parameters: [] };
    case 'xielu':
      return { activation: 'xielu', a: plan.x, b: undefined, parameters: [plan.positive, plan.negative, plan.beta] };
    case 'scale': {
      const { x, factor, softcap } = plan;
      const activation = softcap === undefined ? 'scale' : 'softcap';
      if (typeof factor === 'number') return { activation, a: x, b: undefined, parameters: [factor, softcap ?? 0] };
      const { shape } = x;
      const rows = new Tensor(factor.storage, { shape, strides: [...factor.strides, 0], offset: factor.offset });
      return { activation, a: x, b: rows, parameters: [1, softcap ?? 0] };
    }
    default:
      return unknownPlan(plan satisfies never);
  }
}

const GELU = { none: 'gelu', tanh: 'geluTanh' } as const;
