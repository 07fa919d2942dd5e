/**
 * Runs the tests: each file runs in a separate process, on all cores. Files that share the GPU or start browsers come first,
 * one at a time; of the others the longest.
 *
 * Usage: node scripts/test/run.mjs [--tier NAMES] [PATH…] [-t PATTERN] [--affected [--since COMMIT]] [--watch]
 *   [--jobs N] [--no-skips] [--record]
 *
 * test/README.md explains the tiers and the environment variables. It exits 1 when a test fails, when a tier takes a
 * third more CPU than its budget, or, with --no-skips, when a test skips.
 */
import { spawn } from 'node:child_process';
import { createWriteStream, existsSync, mkdtempSync, readFileSync, rmSync, watch } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { ROOT } from '../imports.mjs';
import { Budgets } from './budgets.mjs';
import { compile } from './compile.mjs';
import { Report } from './report.mjs';
import { changedSince, TestFiles, tiersNamed } from './select.mjs';
import { TIERS, tierOf } from './tiers.mjs';

/** A file that takes longer is stopped. No file needs that long, even on a slow and busy machine. */
const FILE_MINUTES = 20;

const { values: options, positionals } = parseOptions();
const files = new TestFiles();
const budgets = new Budgets(join(ROOT, 'test/budgets.json'), join(ROOT, '.scratch/test-durations.json'));
const seed = process.env.SEED ?? String(1 + Math.floor(Math.random() * 2 ** 31));
const running = new Set();
/** The folder that the files of the current run share, and the run's report. */
let folder;
for (const signal of ['SIGINT', 'SIGTERM'])
  process.on(signal, () => {
    for (const child of running) child.kill();
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
    process.exit(130);
  });

try {
  const jobs = choose();
  process.exitCode = await run(jobs);
  if (options.watch) watchAndRun();
} catch (error) {
  if (error.code !== undefined) throw error;
  console.error(`npm test: ${error.message}`);
  process.exitCode = 2;
}

function parseOptions() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        tier: { type: 'string' },
        name: { type: 'string', short: 't' },
        affected: { type: 'boolean' },
        since: { type: 'string', default: 'HEAD' },
        watch: { type: 'boolean' },
        jobs: { type: 'string', default: String(availableParallelism()) },
        'no-skips': { type: 'boolean' },
        record: { type: 'boolean' },
      },
    });
  } catch (error) {
    console.error(`npm test: ${error.message}`);
    process.exit(2);
  }
}

/** Chooses the files to run, with their tiers. */
function choose() {
  const tiers = tiersNamed(options.tier ?? 'default');
  if (!/^[1-9]\d*$/.test(options.jobs))
    throw new Error(`--jobs: expected a number of processes, got "${options.jobs}"`);
  const jobs = tiers.flatMap((tier) => files.ofTier(tier).map((file) => ({ file, tier })));
  let chosen = jobs;
  if (positionals.length > 0) {
    const named = new Set(positionals.flatMap((name) => files.named(name)));
    // A file that the user names runs, whatever its tier.
    const exact = options.tier === undefined ? [...named].filter((file) => positionals.includes(file)) : [];
    const others = exact.filter((file) => !jobs.some((job) => job.file === file));
    chosen = [...jobs.filter(({ file }) => named.has(file)), ...others.map((file) => ({ file, tier: tierOf(file) }))];
    if (chosen.length === 0)
      throw new Error(
        `no test of tier ${tiers.join(', ')} is there; of other tiers ${named.size} files. Add --tier all.`,
      );
  }
  if (options.affected) chosen = onlyAffected(chosen, changedSince(options.since));
  return chosen;
}

function onlyAffected(jobs, changed) {
  const affected = new Set(files.affectedBy(changed));
  return jobs.filter(({ file }) => affected.has(file));
}

