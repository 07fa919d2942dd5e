/** Whether tests have a GPU here. */
import { existsSync } from 'node:fs';
import { after } from 'node:test';
import { openBackend } from '@ropewalk/cli/internal';
import { BACKENDS, openBackend as openOwn, Ropewalk } from 'ropewalk';
import type { WebgpuBackend } from 'ropewalk/internal';
import { noOnnxruntime } from './onnxruntime.js';

// Debian's Chromium brings a software Vulkan driver: with it the kernels really run where there is no GPU.
const SOFTWARE_DRIVER = '/usr/lib/chromium/vk_swiftshader_icd.json';
if (process.env.VK_ICD_FILENAMES === undefined && existsSync(SOFTWARE_DRIVER))
  process.env.VK_ICD_FILENAMES = SOFTWARE_DRIVER;

/** Why tests on the GPU are skipped here, or false. */
export const noGpu: string | false = (await BACKENDS.find(({ name }) => name === 'webgpu')!.whyNot()) ?? false;

/**
 * Why a backend's tests are skipped here, or false.
 *
 * @param name - the backend's
 */
export function noBackend(name: string): string | false {
  return (name === 'webgpu' && noGpu) || (name === 'onnxruntime' && noOnnxruntime);
}

let shared: Promise<WebgpuBackend> | undefined;
after(async () => (await shared)?.dispose());

/**
 * The webgpu backend that test files share: a software adapter takes up to two seconds of CPU to compile a kernel, and
 * each device compiles its own. Tests that lose the device, fill its memory or dispose of it open their own.
 */
export function sharedWebgpu(): Promise<WebgpuBackend> {
  shared ??= openOwn('webgpu') as Promise<WebgpuBackend>;
  return shared;
}

/** Leaves the device to the other tests. */
class SharedRopewalk extends Ropewalk {
  override dispose(): void {}
}

/**
 * Opens a backend by its name in BACKENDS; webgpu is {@link sharedWebgpu}.
 *
 * @returns what the caller disposes of
 */
export async function openShared(name: string): Promise<Ropewalk> {
  return name === 'webgpu' ? new SharedRopewalk(await sharedWebgpu()) : new Ropewalk(await openBackend(name));
}
