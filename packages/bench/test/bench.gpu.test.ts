/** The test of this file that needs a GPU. */
import './bench.test.js';
