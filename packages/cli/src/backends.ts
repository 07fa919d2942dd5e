/**
 * The backends that commands can open by name: those of the library, ONNX Runtime, the model of an Ascend AI Core, and
 * devices whose profile computes.
 *
 * @module
 */
import { spawnSync } from 'node:child_process';
import type { OnnxruntimeOptions } from '@ropewalk/onnx';
import { type Backend, type BackendOptions, BACKENDS as KERNEL_BACKENDS } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { type BackendEntry, openFrom } from 'ropewalk/internal';

/** The options of every backend that `--backend` can name. */
export type CommandBackendOptions = BackendOptions & OnnxruntimeOptions;

const onnxruntime: BackendEntry<CommandBackendOptions> = {
  name: 'onnxruntime',
  auto: false,
  byName: true, // slow: it serves to run exported graphs
  whyNot: async () => (await import('@ropewalk/onnx')).whyNotOnnxruntime(),
  open: async (options) => (await import('@ropewalk/onnx')).openOnnxruntime(options),
};

const ascendModel: BackendEntry<CommandBackendOptions> = {
  name: 'ascend-model',
  auto: false,
  byName: true, // a model of a device, thousands of times slower than this machine
  whyNot: async () => undefined,
  open: async () => (await import('@ropewalk/ascend')).openAscendModel(),
};

/** The backends that run a whole decoder. */
export const MODEL_BACKENDS: readonly BackendEntry<CommandBackendOptions>[] = [...KERNEL_BACKENDS, onnxruntime];

/** Every backend that a command can open, except devices, which are opened only by name. */
export const BACKENDS: readonly BackendEntry<CommandBackendOptions>[] = [...MODEL_BACKENDS, ascendModel];

/** @param name - the name of one of {@link BACKENDS} or of a device that computes, or `auto` */
export async function openBackend(name: string, options?: CommandBackendOptions): Promise<Backend> {
  if (name === 'auto' || BACKENDS.some((entry) => entry.name === name)) return openFrom(BACKENDS, name, options);
  const { DEVICES } = await import('@ropewalk/devices');
  if (DEVICES.some((device) => device.name === name && !device.open))
    fail(
      'UNSUPPORTED',
      'backend',
      `${name} has rules only, it does not compute. Print them with: ropewalk devices ${name}.`,
    );
  const devices = DEVICES.flatMap(({ name, open }): BackendEntry<CommandBackendOptions>[] =>
    open ? [{ name, auto: false, byName: true, whyNot: async () => undefined, open }] : [],
  );
  return openFrom([...BACKENDS, ...devices], name, options);
}

/** Whether a backend that no option named opens here. If not, stderr says why. */
export async function opensHere(entry: BackendEntry<CommandBackendOptions>): Promise<boolean> {
  const isDawn = entry.name === 'webgpu' && !('Bun' in globalThis || 'Deno' in globalThis);
  const why = isDawn ? whyNotDawn() : await entry.whyNot();
  if (why !== undefined) process.stderr.write(`Backend ${entry.name}: skipped, ${why}\n`);
  return why === undefined;
}

/**
 * Looks for a GPU in another process, whose stderr is dropped: without a GPU, Dawn writes warnings there from C++, and
 * has no setting against that. `--backend webgpu` shows them.
 */
function whyNotDawn(): string | undefined {
  const code = `const { BACKENDS } = await import(${JSON.stringify(import.meta.resolve('ropewalk'))});
    process.stdout.write((await BACKENDS.find(({ name }) => name === 'webgpu').whyNot()) ?? '');`;
  const { status, signal, stdout } = spawnSync(
    process.execPath,
    [...process.execArgv, '--input-type=module', '--eval', code],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], windowsHide: true },
  );
  if (status !== 0) return `the process that looks for a GPU ended with ${signal ?? `code ${status}`}`;
  return stdout === '' ? undefined : stdout;
}
