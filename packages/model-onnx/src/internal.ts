/** What other packages of Ropewalk use of this one. No promise: it changes without notice. @module */
export { DECODER_FORMATS, decoderModel } from './model.js';
export { DECODER_FORMS } from './scope.js';
export { layoutWeights, writeWeights } from './weights.js';
