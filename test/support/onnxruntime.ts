/** Says whether tests can use ONNX Runtime here. */
import { whyNotOnnxruntime } from '../../packages/onnx/src/onnxruntime/package.js';

/** The reason why tests in ONNX Runtime are skipped here, or false. */
export const noOnnxruntime: string | false = (await whyNotOnnxruntime()) ?? false;
