/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */
export { DECODER_FORMATS, decoderModel } from './model.js';
export { DECODER_FORMS } from './scope.js';
export { layoutWeights, writeWeights } from './weights.js';
