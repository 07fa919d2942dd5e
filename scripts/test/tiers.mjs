/**
 * The tiers of the tests. A file's name says its tier: `x.test.ts` is of `default`, `x.gpu.test.ts` of `gpu`. The words
 * are in test/README.md, the budgets in test/budgets.json.
 */

/**
 * What the runner knows of a tier.
 *
 * - `alone`: only one file at a time of all tiers that say so: they share the software GPU, or start browsers.
 * - `fuzz`: the size of random and exhaustive tests (test/support/size.ts), 10 is all of it.
 * - `drawn`: a new seed each run.
 */
export const TIERS = {
  default: { alone: false, fuzz: 1, drawn: true },
  peers: { alone: false, fuzz: 10, drawn: false },
  gpu: { alone: true, fuzz: 10, drawn: false },
  browser: { alone: true, fuzz: 10, drawn: false },
  slow: { alone: false, fuzz: 10, drawn: false },
};

/** The tier that the name of a test file says. */
export function tierOf(file) {
  return /\.(gpu|browser|peers|slow)\.test\.ts$/.exec(file)?.[1] ?? 'default';
}
