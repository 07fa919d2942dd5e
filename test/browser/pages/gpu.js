/**
 * Runs in a page. It does what a user of WebGPU does, also with a lost device, and logs the results.
 */
import { ropewalk } from 'ropewalk';

/** @param {() => Promise<unknown>} act */
const refusal = async (act) => {
  try {
    await act();
    return 'accepted';
  } catch (error) {
    return `${/** @type {{ code?: string }} */ (error).code} ${/** @type {Error} */ (error).message}`;
  }
};

const RoPE = /** @type {const} */ ({ pairing: 'half', base: 10000 });
const data = Float32Array.from({ length: 2 * 4 * 64 }, (_, i) => Math.sin(i));
const shape = [2, 4, 64];
/** @param {{ backend: 'cpu' | 'webgpu' }} options */
const turned = async (options) => {
  const rw = await ropewalk(options);
  const x = rw.upload(data, { shape });
  return { rw, x, y: await rw.rope(x, [5, 131071], RoPE).read() };
};

/** @type {GPUDevice | undefined} */
let device;
const request = navigator.gpu && GPUAdapter.prototype.requestDevice;
if (request) {
  GPUAdapter.prototype.requestDevice = async function (descriptor) {
    device = await request.call(this, descriptor);
    return device;
  };
}

const opened = await refusal(() => ropewalk({ backend: 'webgpu' }));
if (opened !== 'accepted') console.log(JSON.stringify({ opened }));
else {
  const cpu = await turned({ backend: 'cpu' });
  const gpu = await turned({ backend: 'webgpu' });
  const different = gpu.y.filter((v, i) => Math.abs(v - (cpu.y[i] ?? NaN)) > 1e-6).length;
  const queued = gpu.rw.rope(gpu.x, [5, 131071], RoPE);
  device?.destroy(); // a page can lose its device this way; a reset of the driver looks the same
  const reading = await refusal(async () => queued.read());
  await device?.lost;
  const running = await refusal(async () => gpu.rw.rope(gpu.x, [5, 131071], RoPE));
  const again = await turned({ backend: 'webgpu' });
  const survived = again.y.every((v, i) => v === gpu.y[i]);
  console.log(JSON.stringify({ opened, capabilities: again.rw.capabilities(), different, reading, running, survived }));
}
