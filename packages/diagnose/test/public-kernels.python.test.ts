/** Kernels of public projects, as they are published and with bugs that they had put back, are diagnosed. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { KERNELS, noKernels, runPython } from '../../../test/support/python.js';

/** The configs of published models that the site shows. */
const MODELS = join(ROOT, 'site/src/explore/models.json');

/** A case of scripts/python/public_kernels.py. */
interface Case {
  readonly name: string;
  readonly project: string;
  readonly model: string;
  readonly dtype: string;
  readonly layout: string;
  readonly layer: number | null;
  /** The words of its bug, with the thread; null where nothing is wrong. */
  readonly bug: string | null;
  /** The known bugs that it is, or what the report must say of it. */
  readonly names?: readonly string[];
  readonly says?: string;
}

type Grade = 'as expected' | 'named' | 'described' | 'vague' | 'wrong name' | 'passed' | 'accused' | 'refused';

/** Diagnoses a case as a user does. @returns its grade, and the first line of the report */
async function graded(folder: string, one: Case): Promise<readonly [grade: Grade, first: string]> {
  const { name, layout, layer, bug, names, says } = one;
  const arrays = ['x', 'y', 'positions'].flatMap((array) => [`--${array}`, `${name}.pt:${array}`]);
  const options = ['--expect', `${name}.json`, '--layout', layout, ...(layer === null ? [] : ['--layer', `${layer}`])];
  const { status, stdout, stderr } = await ropewalkIn(folder, 'diagnose', ...arrays, ...options, '--all');
  // Other options with which y is right are said before the report.
  const report = `${stdout}${stderr}`.replace(/^OTHER OPTIONS: .*\n\n/, '').replace(/\n {2}(?=[a-z])/g, ' ');
  const first = report.split('\n', 1)[0]!;
  const grade = (): Grade => {
    if (status !== 0 && status !== 1) return 'refused';
    if (!bug) return status === 0 ? 'as expected' : 'accused';
    if (status === 0) return 'passed';
    if (says && report.includes(says)) return 'described';
    if (!/KNOWN BUG|^ONE OF/.test(first)) return 'vague';
    return names?.some((id) => first.includes(id)) ? 'named' : 'wrong name';
  };
  return [grade(), first];
}

for (const [environment, right, wrong] of [
  ['v5', 120, 50],
  ['v4', 30, 15],
] as const)
  test(`public kernels, with the Python of ${environment}`, { skip: noKernels }, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'public-kernels-'));
    try {
      runPython('public_kernels.py', [folder, KERNELS, MODELS], environment);
      const cases = JSON.parse(readFileSync(join(folder, 'cases.json'), 'utf8')) as Case[];
      const counts = new Map<Grade, number>();
      const failing: string[] = [];
      for (const one of cases) {
        const [grade, first] = await graded(folder, one);
        counts.set(grade, (counts.get(grade) ?? 0) + 1);
        const told = `${one.project}, ${one.model}, ${one.dtype}: ${one.bug ?? 'right'}: ${grade}: ${first}`;
        if (!['as expected', 'named', 'described'].includes(grade)) failing.push(told);
        if (process.env.PRINT) t.diagnostic(told);
      }
      t.diagnostic([...counts].map(([grade, count]) => `${count} ${grade}`).join(', '));
      assert.deepEqual(failing, []);
      assert.ok(counts.get('as expected')! >= right && counts.get('named')! >= wrong, `${[...counts]}`);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
