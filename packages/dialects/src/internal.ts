/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */

export { peerOf } from './convert/convert.js';
export { rotationMatrix } from './convert/rotation-matrix.js';
export { GGUF_ARCHITECTURES } from './gguf-architectures.js';
export { ropeFromConfig } from './huggingface.js';
export { MODELS, REFUSED, WITHOUT_ROPE } from './huggingface-models.js';
export { describeReading } from './passport/passport.js';
export { checkStamp, STAMP_FORM } from './passport/stamp.js';
