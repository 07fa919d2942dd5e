/** All strangers' kernels. @module */
import { AXES } from './axes.js';
import { CHANGED } from './changed.js';
import type { Stranger } from './kernel.js';
import { LAYOUT } from './layout.js';
import { MEMORY } from './memory.js';
import { POSITIONS } from './positions.js';
import { RIGHT } from './right.js';
import { UNSEEN_RIGHT } from './unseen-right.js';
import { UNSEEN_WRONG } from './unseen-wrong.js';
import { WRONG_16_BIT } from './wrong-16bit.js';
import { WRONG_FREQUENCIES } from './wrong-frequencies.js';
import { WRONG_PRECISION } from './wrong-precision.js';
import { WRONG_SCALING } from './wrong-scaling.js';

export const STRANGERS: readonly Stranger[] = [
  ...RIGHT,
  ...WRONG_16_BIT,
  ...WRONG_SCALING,
  ...WRONG_FREQUENCIES,
  ...WRONG_PRECISION,
  ...LAYOUT,
  ...MEMORY,
  ...POSITIONS,
  ...AXES,
  ...UNSEEN_RIGHT,
  ...UNSEEN_WRONG,
  ...CHANGED,
];
