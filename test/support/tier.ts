/**
 * Tests of one subject for several tiers, in one file: `x.test.ts` is of the default tier, and a file whose name says
 * another tier imports it, as packages/ropewalk/test/every-backend.gpu.test.ts does. Each declares the tests of its own tier.
 */
import { describe, test } from 'node:test';

type Tier = 'gpu' | 'peers' | 'browser';
const tier = /\.(gpu|peers|browser)\.test\.ts$/.exec(process.argv[1]!)?.[1] as Tier | undefined;

/** The backends that do every operator, of the tier that runs. */
export const GENERAL_HERE: readonly string[] = tier
  ? { gpu: ['webgpu'], peers: ['onnxruntime'], browser: [] }[tier]
  : ['reference', 'cpu'];
/** Those, and in the default tier the models of devices. */
export const BACKENDS_HERE: readonly string[] = tier ? GENERAL_HERE : [...GENERAL_HERE, 'ascend-model', 'cann-2024'];

const nothing = (): void => {};
/** `describe` and `test` of the default tier alone. */
export const describeOnce: typeof describe = tier ? (nothing as never) : describe;
export const testOnce: typeof test = tier ? (nothing as never) : test;
/** `test` of another tier alone: it needs a program that `npm ci` does not bring, a GPU, or Chromium. */
export const testPeers: typeof test = tier === 'peers' ? test : (nothing as never);
export const testGpu: typeof test = tier === 'gpu' ? test : (nothing as never);
export const testBrowser: typeof test = tier === 'browser' ? test : (nothing as never);
