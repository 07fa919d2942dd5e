/** The list of profiles. @module */
import { refuse } from 'ropewalk/backend';
import { CANN_2024 } from './cann-2024/profile.js';
import type { DeviceProfile } from './profile.js';

/** Every profile. */
export const DEVICES: readonly DeviceProfile[] = /* @__PURE__ */ Object.freeze([CANN_2024]);

/**
 * Finds a profile.
 *
 * @param name - the name of one of {@link DEVICES}
 * @throws {RopewalkError} UNSUPPORTED for another name
 */
export function deviceNamed(name: string): DeviceProfile {
  return (
    DEVICES.find((device) => device.name === name) ??
    refuse('UNSUPPORTED', 'device', DEVICES.map((device) => device.name).join(', '), name)
  );
}
