/** Finds a GPU: by the browser's `navigator.gpu`, or by the `webgpu` package in Node. @module */
import { fail, RopewalkError } from '../../core/errors.js';

/** An open device and its name. */
export interface OpenDevice {
  readonly device: GPUDevice;
  /** The vendor and model, for people. */
  readonly description: string;
}

/** The limits that are raised to those of the adapter: the size of one tensor, and the number of tensors of a kernel. */
const WANTED_LIMITS = ['maxBufferSize', 'maxStorageBufferBindingSize', 'maxStorageBuffersPerShaderStage'] as const;

/** The result of {@link findEntry}. There is one for the process, because the package's adapters depend on it. */
let instance: Promise<GPU | string> | undefined;

/** Finds the entry to WebGPU, or the reason why there is none. */
async function findEntry(): Promise<GPU | string> {
  const { navigator, process, isSecureContext } = globalThis as {
    navigator?: { gpu?: GPU };
    process?: { versions?: { node?: string } };
    isSecureContext?: boolean;
  };
  if (navigator?.gpu) return navigator.gpu;
  if (process?.versions?.node === undefined) {
    if (isSecureContext === false) return 'this page is not a secure context: WebGPU needs https or localhost';
    return 'this browser has no WebGPU (navigator.gpu)';
  }
  const name = 'webgpu'; // In a literal import, bundlers for browsers would look for the package.
  try {
    const { create }: { create(options: readonly string[]): GPU } = await import(
      /* webpackIgnore: true */ /* @vite-ignore */ name
    );
    return create([
      // Quantised timestamps have ticks of 65 µs, which only browsers that run foreign code need.
      'disable-dawn-features=timestamp_quantization',
      // Kernels write workgroup memory before they read it. Clearing it makes attention and linear compile 9 times as
      // long.
      'enable-dawn-features=disable_workgroup_init',
    ]);
  } catch (cause) {
    const missing = (cause as { code?: string }).code === 'ERR_MODULE_NOT_FOUND';
    return missing
      ? 'the package webgpu is not installed: npm install webgpu'
      : `the package webgpu does not load: ${cause}`;
  }
}

/** Says whether this is a page or its worker, where advice about environment variables does not help. */
function inBrowser(): boolean {
  return 'document' in globalThis || 'importScripts' in globalThis;
}

/** Finds an adapter, or the reason why there is none. */
async function findAdapter(powerPreference: GPUPowerPreference): Promise<GPUAdapter | string> {
  const gpu = await (instance ??= findEntry());
  if (typeof gpu === 'string') return gpu;
  try {
    return (
      (await gpu.requestAdapter({ powerPreference })) ??
      (inBrowser()
        ? 'WebGPU finds no adapter: the browser has no GPU that it trusts, or hardware acceleration is turned off'
        : 'WebGPU finds no adapter: it needs a GPU with a Vulkan, Metal or Direct3D 12 driver ' +
          '(a software one: VK_ICD_FILENAMES=…/vk_swiftshader_icd.json)')
    );
  } catch (cause) {
    return `WebGPU finds no adapter: ${cause}`;
  }
}

/** Says why no GPU can be opened here, or undefined when one can. */
export async function whyNotWebgpu(): Promise<string | undefined> {
  const adapter = await findAdapter('high-performance');
  return typeof adapter === 'string' ? adapter : undefined;
}

/** Opens a device. @throws {RopewalkError} DEVICE when there is none, with the reason */
export async function openDevice(powerPreference: GPUPowerPreference): Promise<OpenDevice> {
  const adapter = await findAdapter(powerPreference);
  if (typeof adapter === 'string') fail('DEVICE', 'webgpu', `no GPU can be used here: ${adapter}.`);
  const requiredLimits: Record<string, number> = {};
  for (const limit of WANTED_LIMITS) requiredLimits[limit] = adapter.limits[limit];
  const requiredFeatures = (['shader-f16', 'timestamp-query'] as const).filter((feature) =>
    adapter.features.has(feature),
  );
  try {
    const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
    const { vendor, architecture, device: model, description } = adapter.info;
    const words = [vendor, model || architecture, description].filter((word) => word !== '');
    return { device, description: words.length > 0 ? words.join(' ') : 'a GPU without a name' };
  } catch (cause) {
    const message = `webgpu: the device does not open (${cause}). Close other pages that use the GPU, or try again.`;
    throw new RopewalkError('DEVICE', message, { cause });
  }
}
