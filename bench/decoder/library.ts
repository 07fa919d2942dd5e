/**
 * The decoder as it is published, as ../ropewalk.ts has the operators.
 *
 * @module
 */

import type * as Decoder from '../../packages/model/src/index.js';
import type * as Root from '../../packages/ropewalk/src/index.js';

export type { Model, ModelFiles } from '../../packages/model/src/index.js';

const at = (file: string): string => new URL(`../../dist/${file}`, import.meta.url).href;
export const { ropewalk } = (await import(at('index.js'))) as typeof Root;
export const { createSampler, loadModel } = (await import(at('model/index.js'))) as typeof Decoder;
