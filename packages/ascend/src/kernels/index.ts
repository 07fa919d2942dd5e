/** Every kernel that comes with the model, by its name. @module */
import type { KernelName } from '../trace.js';
import { CORRECT } from './correct.js';
import type { KernelDeclaration } from './declaration.js';
import { ADD, RMS_NORM, SOFTMAX, SWIGLU } from './dense.js';
import { FAST } from './fast.js';
import { BASELINE, INFINICORE_GPTJ, INFINICORE_NEOX } from './infinicore.js';

/** The RoPE kernels, slowest first. */
export const ROPE_KERNELS: { readonly [name in KernelName]: KernelDeclaration } = /* @__PURE__ */ Object.freeze({
  baseline: BASELINE,
  correct: CORRECT,
  fast: FAST,
  'infinicore-gptj': INFINICORE_GPTJ,
  'infinicore-neox': INFINICORE_NEOX,
});

/** All kernels; those of other operators than rope have the operator's name. */
export const KERNELS: { readonly [name: string]: KernelDeclaration } = /* @__PURE__ */ Object.freeze({
  ...ROPE_KERNELS,
  add: ADD,
  rms_norm: RMS_NORM,
  swiglu: SWIGLU,
  softmax: SOFTMAX,
});
