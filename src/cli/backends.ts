/**
 * The backends that commands can open by name: the kernel's own, ONNX Runtime, and the model of an Ascend AI Core.
 *
 * @module
 */
import type { Backend, BackendEntry, BackendOptions } from '../backends/backend.js';
import type { OnnxruntimeOptions } from '../backends/onnxruntime/host.js';
import { BACKENDS as KERNEL_BACKENDS, openFrom } from '../registry.js';

/** What `--backend` and the options beside it can say. */
export type CommandBackendOptions = BackendOptions & OnnxruntimeOptions;

const onnxruntime: BackendEntry<CommandBackendOptions> = {
  name: 'onnxruntime',
  auto: false,
  byName: true, // it runs the graphs that are exported for others; as a backend of its own it is slow
  whyNot: async () => (await import('../backends/onnxruntime/package.js')).whyNotOnnxruntime(),
  open: async (options) => (await import('../backends/onnxruntime/host.js')).openOnnxruntime(options),
};

const ascendModel: BackendEntry<CommandBackendOptions> = {
  name: 'ascend-model',
  auto: false,
  byName: true, // a model of a device, thousands of times slower than the machine it runs on
  whyNot: async () => undefined,
  open: async () => (await import('../aicore/runner.js')).openAscendModel(),
};

/** Every backend that a command can open. */
export const BACKENDS: readonly BackendEntry<CommandBackendOptions>[] = [...KERNEL_BACKENDS, onnxruntime, ascendModel];

/**
 * Opens a backend by the name that a command was given.
 *
 * @param name - the name of one of {@link BACKENDS}, or `auto`
 * @param options - for the backend
 * @throws {RopewalkError} as openBackend of `ropewalk`
 */
export function openBackend(name: string, options?: CommandBackendOptions): Promise<Backend> {
  return openFrom(BACKENDS, name, options);
}