/** Runs jobs and reports their results. @returns the exit code */
async function run(jobs) {
  const compiled = compile();
  folder = mkdtempSync(join(tmpdir(), 'ropewalk-tests-'));
  const whole = positionals.length === 0 && options.name === undefined && !options.affected;
  const report = new Report(budgets, { noSkips: options['no-skips'], whole, record: options.record });
  const drawn = jobs.some(({ tier }) => TIERS[tier].drawn);
  report.start(jobs.length, drawn ? seed : undefined);
  const tiers = Object.keys(TIERS);
  // Files that run alone make the longest row, so it starts at once; the other processes take the rest.
  const queue = jobs
    .map((job) => ({ ...job, expected: budgets.expected(job) }))
    .sort(
      (a, b) =>
        TIERS[b.tier].alone - TIERS[a.tier].alone ||
        tiers.indexOf(a.tier) - tiers.indexOf(b.tier) ||
        b.expected - a.expected,
    );
  let alone = false;
  let count = 0;
  const worker = async () => {
    for (;;) {
      const at = queue.findIndex(({ tier }) => !(alone && TIERS[tier].alone));
      if (at < 0) return;
      const [job] = queue.splice(at, 1);
      if (TIERS[job.tier].alone) alone = true;
      report.add(job, await runFile(job, compiled(job.file), join(folder, String(count++))));
      if (TIERS[job.tier].alone) alone = false;
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(Number(options.jobs), jobs.length) }, worker));
    return report.finish();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs one file, which is compiled at `path`. @returns its tests, its output and its CPU time */
async function runFile({ tier }, path, base) {
  const { fuzz, drawn } = TIERS[tier];
  const here = (name) => pathToFileURL(join(ROOT, 'scripts/test', name)).href;
  const args = ['--enable-source-maps', '--import', here('child.mjs')];
  args.push(`--test-reporter=${here('reporter.mjs')}`, `--test-reporter-destination=${base}.jsonl`);
  args.push('--test-reporter=spec', `--test-reporter-destination=${base}.log`);
  if (options.name !== undefined) args.push(`--test-name-pattern=${options.name}`);
  const start = performance.now();
  const env = { FUZZ: String(fuzz), ...(drawn ? { SEED: seed } : {}), ...process.env };
  const child = spawn(process.execPath, [...args, path], {
    cwd: ROOT,
    env: { ...env, ROPEWALK_TEST_USAGE: `${base}.usage`, ROPEWALK_TEST_RUN: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  const printed = createWriteStream(`${base}.printed`);
  child.stdout.pipe(printed, { end: false });
  child.stderr.pipe(printed, { end: false });
  const timer = setTimeout(() => child.kill('SIGKILL'), FILE_MINUTES * 60_000);
  const [code, signal] = await new Promise((resolve) => child.on('close', (...how) => resolve(how)));
  clearTimeout(timer);
  running.delete(child);
  await new Promise((resolve) => printed.end(resolve));
  const read = (end) => (existsSync(base + end) ? readFileSync(base + end, 'utf8') : '');
  return {
    seconds: (performance.now() - start) / 1000,
    tests: read('.jsonl')
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line)),
    log: read('.log'),
    printed: read('.printed'),
    ended: signal ? `it was ended by ${signal}` : code === 0 ? undefined : `it ended with exit code ${code}`,
    ...JSON.parse(read('.usage') || '{}'),
  };
}

/** Waits for changes and runs the tests that need the changed files. */
function watchAndRun() {
  console.log('\nWatching; end it with Ctrl-C.');
  let changed = new Set();
  let busy = false;
  const next = async () => {
    if (busy || changed.size === 0) return;
    busy = true;
    const paths = [...changed];
    changed = new Set();
    const jobs = onlyAffected(choose(), paths);
    console.log(`\n${paths.join(', ')}: ${jobs.length} files of tests`);
    await run(jobs);
    busy = false;
    next();
  };
  for (const folder of ['packages', 'test', 'vectors', 'models', 'docs', 'site', 'scripts'])
    watch(join(ROOT, folder), { recursive: true }, (_event, name) => {
      if (name === null || /(^|[\\/])(dist|node_modules)[\\/]|\.tsbuildinfo$/.test(name)) return;
      changed.add(`${folder}/${name.replaceAll('\\', '/')}`);
      setTimeout(next, 200);
    });
}
