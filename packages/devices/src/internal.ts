/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */

export { type Cann2024TableErrors, cann2024TableErrors } from './cann-2024/backend.js';
export { type Cann2024Step, cann2024Steps } from './cann-2024/steps.js';
export type { PublishedLine } from './profile.js';
export type { OnnxChoice } from './rope-on-device.js';
