/**
 * The RoPE and attention that NPUs and their runtimes take: profiles of rules, each rule with its source, and devices
 * that compute with a profile's mistakes.
 *
 * @module @ropewalk/devices
 */
export {
  CANN_2024_DEVIATIONS,
  type Cann2024Deviation,
  type Cann2024Options,
  type Cann2024TableErrors,
  cann2024TableErrors,
  openCann2024,
} from './cann-2024/backend.js';
export { type Cann2024Rotation, type Cann2024Sizes, type Cann2024Step, cann2024Steps } from './cann-2024/steps.js';
export { DEVICES, deviceNamed } from './devices.js';
export type {
  AttentionOperator,
  AttentionUse,
  DeviceOperator,
  DeviceProfile,
  DeviceRule,
  DeviceUse,
  OnnxOperators,
  PublishedLine,
  RopeCallKind,
  RopeOperator,
  RopeUse,
  TablesOf,
  UseLayout,
} from './profile.js';
export {
  type GraphWishes,
  type OnnxChoice,
  type RopeForm,
  type RopeOnDeviceOptions,
  type RopeRefusal,
  type RopeStep,
  type RopeVerdict,
  ropeOnDevice,
} from './rope-on-device.js';
