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
  /** The bytes and the count of the bundled model's weights. */
  export const MARLINE_BYTES: number;
  export const MARLINE_WEIGHTS: number;
  /** The same of SmolLM2-135M in bf16. */
  export const SMOLLM2_BYTES: number;
  export const SMOLLM2_WEIGHTS: number;
}

/** build/museum.ts makes this module. */
declare module 'virtual:broken' {
  /** The known bugs that can go wrong in the bundled model: id and what each does. */
  export const BUGS: readonly (readonly [id: string, does: string])[];
  /** The words that the bundled model continues. */
  export const PROMPT: string;
  /** The bug with which Home opens. */
  export const FIRST_BUG: string;
  /** The texts that the model wrote when the site was built, with the right kernel and with the first bug. */
  export const RIGHT: string;
  export const WRONG: string;
}

/** build/own-kernel.ts makes this module. */
declare module 'virtual:own-kernel' {
  /** The package @ropewalk/ascend as a script that defines `ascend`. */
  export const LIBRARY: string;
  /** The kernel with which the docs begin. */
  export const EXAMPLE: string;
}
