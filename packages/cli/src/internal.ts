/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */
export { BACKENDS, openBackend } from './backends.js';
export { builtInCases, check } from './check.js';
export { DOCS } from './command-help.js';
export { type MutantsOptions, mutants } from './mutants.js';
export { permute } from './permute.js';
export { commandLine } from './run.js';
