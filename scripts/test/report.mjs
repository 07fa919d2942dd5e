/** Prints the report of a test run. */

/** A tier may take this multiple of its budget, because the CPU seconds of one machine vary by a fifth between runs. */
const MOST = 4 / 3;
const REASONS = 10;
const SLOWEST = 10;

const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
const seconds = (number) => `${number.toFixed(1)} s`.padStart(8);

export class Report {
  #budgets;
  #options;
  #started = performance.now();
  #results = [];
  #print;

  /**
   * @param budgets - the budgets of budgets.mjs
   * @param options - `whole`: all files of the tiers run; `noSkips`: a skip is a failure; `record`: the measured time
   *   becomes the budget
   */
  constructor(budgets, options, print = console.log) {
    this.#budgets = budgets;
    this.#options = options;
    this.#print = print;
  }

  start(count, seed) {
    const drawn = seed === undefined ? '' : `; what is drawn at random has SEED=${seed}`;
    this.#print(`${count} files of tests on Node ${process.versions.node}${drawn}\n`);
  }

  /** Reports that one file has ended. */
  add(job, result) {
    const failed = result.tests.filter(({ ok, skipped }) => !ok && !skipped);
    // These problems concern the whole file, not one of its tests.
    const left = result.leaks?.length > 0 ? `it left something open: ${result.leaks[0]}` : undefined;
    const broken = failed.length === 0 ? (result.ended ?? left) : undefined;
    this.#results.push({ ...job, ...result, failed, broken });
    const bad = failed.length > 0 || broken !== undefined;
    this.#print(
      `${bad ? '✖' : '✔'} ${seconds(result.seconds)} ${String(result.tests.length).padStart(4)} tests  ${job.file}`,
    );
    if (!bad) return;
    const at = result.log.lastIndexOf('✖ failing tests:');
    this.#print(
      `${broken ? `${job.file}: ${broken}\n` : ''}${at < 0 ? result.log.slice(-4000) : result.log.slice(at)}`,
    );
    if (result.printed.trim() !== '') this.#print(`${job.file} printed:\n${result.printed.slice(-4000)}`);
    this.#print(`Run it alone with: npm test -- ${job.file}\n`);
  }

  /** Prints the summary after all files have ended. @returns the exit code */
  finish() {
    const results = this.#results;
    const tests = results.flatMap(({ file, tests }) => tests.map((test) => ({ ...test, file })));
    const cpu = ({ cpu, seconds }) => cpu ?? seconds;
    const most = (list, size) => [...list].sort((a, b) => size(b) - size(a)).slice(0, SLOWEST);
    this.#print('\nSlowest files, in CPU seconds');
    for (const one of most(results, cpu)) this.#print(`${seconds(cpu(one))}  ${one.file}`);
    this.#print('\nSlowest tests');
    for (const { ms, name, file } of most(tests, ({ ms }) => ms))
      this.#print(`${seconds(ms / 1000)}  ${file}: ${name}`);

    this.#print('\nTier      files  tests  skipped  CPU seconds');
    const over = [...new Set(results.map(({ tier }) => tier))].flatMap((tier) => this.#closeTier(tier));
    const skipped = tests.filter((test) => test.skipped);
    this.#printReasons(skipped);
    for (const line of over) this.#print(line);
    const failed = results.reduce((sum, one) => sum + one.failed.length + Number(one.broken !== undefined), 0);
    const passed = tests.filter(({ ok, skipped }) => ok && !skipped).length;
    for (const { failed, broken, file } of results)
      for (const name of broken ? [broken] : failed.map((test) => test.name)) this.#print(`✖ ${file}: ${name}`);
    this.#print(`\n${((performance.now() - this.#started) / 1000).toFixed(0)} s on the clock`);
    this.#print(`${passed} passed, ${failed} failed, ${skipped.length} skipped`);
    // Some models are too large for the repository. Tests that lack them are "left out", which is not a failure.
    const forbidden = this.#options.noSkips && skipped.some(({ skipped: why }) => !why.startsWith('left out: '));
    if (forbidden) this.#print('No test may skip in this run: all that they need is installed.');
    const none = results.length > 0 && tests.length === 0;
    if (none) this.#print('No test ran: give -t a part of a name, or a regular expression that matches one.');
    return failed > 0 || over.length > 0 || forbidden || none ? 1 : 0;
  }

  /** Prints a tier's line and saves its time. @returns lines that say how its budget was exceeded */
  #closeTier(tier) {
    const results = this.#results.filter((one) => one.tier === tier);
    const files = new Map(results.map(({ file, cpu, seconds }) => [file, cpu ?? seconds]));
    const total = [...files.values()].reduce((sum, one) => sum + one, 0);
    // The mean covers all tiers: one measurement says little, but many show how fast this machine was.
    const yardstick = mean(this.#results.map(({ yardstick }) => yardstick).filter((one) => one !== undefined));
    const tests = results.flatMap(({ tests }) => tests);
    const { whole, record } = this.#options;
    const budget = whole ? this.#budgets.of(tier, yardstick) : undefined;
    const row = [results.length, tests.length, tests.filter(({ skipped }) => skipped).length];
    const [width, ...widths] = [5, 5, 7];
    this.#print(
      `${tier.padEnd(9)} ${String(row[0]).padStart(width)}  ${row
        .slice(1)
        .map((one, n) => String(one).padStart(widths[n]))
        .join('  ')}  ` +
        `${total.toFixed(0).padStart(11)}${budget ? ` of ${budget.seconds.toFixed(0)} that this machine may take, and a third` : ''}`,
    );
    if (results.every(({ failed, broken }) => failed.length === 0 && !broken))
      this.#budgets.keep(tier, yardstick, files, whole && record);
    if (!budget || record || total <= budget.seconds * MOST) return [];
    const grown = [...files]
      .map(([file, now]) => ({ file, now, before: budget.files.get(file) ?? 0 }))
      .sort((a, b) => b.now - b.before - (a.now - a.before))
      .slice(0, SLOWEST);
    return [
      `\n✖ Tier ${tier} takes more than a third over its budget of ${budget.seconds.toFixed(0)} CPU seconds. What grew most:`,
      ...grown.map(({ file, now, before }) => `${seconds(now)} instead of ${seconds(before)}  ${file}`),
      `Make it faster, or raise the budget in the same commit: npm test -- --tier ${tier} --record`,
    ];
  }

  #printReasons(skipped) {
    const reasons = new Map();
    for (const { skipped: why } of skipped) reasons.set(why, (reasons.get(why) ?? 0) + 1);
    const list = [...reasons].sort((a, b) => b[1] - a[1]);
    if (list.length > 0) this.#print('\nNot run here');
    for (const [why, count] of list.slice(0, list.length > REASONS ? REASONS - 1 : REASONS))
      this.#print(`${String(count).padStart(5)} tests: ${why}`);
    const rest = list.slice(list.length > REASONS ? REASONS - 1 : REASONS);
    if (rest.length > 0)
      this.#print(
        `${String(rest.reduce((sum, [, count]) => sum + count, 0)).padStart(5)} tests: for ${rest.length} other reasons`,
      );
  }
}
