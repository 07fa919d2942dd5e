/** The package's version, kept equal to package.json by a test. @module */

/** Printed by `ropewalk --version`. */
export const VERSION = '0.1.0';
