/** Whether tests can have ONNX Runtime here. */
import { whyNotOnnxruntime } from '@ropewalk/onnx';

/** Why tests in ONNX Runtime are skipped here, or false. */
export const noOnnxruntime: string | false = (await whyNotOnnxruntime()) ?? false;
