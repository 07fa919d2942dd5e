/**
 * Exports the published decoder, as ../ropewalk.ts exports the published operators.
 *
 * @module
 */

import type * as Decoder from '@ropewalk/model';
import type * as Root from 'ropewalk';

export type { Model, ModelFiles } from '@ropewalk/model';

const built = (name: string): string => new URL(`../../packages/${name}/dist/index.js`, import.meta.url).href;
export const { ropewalk } = (await import(built('ropewalk'))) as typeof Root;
export const { createSampler, loadModel } = (await import(built('model'))) as typeof Decoder;
