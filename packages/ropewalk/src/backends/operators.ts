/** Which function runs which operator in a backend, and how a call ends. @module */
import type { OpName, OpPlan } from '../ops/op-plan.js';

/** What runs the plans of each operator. */
export type OperatorTable<Call> = {
  readonly [Op in OpName]: (plan: Extract<OpPlan, { readonly op: Op }>, call: Call) => void;
};

/** One run of a plan: the tensors that it brings, and the memory that it takes. */
interface BackendCall {
  /** Copies what was written in host tensors back to them. */
  takeHome(): void;
  /** Gives all memory of the call back. */
  release(): void;
}

/**
 * Runs a plan by its operator's function.
 *
 * @param call - a fresh one; its memory is given back whatever happens
 */
export function runPlan<Call extends BackendCall>(operators: OperatorTable<Call>, plan: OpPlan, call: Call): void {
  const runOperator = operators[plan.op] as (plan: OpPlan, call: Call) => void;
  try {
    runOperator(plan, call);
    call.takeHome();
  } finally {
    call.release();
  }
}
