/** `ropewalk check`: runs the conformance suites on backends, and reports failed cases and counts. @module */
import {
  type CaseResult,
  type ConformanceCase,
  countResults,
  extendedCases,
  formatResult,
  formatSummary,
  goldenOperatorSuite,
  goldenRopeSuite,
  publishedCases,
  resultToJson,
  runCases,
  vectorCases,
} from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import type { Backend } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { BACKENDS, type CommandBackendOptions, openBackend, opensHere } from './backends.js';
import { asPublished, type LineLeft, leftLines, readCaseLines } from './case-lines.js';
import { dataFolder } from './data-folder.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, openPrinter, printJson, printLines } from './output.js';

export type CheckOptions = Texts<'backend' | 'provider' | 'form' | 'angles' | 'filter' | 'case' | 'vectors'> &
  Switches<'json' | 'verbose'>;

/** Matches the names of adapters that compute on the CPU. */
const SOFTWARE_GPU = /llvmpipe|lavapipe|swiftshader|software|warp/i;

/** @returns 0 when every case passed, 1 when one failed */
export async function check(options: CheckOptions): Promise<number> {
  const { cases: chosen, left } = await chooseCases(options);
  const backends = await openBackends(options);
  const cases = await casesFor(options.backend, chosen);
  const printer = openPrinter(cases.length * backends.length, 'cases', options.json);
  const results: CaseResult[] = [];
  const everyCase = options.verbose || options.case !== undefined;
  try {
    for (const backend of backends) {
      const { description } = backend.capabilities();
      if (!options.json) printer.line(`Backend ${backend.name}: ${description}`);
      if (backend.name === 'webgpu' && SOFTWARE_GPU.test(description)) {
        const wait = 'a GPU in software: each kernel takes up to seconds to compile, the first cases longest';
        process.stderr.write(`Backend webgpu: ${wait}\n`);
      }
      for await (const result of runCases(cases, backend)) {
        results.push(result);
        if (options.json) printer.line(resultToJson(result));
        else if (everyCase || result.verdict.status === 'fail') printer.line(formatResult(result));
        printer.step();
      }
      backend.dispose();
    }
  } finally {
    printer.stop();
  }
  const counts = countResults(results);
  const failed = results.filter(({ verdict }) => verdict.status === 'fail');
  if (options.json) {
    const total = { ok: 0, fail: 0, notSupported: 0 };
    for (const { ok, fail, notSupported } of counts.values()) {
      total.ok += ok;
      total.fail += fail;
      total.notSupported += notSupported;
    }
    printJson({ summary: { ...total, suites: Object.fromEntries(counts), ...(left.length > 0 && { notRun: left }) } });
  } else {
    printLines(['', 'Summary', ...formatSummary(counts), ...leftLines(left)]);
    if (!everyCase && results.some(({ verdict }) => verdict.status === 'not_supported'))
      printLines(['Why cases are not supported: ropewalk check --verbose']);
    if (failed.length > 0) {
      // At the end, because nobody would see them between a thousand other lines.
      const again = options.verbose ? failed.map((one) => formatResult(one)) : [];
      printLines(['', 'Failed; rerun one with: ropewalk check --case "LINE"', ...again]);
    }
  }
  return failed.length > 0 ? EXIT.failed : EXIT.ok;
}

async function chooseCases(options: CheckOptions): Promise<{ cases: ConformanceCase[]; left: readonly LineLeft[] }> {
  const all = casesOf(options.vectors);
  if (options.case === undefined) return { cases: filterCases(all, options), left: [] };
  const { found, left } = await readCaseLines(options.case, all, '--case');
  return { cases: found.map(({ one }) => one), left };
}

/** Gives cases of a device's published run the positions of that run. */
async function casesFor(backend: string | undefined, cases: ConformanceCase[]): Promise<ConformanceCase[]> {
  if (backend === undefined || BACKENDS.some(({ name }) => name === backend)) return cases;
  const device = (await import('@ropewalk/devices')).DEVICES.find(({ name }) => name === backend);
  return device ? cases.map((one) => asPublished(one, device).one) : cases;
}

/** Reads the cases of a folder of vectors, or those that come with the package. @throws {RopewalkError} FORMAT */
export function casesOf(vectors: string | undefined): ConformanceCase[] {
  return vectors === undefined ? builtInCases() : vectorCases(vectorFolder(vectors), () => import('@ropewalk/onnx'));
}

/** Chooses the cases whose label or suite matches `--filter`. @throws {RopewalkError} FORMAT, also when none does */
export function filterCases(all: ConformanceCase[], options: { readonly filter?: string }): ConformanceCase[] {
  const pattern = new Flags(options).pattern('filter');
  if (!pattern) return all;
  const chosen = all.filter(({ label, suite }) => pattern.test(label) || pattern.test(suite));
  if (chosen.length === 0)
    refuse('FORMAT', '--filter', `a pattern that matches one of ${all.length} cases or a suite's name`, options.filter);
  return chosen;
}

/** The published, extended and golden cases, and the vectors that travel with the package. */
export function builtInCases(): ConformanceCase[] {
  const folder = dataFolder('vectors');
  if (folder === undefined)
    fail(
      'FORMAT',
      'vectors',
      'the folder vectors/ of @ropewalk/cli is gone. Install the package again, or give --vectors DIR.',
    );
  return [
    ...publishedCases(),
    ...extendedCases(),
    ...goldenRopeSuite(),
    ...goldenOperatorSuite(),
    ...vectorCases(vectorFolder(folder)),
  ];
}

/** Opens every backend that works here, or the named one. If one cannot open, stderr says why. */
async function openBackends({ backend, provider, form, angles }: CheckOptions): Promise<Backend[]> {
  if (backend !== 'onnxruntime')
    new Flags({ provider, form, angles }).refuseAny(
      ['provider', 'form', 'angles'],
      'it needs --backend onnxruntime.',
      'UNSUPPORTED',
    );
  if (backend !== undefined) {
    // the backend refuses unknown values
    const given = { providers: provider?.split(','), form, angles } as CommandBackendOptions;
    return [await openBackend(backend, given)];
  }
  const open: Backend[] = [];
  for (const entry of BACKENDS) {
    if (entry.byName) continue;
    if (await opensHere(entry)) open.push(await entry.open());
  }
  return open;
}
