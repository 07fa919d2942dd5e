/** Made by build/figures.ts. */
declare module 'virtual:figures' {
  /** Test cases that every backend runs. */
  export const CASES: number;
  /** Entries of the catalogue of wrong kernels. */
  export const KNOWN_BUGS: number;
}
