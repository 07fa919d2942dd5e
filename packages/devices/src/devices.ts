/** The list of profiles. @module */
import { readName } from 'ropewalk/internal';
import { CANN_2024 } from './cann-2024/profile.js';
import type { DeviceProfile } from './profile.js';
import { ACLNN_310P, ACLNN_950, ACLNN_A2 } from './profiles/aclnn.js';
import { GGML_CANN, GGML_CANN_310P, GGML_CANN_2024 } from './profiles/ggml-cann.js';
import { INFINIOP_ASCEND, INFINIOP_ASCEND_2025 } from './profiles/infiniop.js';
import { ORT_CANN, ORT_COREML, ORT_QNN, ORT_WEBGPU, ORT_WEBNN } from './profiles/onnxruntime.js';

/** Every profile. */
export const DEVICES: readonly DeviceProfile[] = /* @__PURE__ */ Object.freeze([
  CANN_2024,
  GGML_CANN_2024,
  GGML_CANN,
  GGML_CANN_310P,
  ACLNN_A2,
  ACLNN_310P,
  ACLNN_950,
  INFINIOP_ASCEND_2025,
  INFINIOP_ASCEND,
  ORT_CANN,
  ORT_QNN,
  ORT_COREML,
  ORT_WEBNN,
  ORT_WEBGPU,
]);

/**
 * Finds a profile.
 *
 * @param name - the name of one of {@link DEVICES}
 * @throws {RopewalkError} UNSUPPORTED for another name
 */
export function deviceNamed(name: string): DeviceProfile {
  const names = DEVICES.map((device) => device.name);
  return DEVICES[names.indexOf(readName(name, names, 'device'))]!;
}
