/** build/figures.ts makes this module. */
declare module 'virtual:figures' {
  /** The number of cases whose results were computed in float64 by a peer's formulas. */
  export const BY_FORMULAS: number;
  /** The number of cases whose results a peer's own program computed. */
  export const BY_PEERS: number;
  /** The number of all test cases. */
  export const CASES: number;
  /** The number of packages that the kernel package needs. */
  export const DEPENDENCIES: number;
  /** The number of entries in the catalogue of wrong kernels. */
  export const KNOWN_BUGS: number;
}
