/** Pages import this to open the backend that the address names. It also counts how often WebNN computes. */

/** The number of graphs that WebNN was told to run, and the factor for every f32 that is read from it. */
export const watched = { dispatched: 0, scale: 1 };

/**
 * Returns the value for `ropewalk({ backend })`.
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
