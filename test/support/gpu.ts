/** Says whether tests have a GPU here, and shares one GPU backend among them. */
import { existsSync } from 'node:fs';
import { after } from 'node:test';
import { BACKENDS, type Backend, openBackend, Ropewalk } from 'ropewalk';
import { noOnnxruntime } from './onnxruntime.js';

// Debian's Chromium contains a software Vulkan driver, on which the kernels really run without a GPU.
const SOFTWARE_DRIVER = '/usr/lib/chromium/vk_swiftshader_icd.json';
if (process.env.VK_ICD_FILENAMES === undefined && existsSync(SOFTWARE_DRIVER))
  process.env.VK_ICD_FILENAMES = SOFTWARE_DRIVER;

/** The reason why tests on the GPU are skipped here, or false. */
export const noGpu: string | false = (await BACKENDS.find(({ name }) => name === 'webgpu')!.whyNot()) ?? false;

/**
 * Returns the reason why a backend's tests are skipped here, or false.
 *
 * @param name - the name of the backend
 */
export function noBackend(name: string): string | false {
  return (name === 'webgpu' && noGpu) || (name === 'onnxruntime' && noOnnxruntime);
}

/** The webgpu backend, as far as tests look inside. */
type WebgpuBackend = Backend & { readonly shared: { readonly device: GPUDevice } };

let shared: Promise<WebgpuBackend> | undefined;
after(async () => (await shared)?.dispose());

/**
 * Opens the webgpu backend that the tests of a process share, because a software adapter takes up to two seconds of CPU
 * to compile a kernel, and each device compiles again. Tests that lose the device, fill its memory or dispose of it
 * open another one.
 */
export function sharedWebgpu(): Promise<WebgpuBackend> {
  shared ??= openBackend('webgpu') as Promise<WebgpuBackend>;
  return shared;
}

/** Does not dispose of the device, because other tests use it. */
class SharedRopewalk extends Ropewalk {
  override dispose(): void {}
}

/**
 * Opens a backend by its name in BACKENDS; webgpu is {@link sharedWebgpu}.
 *
 * @returns the backend, which the caller disposes of
 */
export async function openShared(name: string): Promise<Ropewalk> {
  if (name === 'webgpu') return new SharedRopewalk(await sharedWebgpu());
  const { openBackend } = await import('@ropewalk/cli/internal'); // it loads every command
  return new Ropewalk(await openBackend(name));
}
