/**
 * Seeded random numbers, so that a label alone reproduces its inputs: the generator of core/.
 *
 * @module
 */
export { type RandomStream, randomFrom } from '../core/random.js';
