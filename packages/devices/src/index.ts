/**
 * The RoPE and attention that NPUs and their runtimes take: profiles of rules, each rule with its source, and devices
 * that compute with a profile's mistakes.
 *
 * @module @ropewalk/devices
 */
export {
  CANN_2024_DEVIATIONS,
  type Cann2024Call,
  type Cann2024Deviation,
  type Cann2024Options,
  describeSteps,
  openCann2024,
  runSteps,
  type StepBuffer,
} from './cann-2024/backend.js';

export type { Cann2024Step } from './cann-2024/steps.js';
export { DEVICES, deviceNamed } from './devices.js';
export type { AttentionUse, DeviceOperator, DeviceProfile, DeviceRule, RopeUse } from './profile.js';
export {
  type GraphWishes,
  type RopeForm,
  type RopeOnDeviceOptions,
  type RopeRefusal,
  type RopeStep,
  type RopeVerdict,
  ropeOnDevice,
} from './rope-on-device.js';
