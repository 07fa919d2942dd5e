/**
 * The tiers of the tests. A file's name says its tier: `x.test.ts` is in `default`, `x.gpu.test.ts` in `gpu`.
 * test/README.md explains the tiers, and test/budgets.json has their budgets.
 */

/**
 * The properties of each tier for the runner.
 *
 * - `alone`: only one file of all such tiers runs at a time, because they share the software GPU or start browsers.
 * - `fuzz`: the size of random and exhaustive tests (test/support/size.ts); 10 is the full size.
 * - `drawn`: each run gets a new seed.
 */
export const TIERS = {
  default: { alone: false, fuzz: 1, drawn: true },
  peers: { alone: false, fuzz: 10, drawn: false },
  gpu: { alone: true, fuzz: 10, drawn: false },
  browser: { alone: true, fuzz: 10, drawn: false },
  python: { alone: false, fuzz: 10, drawn: false },
  slow: { alone: false, fuzz: 10, drawn: false },
};

/** Returns the tier that a test file's name says. */
export function tierOf(file) {
  return /\.(gpu|browser|peers|python|slow)\.test\.ts$/.exec(file)?.[1] ?? 'default';
}
