/** Imported by pages: the backend that an address names. WebNN is watched: how often it computed, and what it gave. */

/** How many graphs WebNN was told to run, and what every f32 that is read from it is multiplied by. */
export const watched = { dispatched: 0, scale: 1 };

/**
 * What `ropewalk({ backend })` takes.
 *
 * @param {string} name
 */
export async function backendNamed(name) {
  if (name !== 'webnn') return /** @type {'cpu' | 'webgpu' | 'reference'} */ (name);
  watchWebnn();
  return (await import('@ropewalk/onnx')).openWebnn();
}

function watchWebnn() {
  const { prototype } = /** @type {any} */ (globalThis).MLContext;
  const { dispatch, readTensor } = prototype;
  /** @this {unknown} @param {unknown[]} given */
  prototype.dispatch = function (...given) {
    watched.dispatched++;
    return dispatch.apply(this, given);
  };
  /** @this {unknown} @param {{ dataType: string }} tensor @param {ArrayBufferView[]} into */
  prototype.readTensor = async function (tensor, ...into) {
    const result = await readTensor.call(this, tensor, ...into);
    const { buffer, byteOffset, byteLength } = into[0] ?? new Uint8Array(result);
    if (tensor.dataType === 'float32' && watched.scale !== 1) {
      const values = new Float32Array(buffer, byteOffset, byteLength / 4);
      for (const [i, value] of values.entries()) values[i] = value * watched.scale;
    }
    return result;
  };
}
