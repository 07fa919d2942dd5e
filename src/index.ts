/**
 * Ropewalk: the operators of a decoder-only transformer, RoPE first. This entry has no runtime dependency.
 *
 * @module
 */
export type { Backend, BackendEntry, Capabilities } from './backends/backend.js';
export * from './core/index.js';
export * from './ops/index.js';
export { BACKENDS, openBackend } from './registry.js';
export * from './ropewalk.js';
