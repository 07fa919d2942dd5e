/** Functions for the other packages of Ropewalk. They promise nothing, and change without notice. @module */
export {
  batchFirst,
  contextSeen,
  expectationOf,
  type KernelRun,
  observationOf,
  optionsLeftOut,
} from './observation.js';
