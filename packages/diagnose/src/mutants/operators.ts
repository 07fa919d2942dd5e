/** What a call to a peer's operator cannot ask for: a bug that needs it cannot happen to a kernel of that operator. @module */
import type { Mutant, Need } from '../kernel/mutant.js';
import {
  AXES,
  BACKWARD,
  BATCHES,
  COMPUTED,
  DYNAMIC_NTK,
  FREQ_FACTORS,
  INTERLEAVED,
  LINEAR,
  LLAMA3,
  LONGROPE,
  MAGNITUDE,
  NEGATIVE,
  NORM,
  OFFSET,
  OWN_POSITIONS,
  PARTIAL,
  PROPORTIONAL,
  READ_ONE_WRITTEN_OTHER,
  YARN,
} from './entry.js';
import { GIVEN, MSCALES, UNTRUNCATED } from './yarn.js';

interface Operator {
  readonly name: string;
  readonly lacks: readonly Need[];
}

/** By the suite of its vectors. */
const OPERATORS: Readonly<Record<string, Operator>> = {
  ggml: {
    name: 'ggml_rope',
    // YaRN's magnitude comes as attn_factor, which multiplies the formula's; the ramp's edges are always rounded.
    lacks: [
      GIVEN,
      MSCALES,
      UNTRUNCATED,
      OWN_POSITIONS,
      LLAMA3,
      LONGROPE,
      DYNAMIC_NTK,
      PROPORTIONAL,
      READ_ONE_WRITTEN_OTHER,
      NORM,
    ],
  },
  onnx: {
    name: 'ONNX’s RotaryEmbedding',
    lacks: [OFFSET, BACKWARD, READ_ONE_WRITTEN_OTHER, AXES, NORM],
  },
  llaisys: {
    name: 'LLAISYS’s rope',
    lacks: [
      INTERLEAVED,
      READ_ONE_WRITTEN_OTHER,
      PARTIAL,
      OFFSET,
      BACKWARD,
      YARN,
      LLAMA3,
      LONGROPE,
      DYNAMIC_NTK,
      LINEAR,
      PROPORTIONAL,
      FREQ_FACTORS,
      MAGNITUDE,
      BATCHES,
      AXES,
      NORM,
    ],
  },
  infiniop: {
    name: 'InfiniOp’s RoPE',
    lacks: [OFFSET, BACKWARD, READ_ONE_WRITTEN_OTHER, NORM],
  },
};

/** A table has no rows before 0, and what it was made of does not show. */
const OF_A_TABLE: readonly Need[] = [COMPUTED, NEGATIVE];

/**
 * Says why a bug cannot happen to the kernel that a case is about.
 *
 * @param suite - of the case
 * @param given - whether its table came with the call
 * @returns undefined where it can: another case would show it
 */
export function whyNever(mutant: Mutant, suite: string, given: boolean): string | undefined {
  const { requires = [] } = mutant;
  if (given && requires.some((one) => OF_A_TABLE.some((lacked) => includes(one, lacked))))
    return `the kernel is given its table, and this bug needs ${mutant.needs}`;
  const operator = Object.hasOwn(OPERATORS, suite) ? OPERATORS[suite]! : undefined;
  const lacked = operator?.lacks.find((lack) => requires.some((one) => includes(one, lack)));
  return lacked && `${operator!.name} cannot be asked for ${lacked.words}`;
}

/** Whether a call that meets `need` also meets `other`. */
function includes(need: Need, other: Need): boolean {
  return need === other || (need.implies !== undefined && includes(need.implies, other));
}
