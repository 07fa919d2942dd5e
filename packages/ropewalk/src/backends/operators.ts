/** How a backend runs a plan: by its operator's function, on a call that ends whatever happens. @module */
import { type OperatorTable, type OpPlan, operatorOf } from '../ops/op-plan.js';

/** One run of a plan: its tensors, and the memory that it takes until its end. */
interface BackendCall {
  /** Copies what was written in host tensors back to them. */
  copyBack(): void;
  /** Gives all memory of the call back. */
  release(): void;
}

/** Runs a plan on a fresh call. */
export function runPlan<Call extends BackendCall>(table: OperatorTable<[Call]>, plan: OpPlan, call: Call): void {
  try {
    operatorOf(table, plan)(plan, call);
    call.copyBack();
  } finally {
    call.release();
  }
}
