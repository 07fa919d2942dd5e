/**
 * Lets one file hold the tests of a subject for several tiers. `x.test.ts` is in the default tier, and a file whose
 * name says another tier imports it, like packages/ropewalk/test/every-backend.gpu.test.ts. Each run declares the tests
 * of its tier.
 */
import { describe, test } from 'node:test';

type Tier = 'gpu' | 'peers' | 'browser';
const tier = /\.(gpu|peers|browser)\.test\.ts$/.exec(process.argv[1]!)?.[1] as Tier | undefined;

/** The backends of the running tier that compute every operator. */
export const GENERAL_HERE: readonly string[] = tier
  ? { gpu: ['webgpu'], peers: ['onnxruntime'], browser: [] }[tier]
  : ['reference', 'cpu'];
/** The same backends. In the default tier the models of devices are added. */
export const BACKENDS_HERE: readonly string[] = tier ? GENERAL_HERE : [...GENERAL_HERE, 'ascend-model', 'cann-2024'];

const nothing = (): void => {};
/** Works as `describe` in the default tier only. */
export const describeOnce: typeof describe = tier ? (nothing as never) : describe;
export const testOnce: typeof test = tier ? (nothing as never) : test;
/** Works as `test` in the tier `peers` only, for tests that need a program which `npm ci` does not install. */
export const testPeers: typeof test = tier === 'peers' ? test : (nothing as never);
export const testGpu: typeof test = tier === 'gpu' ? test : (nothing as never);
export const testBrowser: typeof test = tier === 'browser' ? test : (nothing as never);
