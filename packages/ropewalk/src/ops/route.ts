/** The choice of experts: a router's logits → each token's experts and their weights. @module */
import { type OptionNames, readName, readOptional, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import {
  CHECKED,
  checkApart,
  checkDims,
  checkDtype,
  checkedPlan,
  checkFloat,
  checkOutput,
  checkStored,
} from './checks.js';

/** Splits the experts into groups; only experts of the best groups are chosen. */
export interface RouteGroups {
  /** The number of groups, all of one size, in order. */
  readonly count: number;
  /** The number of groups whose experts may be chosen. */
  readonly used: number;
  /** A group's score is the sum of this many best scores in it: 2 in DeepSeek-V3, 1 in DeepSeek-V2. */
  readonly best: 1 | 2;
}

/** How experts are chosen and weighted. */
export interface RouteOptions {
  /**
   * Logits become scores: `softmax` over all experts, `sigmoid` of each, or `softmax-of-chosen`: the logits
   * themselves, and the weights are the softmax over the chosen ones (gpt-oss). `sparsemixer` chooses two by their
   * logits (PhiMoE). The weight of each is its softmax over the experts near it, and the first takes no part in the
   * second's. An expert with logit s is near the one with m if (m − s) / max(|s|, m) is at most 2 · jitter.
   */
  readonly gate: 'softmax' | 'sigmoid' | 'softmax-of-chosen' | 'sparsemixer';
  /** How far experts are near each other, for `sparsemixer`. At least 0; default: 0.01. */
  readonly jitter?: number;
  /** `[experts]`; is added to the scores when experts are chosen, but not to their weights. Default: none. */
  readonly bias?: Tensor;
  readonly groups?: RouteGroups;
  /** Divides the weights by their sum, which counts as at least 2^-14. Default: false. */
  readonly normalize?: boolean;
  /** Multiplies the weights. Default: 1. */
  readonly scale?: number;
}

const NAMES: OptionNames<RouteOptions> = {
  gate: true,
  jitter: true,
  bias: true,
  groups: true,
  normalize: true,
  scale: true,
};
const GROUP_NAMES: OptionNames<RouteGroups> = { count: true, used: true, best: true };

/** A checked choice of experts. Frozen. */
export interface RoutePlan {
  readonly op: 'route';
  /** `[tokens, experts]` */
  readonly logits: Tensor<FloatDtype>;
  readonly gate: RouteOptions['gate'];
  readonly jitter: number;
  /** `[experts]` */
  readonly bias: Tensor<FloatDtype> | undefined;
  readonly groups: RouteGroups | undefined;
  readonly normalize: boolean;
  readonly scale: number;
  /** `[tokens, chosen]` */
  readonly indices: Tensor<'i32'>;
  /** `[tokens, chosen]` */
  readonly weights: Tensor<FloatDtype>;
}

/** The least sum by which weights are divided when they are normalised: f16's smallest normal number, as in ggml. */
export const LEAST_SUM = 2 ** -14;

/**
 * Checks a choice of experts. The best scores come first; of equal ones the lower expert.
 *
 * @param logits - `[tokens, experts]`, any strides, any float dtype; only read
 * @param indices - `[tokens, chosen]`, i32, with chosen <= experts; written
 * @param weights - `[tokens, chosen]`, the dtype of logits; written
 * @param options - gate, jitter, bias, groups, normalise, scale
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE, UNSUPPORTED or ALIAS
 * @see ggml-org/llama.cpp@de3ff815 src/llama-graph.cpp build_moe_ffn; arXiv:2412.19437, section 2.1.2;
 *   huggingface/transformers@v5.18.0 src/transformers/models/phimoe/modeling_phimoe.py sparsemixer
 */
export function planRoute(logits: Tensor, indices: Tensor, weights: Tensor, options: RouteOptions): RoutePlan {
  const {
    gate,
    jitter = 0.01,
    bias,
    groups,
    normalize = false,
    scale = 1,
  } = readOptions(options, 'route: options', NAMES);
  checkTensor(logits, 'route: logits');
  if (logits.rank !== 2) refuse('SHAPE', 'route: logits', 'two dimensions [tokens, experts]', logits.shape);
  const [tokens, experts] = logits.shape as [number, number];
  checkTensor(indices, 'route: indices');
  const chosen = indices.shape.at(-1) ?? 0;
  checkDims(indices, 'route: indices', [tokens, chosen]);
  checkDims(weights, 'route: weights', [tokens, chosen]);
  checkFloat(logits, 'route: logits');
  checkDtype(indices, 'route: indices', 'i32');
  checkFloat(weights, 'route: weights', logits.dtype);
  if (chosen > experts) refuse('SHAPE', 'route: indices', `at most ${experts} chosen experts`, chosen);
  readName(gate, ['softmax', 'sigmoid', 'softmax-of-chosen', 'sparsemixer'], 'route: gate');
  if (gate === 'sparsemixer') {
    if (chosen !== 2) refuse('SHAPE', 'route: indices', '2 chosen experts, as sparsemixer has', chosen);
    if (bias || groups) refuse('UNSUPPORTED', 'route: gate', 'another one with a bias or groups', gate);
  }
  if (!(jitter >= 0 && jitter < Infinity)) refuse('RANGE', 'route: jitter', 'a finite number >= 0', jitter);
  if (bias !== undefined) {
    checkDims(bias, 'route: bias', [experts]);
    checkStored(bias, 'route: bias', logits.dtype);
  }
  if (typeof normalize !== 'boolean') refuse('RANGE', 'route: normalize', 'true or false', normalize);
  if (!Number.isFinite(scale)) refuse('RANGE', 'route: scale', 'a finite number', scale);
  checkOutput(indices, 'route: indices');
  checkOutput(weights, 'route: weights');
  checkApart(weights, 'route: weights', 'indices', indices);
  for (const [name, input] of Object.entries({ logits, bias })) {
    if (!input) continue;
    checkApart(indices, 'route: indices', name, input);
    checkApart(weights, 'route: weights', name, input);
  }
  const choice = { gate, jitter, bias, groups: readGroups(groups, experts, chosen), normalize, scale };
  return checkedPlan<RoutePlan>({ checked: CHECKED, op: 'route', logits, ...choice, indices, weights });
}

function readGroups(given: RouteGroups | undefined, experts: number, chosen: number): RouteGroups | undefined {
  const groups = readOptional(given, 'route: groups', GROUP_NAMES);
  if (groups === undefined) return undefined;
  const { count, used, best } = groups;
  if (!Number.isInteger(count) || count < 1 || experts % count !== 0)
    refuse('RANGE', 'route: groups.count', `a divisor of the ${experts} experts`, count);
  if (!Number.isInteger(used) || used < 1 || used > count)
    refuse('RANGE', 'route: groups.used', `an integer in [1, ${count}]`, used);
  if (best !== 1 && best !== 2) refuse('RANGE', 'route: groups.best', '1 or 2', best);
  const left = used * (experts / count);
  if (chosen > left) refuse('SHAPE', 'route: indices', `at most ${left} experts, those of ${used} groups`, chosen);
  return Object.freeze({ count, used, best });
}
