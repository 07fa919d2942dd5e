/**
 * Keeps the times of test files and the budgets of tiers: the committed test/budgets.json and the last measured times.
 */
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
   * @param path - the committed file: for each tier the CPU seconds of each file, and the yardstick (child.mjs) of the
   *   machine that measured them
   * @param ownPath - a file with the same content from this machine's last runs, to order the files
   */
  constructor(path, ownPath) {
    this.#path = path;
    this.#ownPath = ownPath;
    this.#committed = read(path);
    this.#own = read(ownPath);
  }

  /**
   * Returns the CPU seconds that a file is expected to take. Without a measurement it estimates them from the length.
   */
  expected({ file, tier }) {
    return (
      this.#own[tier]?.files[file] ?? this.#committed[tier]?.files[file] ?? statSync(join(ROOT, file)).size / 10_000
    );
  }

  /**
   * Returns the budget of a tier, in CPU seconds of a machine with this yardstick. It is undefined for a tier without a
   * budget. A slower machine gets more. A faster machine keeps the written budget, because its speed may vary.
   */
  of(tier, yardstick) {
    const known = this.#committed[tier];
    if (!known) return undefined;
    const slower = Math.max(1, yardstick / known.yardstick);
    const files = new Map(Object.entries(known.files).map(([file, seconds]) => [file, seconds * slower]));
    return { files, seconds: [...files.values()].reduce((sum, seconds) => sum + seconds, 0) };
  }

  /** Saves the measurements of a run for the next run. With `budget` they also become the tier's budget. */
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
