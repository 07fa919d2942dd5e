/** How long files take, and how long tiers may: test/budgets.json, which is committed, and what the last run measured. */
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ROOT } from '../imports.mjs';

const read = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {});

export class Budgets {
  #path;
  #ownPath;
  #committed;
  #own;

  /**
   * @param path - committed: for each tier the CPU seconds of each file, and the yardstick (child.mjs) of the machine
   *   that they were measured on
   * @param ownPath - the same of this machine's last runs, to share work out
   */
  constructor(path, ownPath) {
    this.#path = path;
    this.#ownPath = ownPath;
    this.#committed = read(path);
    this.#own = read(ownPath);
  }

  /** CPU seconds that a file is expected to take; from its length where nobody knows. */
  expected({ file, tier }) {
    return (
      this.#own[tier]?.files[file] ?? this.#committed[tier]?.files[file] ?? statSync(join(ROOT, file)).size / 10_000
    );
  }

  /**
   * The budget of a tier, in CPU seconds of a machine with this yardstick; undefined for a tier that has none. A slower
   * machine gets more; a faster one keeps what is written, as a moment of it may not be like the next.
   */
  of(tier, yardstick) {
    const known = this.#committed[tier];
    if (!known) return undefined;
    const slower = Math.max(1, yardstick / known.yardstick);
    const files = new Map(Object.entries(known.files).map(([file, seconds]) => [file, seconds * slower]));
    return { files, seconds: [...files.values()].reduce((sum, seconds) => sum + seconds, 0) };
  }

  /** Keeps what a run measured for the next one; `budget`: also as the tier's budget. */
  keep(tier, yardstick, files, budget) {
    const rounded = Object.fromEntries(
      [...files].sort().map(([file, seconds]) => [file, Math.round(seconds * 100) / 100]),
    );
    const entry = { yardstick: Math.round(yardstick * 1000) / 1000, files: rounded };
    this.#own[tier] = { ...entry, files: { ...this.#own[tier]?.files, ...rounded } };
    mkdirSync(dirname(this.#ownPath), { recursive: true });
    writeFileSync(this.#ownPath, JSON.stringify(this.#own));
    if (!budget) return;
    this.#committed[tier] = entry;
    writeFileSync(this.#path, `${JSON.stringify(this.#committed, null, 2)}\n`);
  }
}
