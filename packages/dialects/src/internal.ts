/** What other packages of Ropewalk use of this one. No promise: it changes without notice. @module */

export { peerOf } from './convert/convert.js';
export { GGUF_ARCHITECTURES } from './gguf-architectures.js';
export { ropeFromConfig } from './huggingface.js';
export { MODELS, REFUSED, WITHOUT_ROPE } from './huggingface-models.js';
