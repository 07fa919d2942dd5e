/** build/figures.ts makes this module. */
declare module 'virtual:figures' {
  /** The number of test cases that every backend runs. */
  export const CASES: number;
  /** The number of entries in the catalogue of wrong kernels. */
  export const KNOWN_BUGS: number;
}
