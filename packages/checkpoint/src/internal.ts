/** Functions for the other packages of Ropewalk. They promise nothing, and change without notice. @module */
export { contextSeen, expectationOf, type KernelRun, observationOf, optionsLeftOut } from './observation.js';
