/** The bugs that cannot happen to a kernel of a peer's operator, because no call can ask the operator for what they need. @module */
import type { Mutant, Need } from '../kernel/mutant.js';
import { NEEDS } from './entry.js';

interface Operator {
  readonly name: string;
  /** The needs that no call to it meets. */
  readonly lacks: readonly (keyof typeof NEEDS)[];
}

const { computed, negative } = NEEDS;

/** The scaling rules that an operator with a base only cannot compute. */
const RULES = ['llama3', 'longrope', 'dynamicNtk', 'proportional'] as const;

/** The operators by the suites of their vectors. */
const OPERATORS: Readonly<Record<string, Operator>> = {
  ggml: {
    name: 'ggml_rope',
    // YaRN's magnitude comes as attn_factor, which multiplies the formula's; the edges of the ramp are always rounded.
    lacks: ['attentionFactor', 'mscales', 'untruncated', 'batchPositions', ...RULES, 'interleavedToHalf', 'norm'],
  },
  onnx: {
    name: 'ONNX’s RotaryEmbedding',
    lacks: ['offset', 'backward', 'interleavedToHalf', 'axes', 'norm'],
  },
  llaisys: {
    name: 'LLAISYS’s rope',
    lacks: [
      'interleaved',
      'interleavedPairs',
      'interleavedToHalf',
      'partial',
      'offset',
      'backward',
      'yarn',
      ...RULES,
      'linear',
      'freqFactors',
      'magnitude',
      'batches',
      'axes',
      'norm',
    ],
  },
  infiniop: {
    name: 'InfiniOp’s RoPE',
    lacks: ['offset', 'backward', 'interleavedToHalf', 'norm'],
  },
};

/**
 * Says why a bug cannot happen to the kernel that a case is about.
 *
 * @param suite - the suite of the case
 * @param given - whether its table came with the call
 * @returns undefined if it can happen, so that another case would show it
 */
export function whyNever(mutant: Mutant, suite: string, given: boolean): string | undefined {
  const { requires = [] } = mutant;
  // A table has no rows before 0, and does not show what it was made of.
  if (given && requires.some((one) => includes(one, computed) || includes(one, negative)))
    return `the kernel is given its table, and this bug needs ${mutant.needs}`;
  const operator = Object.hasOwn(OPERATORS, suite) ? OPERATORS[suite]! : undefined;
  const lacked = operator?.lacks.find((lack) => requires.some((one) => includes(one, NEEDS[lack])));
  return lacked && `${operator!.name} cannot be asked for ${NEEDS[lacked].words}`;
}

/** Whether a call that meets `need` also meets `other`. */
function includes(need: Need, other: Need): boolean {
  return need === other || (need.implies !== undefined && includes(need.implies, other));
}
