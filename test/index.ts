// Every test file; written by scripts/test-index.mjs.
import './core/float16.test.js';
import './core/tensor.test.js';
import './ops/rope.test.js';
