/** Says whether tests can use ONNX Runtime here. */
import { whyNotOnnxruntime } from '@ropewalk/onnx';

/** The reason why tests in ONNX Runtime are skipped here, or false. */
export const noOnnxruntime: string | false = (await whyNotOnnxruntime()) ?? false;
