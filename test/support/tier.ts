/**
 * Tests of every backend stand in files of the default tier, which run those that need Node alone;
 * test/ropewalk/every-backend.gpu.test.ts and …peers.test.ts import these files to run the others.
 */
import { describe, test } from 'node:test';

const tier = /\.(gpu|peers)\.test\.ts$/.exec(process.argv[1]!)?.[1] as 'gpu' | 'peers' | undefined;

/** The backends that do every operator, of the tier that runs. */
export const GENERAL_HERE: readonly string[] = { gpu: ['webgpu'], peers: ['onnxruntime'], none: ['reference', 'cpu'] }[
  tier ?? 'none'
];
/** Those, and in the default tier the models of devices. */
export const BACKENDS_HERE: readonly string[] = tier ? GENERAL_HERE : [...GENERAL_HERE, 'ascend-model', 'cann-2024'];

const nothing = (): void => {};
/** `describe` and `test` for what does not depend on the backend: in the default tier alone. */
export const describeOnce: typeof describe = tier ? (nothing as never) : describe;
export const testOnce: typeof test = tier ? (nothing as never) : test;
