/** Reads the effective RoPE of each layer from HuggingFace's config.json. @module */
export { ropeFromConfig } from './huggingface-config.js';
