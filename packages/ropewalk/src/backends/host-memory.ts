/** Host memory for a backend that has no memory of its own. @module */
import { copyElements, zeros } from '../core/tensor.js';
import type { Backend } from './backend.js';

/**
 * Makes the methods that a backend with tensors in host memory needs: spread them into the backend's object.
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
