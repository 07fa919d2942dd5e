/** The test of this file that needs Chromium. */
import './verify.test.js';
