/** `ropewalk bench`: times the operators on this machine's backends, beside a copy of the same bytes. @module */

import {
  allCases,
  type BenchCase,
  chooseCases,
  gpuCases,
  ropeLineCase,
  runGpuSession,
  type SessionResult,
} from '@ropewalk/bench/internal';
import { type CpuSession, exitCodeOf, rooflinePicture } from '@ropewalk/bench/internal/node';
import { describeMachine, printReport, type Report, runCpuSession } from '@ropewalk/bench/node';
import { writeOutput } from '@ropewalk/formats/internal/node';
import { fail, refuse } from 'ropewalk/backend';
import { MAX_THREADS } from 'ropewalk/internal';
import { BACKENDS, opensHere } from './backends.js';
import { Flags, type Switches, type Texts } from './options.js';
import { printLines, showProgress } from './output.js';
import { isRopeLine } from './rope-line.js';
import { VERSION } from './version.js';

export type BenchOptions = Texts<'backend' | 'threads' | 'only' | 'json' | 'svg'> & Switches<'quick'>;

/** @returns 0 when every result was right, however slow; 1 when one was wrong */
export async function bench({ quick = false, only, json, svg, ...rest }: BenchOptions): Promise<number> {
  const flags = new Flags<BenchOptions>({ only, ...rest });
  const backend = flags.word('backend', ['cpu', 'webgpu']);
  if (backend === 'webgpu')
    flags.refuseAny(['threads'], 'it needs --backend cpu: a GPU has none to set.', 'UNSUPPORTED');
  const threads = flags.integers('threads', 1, MAX_THREADS, MAX_THREADS);
  const cases = only !== undefined && isRopeLine(only) ? await readLines(only) : undefined;
  if (!cases) flags.pattern('only');
  const onGpu =
    backend === 'webgpu' ||
    (backend === undefined && (await opensHere(BACKENDS.find(({ name }) => name === 'webgpu')!)));
  const all = { cpu: backend === 'webgpu' ? [] : allCases(quick), webgpu: onGpu ? gpuCases(quick) : [] };
  const options = { quick, only, cases };
  const [onCpu, others] = [chooseCases(all.cpu, options), onGpu ? chooseCases(all.webgpu, options) : []];
  if (onCpu.length + others.length === 0) {
    const labels = [...all.cpu, ...all.webgpu].map(({ label }) => label);
    refuse(
      'FORMAT',
      '--only',
      `a pattern that matches one of ${new Set(labels).size} cases, such as ^rope, or a ROPE(…) line`,
      only,
    );
  }
  if (svg !== undefined && onCpu.length === 0)
    fail('UNSUPPORTED', '--svg', 'it draws cases of cpu, and none was asked for. Leave it out.');

  const cpu: CpuSession[] = [];
  const gpu: SessionResult[] = [];
  try {
    for (const count of onCpu.length > 0 ? (threads ?? [undefined]) : [])
      cpu.push(await runCpuSession('cpu', count, options, (label) => showProgress(`cpu: ${label}`)));
    if (others.length > 0)
      gpu.push(await runGpuSession(options, `Node ${process.version}`, (label) => showProgress(`webgpu: ${label}`)));
  } finally {
    showProgress();
  }
  const report: Report = { machine: describeMachine(VERSION), quick, sessions: [...cpu, ...gpu] };
  printLines([printReport(report)]);
  if (json !== undefined) writeOutput(json, `${JSON.stringify(report)}\n`, '--json');
  // Wrong results have no times, so that there may be nothing to draw.
  if (svg !== undefined && cpu[0]!.results.length > 0)
    writeOutput(svg, rooflinePicture(cpu[0]!, report.machine), '--svg');
  return exitCodeOf(report);
}

/** Makes a case of each `ROPE(…)` line. */
async function readLines(text: string): Promise<BenchCase[]> {
  const { parseRopeLabel } = await import('@ropewalk/oracle');
  const { drawRopeCase, parseTestLog } = await import('@ropewalk/oracle/internal');
  const { cases, others } = parseTestLog(text);
  if (others[0]) refuse('FORMAT', '--only', 'ROPE(…) lines', others[0].text);
  return cases.map(({ label }) => {
    const params = parseRopeLabel(label);
    const { x, plan } = drawRopeCase(params);
    return ropeLineCase(label, x, plan, params.inplace === 1);
  });
}
