/** Runs the tests for every backend on webgpu. */
import { describe } from 'node:test';
import { callsPass } from '../../../test/support/calls.js';
import './backends/refused-calls.test.js';
import './core/blocks.test.js';
import './ops/kv-caches.test.js';
import './ops/rope-parts.test.js';

describe('golden', () => {
  callsPass('cann', 'flash-attn');
  callsPass('onnx-contrib');
});
