/** All strangers' kernels. @module */
import type { Stranger } from './kernel.js';
import { RIGHT } from './right.js';
import { WRONG_SCALING } from './wrong-scaling.js';

export const STRANGERS: readonly Stranger[] = [...RIGHT, ...WRONG_SCALING];
