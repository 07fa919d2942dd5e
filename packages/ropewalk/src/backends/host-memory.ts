/**
 * Memory of a backend that keeps nothing of its own.
 *
 * @module
 */
import { copyElements, zeros } from '../core/tensor.js';
import type { Backend } from './backend.js';

/**
 * What a backend needs for its tensors where they lie in host memory: spread it into the backend's object.
 *
 * @returns `allocate`, `upload` (a dense copy), and a `dispose` that has nothing to give back
 */
export function hostMemory(): Pick<Backend, 'allocate' | 'upload' | 'dispose'> {
  return {
    allocate: zeros,
    upload(source) {
      const copy = zeros(source.dtype, source.shape);
      copyElements(source, copy);
      return copy;
    },
    dispose() {},
  };
}
