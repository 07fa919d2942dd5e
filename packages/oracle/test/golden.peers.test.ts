/** The tests of this file that need a C compiler, numpy or ONNX Runtime. */
import './golden.test.js';
