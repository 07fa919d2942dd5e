/** Probes llama.cpp's own server with its options: `--rope-*`, caches of 8 bits, pieces of a prompt. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import type { Model } from '@ropewalk/model';
import { loadModelFolder } from '@ropewalk/model/node';
import { writeGguf } from '@ropewalk/model/repack';
import { randomFrom } from 'ropewalk/internal';
import { MARLINE } from '../../../test/support/probe-server.js';
import { noPython, startPython } from '../../../test/support/python.js';
import { changeableEngine, probe, reportLines } from '../src/index.js';

const folder = mkdtempSync(join(tmpdir(), 'probe-llama-server-'));
const random = randomFrom(process.env.SEED ?? 'options of llama-server');
const drawn = (low: number, high: number): number =>
  Number(Math.exp(random.uniform(Math.log(low), Math.log(high))).toPrecision(3));

after(() => rmSync(folder, { recursive: true }));

type Options = readonly string[];
type Fault = [options: Options, kind: string, value: number];

/** Bases, a factor of all positions and YaRN, as a user of llama-server sets them; the factor is 1 / `rope_freq_scale`. */
function faults(): Fault[] {
  const [lower, higher, linear, factor] = [drawn(300, 3000), drawn(30_000, 1e6), drawn(1.5, 8), drawn(3, 20)];
  const yarn = ['rope_scaling_type=yarn', `rope_freq_scale=${1 / factor}`, 'yarn_orig_ctx=64'];
  return [
    [[`rope_freq_base=${lower}`], 'base', lower],
    [[`rope_freq_base=${higher}`], 'base', higher],
    [['rope_scaling_type=linear', `rope_freq_scale=${1 / linear}`], 'linear', linear],
    [yarn, 'scaling', factor],
  ];
}

const RIGHT: Readonly<Record<'f16' | 'q8_0', Options[]>> = {
  f16: [[], ['n_ubatch=16', 'n_batch=32']],
  q8_0: [[], ['cache_type_k=q8_0', 'cache_type_v=q8_0']],
};

for (const type of ['f16', 'q8_0'] as const)
  describe(`llama-server with marline in ${type}`, { skip: noPython }, () => {
    const file = join(folder, `${type}.gguf`);
    const engine = changeableEngine({ backend: 'cpu' });
    let model: Model;
    before(async () => {
      await writeGguf(MARLINE, file, { type });
      model = await loadModelFolder(MARLINE, { engine });
    });
    after(() => model.dispose());

    for (const [options, kind, value] of [...RIGHT[type].map((options): [Options] => [options]), ...faults()])
      test(`${options.join(' ') || 'as it is'}: ${kind ?? 'it is not accused'}`, async () => {
        const server = startPython('llama_server.py', [file, 'n_ctx=256', 'n_threads=1', ...options]);
        try {
          const report = await probe(await firstLine(server), { model, engine, tokens: 128 });
          const text = reportLines(report).join('\n');
          assert.deepEqual([report.verdict, report.best?.kind], kind ? ['named', kind] : ['agrees', undefined], text);
          if (value === undefined) return;
          const { value: found, range } = report.best!;
          const isIn = range !== undefined && value > (range[0] ?? 0) && value < (range[1] ?? Infinity);
          assert.ok(Math.abs(found! / value - 1) < 0.05 || isIn, text);
        } finally {
          server.kill();
        }
      });
  });

async function firstLine(child: ChildProcess): Promise<string> {
  const lines = createInterface({ input: child.stdout! });
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`the server ended with ${code}`);
  });
  ended.catch(() => undefined);
  const [line] = await Promise.race([once(lines, 'line'), ended]);
  return line;
}
