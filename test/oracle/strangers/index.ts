/** All strangers' kernels. @module */
import { AXES } from './axes.js';
import type { Stranger } from './kernel.js';
import { LAYOUT } from './layout.js';
import { MEMORY } from './memory.js';
import { POSITIONS } from './positions.js';
import { RIGHT } from './right.js';
import { WRONG_SCALING } from './wrong-scaling.js';

export const STRANGERS: readonly Stranger[] = [...RIGHT, ...WRONG_SCALING, ...LAYOUT, ...MEMORY, ...POSITIONS, ...AXES];
