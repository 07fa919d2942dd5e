/** File formats: untrusted bytes → checked views. @module */
export * from './gguf.js';
export * from './json.js';
export * from './npy.js';
export * from './permute-plan.js';
export * from './safetensors.js';
export * from './shards.js';
