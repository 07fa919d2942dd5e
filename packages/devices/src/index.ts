/**
 * What NPUs and their runtimes take of RoPE and attention: profiles of rules, each rule with its source, and devices
 * that compute with a profile's mistakes.
 *
 * @module
 */
export { DEVICES, deviceNamed } from './devices.js';
export type {
  AttentionOperator,
  AttentionUse,
  DeviceOperator,
  DeviceProfile,
  DeviceRule,
  DeviceUse,
  OnnxOperators,
  RopeCallKind,
  RopeOperator,
  RopeUse,
  UseLayout,
} from './profile.js';
