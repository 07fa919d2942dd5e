/** What goes through tensors element by element, in the terms of kernels. @module */
import { Tensor } from '../core/tensor.js';
import type { AddPlan } from '../ops/add.js';
import type { GegluPlan, GeluPlan } from '../ops/gelu.js';
import { unknownPlan } from '../ops/op-plan.js';
import type { ScalePlan } from '../ops/scale.js';
import type { SwigluPlan } from '../ops/swiglu.js';

/** A plan that one kernel computes element by element. */
export type ElementwisePlan = AddPlan | GegluPlan | GeluPlan | ScalePlan | SwigluPlan;

/** The same in the terms of a kernel: `out = activation(a)`, times b where there is one; add and clamped need b. */
export interface ElementwiseTerms {
  /** `clamped`: SwiGLU with options; `softcap`: scale with one. */
  readonly activation: 'add' | 'swiglu' | 'clamped' | 'gelu' | 'geluTanh' | 'scale' | 'softcap';
  readonly a: Tensor;
  /** In the shape of a. */
  readonly b: Tensor | undefined;
  /** Those of clamped: limit, alpha, offset; of scale and softcap: factor, softcap. */
  readonly parameters: readonly number[];
}

/** Says what a plan is to a kernel. */
export function elementwiseTerms(plan: ElementwisePlan): ElementwiseTerms {
  switch (plan.op) {
    case 'add':
      return { activation: 'add', a: plan.a, b: plan.b, parameters: [] };
    case 'swiglu': {
      const { gate, up, limit = Number.POSITIVE_INFINITY, alpha, offset } = plan;
      const plain = limit === Number.POSITIVE_INFINITY && alpha === 1 && offset === 0;
      return { activation: plain ? 'swiglu' : 'clamped', a: gate, b: up, parameters: [limit, alpha, offset] };
    }
    case 'gelu':
      return { activation: GELU[plan.approximate], a: plan.x, b: undefined, parameters: [] };
    case 'geglu':
      return { activation: GELU[plan.approximate], a: plan.gate, b: plan.up, parameters: [] };
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
