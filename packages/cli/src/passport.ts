/** `ropewalk passport`: what every runtime rotates with a model's files, what is wrong, and what it costs. @module */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readRopeSource } from '@ropewalk/checkpoint/node';
import { type Passport, type PassportForm, passportOf } from '@ropewalk/dialects';
import { checkStamp, describeReading, STAMP_FORM } from '@ropewalk/dialects/internal';
import { describeLayers } from '@ropewalk/dialects/internal/models';
import { readJsonFile, writeOutput } from '@ropewalk/formats/internal/node';
import { isGraphFolder, modelFileOf, onnxFileOf, readGgufModel } from '@ropewalk/formats/node';
import { graphRope } from '@ropewalk/onnx';
import type { RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { countLayers, escapeMarkup } from 'ropewalk/internal';
import { problemsOf, readGraph } from './inspect-graph.js';
import { Flags, type Switches, type Texts } from './options.js';
import { counted, EXIT, printable, printResult } from './output.js';
import { type Cost, costOf, costSvg } from './passport-cost.js';
import type { ModelRunOptions } from './run-model.js';
import { VERSION } from './version.js';

export type PassportCommandOptions = Omit<ModelRunOptions, 'model' | 'cacheDtype'> &
  Texts<'text' | 'svg' | 'junit' | 'stamp'> &
  Switches<'strict' | 'check' | 'estimate'> & { readonly serve?: readonly string[] };

type Finding = Passport['findings'][number];

/**
 * @param paths - the forms of one model; the first is what its maker published
 * @returns 1 for a finding of level error, with --strict also for a warning; else 0
 */
export async function passport(paths: readonly string[], options: PassportCommandOptions): Promise<number> {
  const flags = new Flags(options);
  const context = flags.integer('context', 1);
  if (options.check && options.stamp === undefined)
    fail('FORMAT', '--check', 'it needs --stamp FILE, the stamp to hold the model against.');
  if (options.text === undefined)
    flags.refuseAny(
      ['backend', 'threads', 'activations', 'svg', 'estimate'],
      'it needs --text FILE, of which the cost is computed.',
    );
  const forms: PassportForm[] = [];
  const graphs: Finding[] = [];
  for (const path of paths) {
    const graph = isGraph(path) ? await readGraphForm(path, paths[0]!, context) : undefined;
    forms.push(graph?.form ?? (await readForm(path)));
    graphs.push(...(graph?.findings ?? []));
  }
  const result = passportOf(forms, { serve: options.serve, context });
  const { table } = result;
  const hash = table && createHash('sha256').update(table).digest('hex');
  const findings = [...graphs, ...result.findings];
  const isStamped = hash !== undefined && findings.every(({ level }) => level !== 'error');
  if (options.stamp !== undefined && hash !== undefined) {
    if (options.check) findings.push(...checkStamp(readJsonFile(options.stamp), options.stamp, hash));
    else if (isStamped) writeStamp(options.stamp, hash, result);
  }
  const cost = options.text === undefined ? undefined : await costOf(paths[0]!, options.text, result, options);
  if (cost && options.svg !== undefined) writeOutput(options.svg, costSvg(cost), '--svg');
  const passed = { ...result, findings };
  if (options.junit !== undefined) writeOutput(options.junit, toJunit(passed, forms), '--junit');
  printResult(options.json, {
    json: () => ({
      ropewalk: VERSION,
      hash,
      readings: result.readings.map(({ model, comparison, ...one }) => ({
        ...one,
        layers: model?.numLayers,
        notes: model?.notes,
        groups: comparison?.groups,
      })),
      findings,
      cost,
    }),
    lines: () => [
      ...describe(passed, hash, cost),
      ...(options.stamp !== undefined && !options.check && !isStamped ? ['not stamped: mend the errors first'] : []),
    ],
  });
  const worst = options.strict ? ['error', 'warning'] : ['error'];
  return findings.some(({ level }) => worst.includes(level)) ? EXIT.failed : EXIT.ok;
}

async function readForm(path: string): Promise<PassportForm> {
  const file = modelFileOf(path);
  if (/\.gguf$/i.test(file)) {
    const { header, factors } = await readGgufModel(file);
    return { name: path, header: { ...header, readTensor: (name) => factors.get(name) } };
  }
  if (/\.json$/i.test(file)) return { name: path, json: readJsonFile(file) };
  if (!existsSync(file)) fail('FORMAT', path, 'there is no such file or folder.');
  return refuse('FORMAT', path, 'a config.json, a .gguf, an .onnx, or a folder with one', file);
}

const isGraph = (path: string): boolean => /\.onnx$/i.test(path) || isGraphFolder(path);

/** Reads the RoPE of a graph beside the first form: tables tell frequencies only within their rounding. */
async function readGraphForm(
  path: string,
  first: string,
  context: number | undefined,
): Promise<{ form: PassportForm; findings: Finding[] }> {
  const next = 'Give the form that it was made from before it: config.json or a .gguf.';
  if (path === first) fail('UNSUPPORTED', path, `a graph is compared with another form. ${next}`);
  const source = await readRopeSource(first, context);
  if (source.kind === 'record') return fail('FORMAT', first, `it is no model. ${next}`);
  const file = onnxFileOf(path);
  const found = graphRope(readGraph(file), file, source.model);
  const { rope } = found;
  const layers = source.model.layers.map((layer) => ({ ...layer, rope: layer.rope && (rope as RopeSpec) }));
  const model = 'layers' in rope ? rope : { ...source.model, layers };
  const findings = problemsOf(found).map((says): Finding => ({ level: 'error', where: path, says }));
  return { form: { name: path, reader: 'the graph itself', model }, findings };
}

function writeStamp(path: string, hash: string, { readings }: Passport): void {
  const [first] = readings;
  const { architecture, numLayers, layers } = first!.model!;
  const stamp = {
    form: STAMP_FORM,
    ropewalk: VERSION,
    hash,
    reader: first!.reader,
    source: first!.source,
    architecture,
    numLayers,
    rope: describeLayers(layers),
  };
  writeOutput(path, `${JSON.stringify(stamp, null, 2)}\n`, '--stamp');
}

function describe({ readings, findings }: Passport, hash: string | undefined, cost: Cost | undefined): string[] {
  const lines: string[] = [];
  let form: string | undefined;
  for (const one of readings) {
    const { model } = one;
    if (one.form !== form) {
      form = one.form;
      const about = model ? `: ${model.architecture}, ${countLayers(model.numLayers)}` : '';
      lines.push(...(lines.length > 0 ? [''] : []), `${form}${about}`);
    }
    lines.push(`  ${one.reader}`);
    lines.push(...describeReading(one).map((line) => `    ${line}`));
  }
  if (findings.length > 0) lines.push('', 'Findings');
  for (const { level, where, says, repair, source } of findings) {
    const [first, ...others] = printable(says).split(/(?<=\.) (?=[A-Z])/);
    lines.push(`  ${level.toUpperCase().padEnd(7)} ${printable(where)}: ${first}`);
    lines.push(...others.map((sentence) => `          ${sentence}`));
    if (repair) lines.push(`          ${printable(repair)}`);
    if (source) lines.push(`          ${source}`);
  }
  if (cost) lines.push('', ...describeCost(cost));
  const count = (level: Finding['level']): number => findings.filter((one) => one.level === level).length;
  const counts = `${counted(count('error'), 'error')}, ${counted(count('warning'), 'warning')}, ${counted(count('note'), 'note')}`;
  lines.push('', hash ? `${counts}; hash ${hash.slice(0, 12)}` : counts);
  return lines;
}

function describeCost({ tokens, estimatedFrom, readings }: Cost): string[] {
  const width = Math.max(...readings.map(({ reader }) => reader.length));
  const ends = readings[0]!.nats.map(({ to }) => String(to).padStart(8)).join('');
  return [
    `Cost of ${tokens} tokens, in nats a token, up to position${estimatedFrom === undefined ? '' : ` (behind ${estimatedFrom} an estimate)`}`,
    `  ${''.padEnd(width)} ${ends}     all`,
    ...readings.map(
      ({ reader, nats, mean }) =>
        `  ${reader.padEnd(width)} ${nats.map((one) => one.mean.toFixed(3).padStart(8)).join('')}${mean.toFixed(3).padStart(8)}`,
    ),
  ];
}

/** One test case for each form and each finding, errors and warnings as failures. */
function toJunit({ findings }: Passport, forms: readonly PassportForm[]): string {
  const text = (value: string): string => escapeMarkup(printable(value));
  const failures = findings.filter(({ level }) => level !== 'note');
  const isAbout = (where: string, name: string): boolean =>
    where === name || (where.startsWith(name) && /[:,]/.test(where[name.length]!));
  const fine = forms.filter(({ name }) => !failures.some(({ where }) => isAbout(where, name)));
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuite name="ropewalk passport" tests="${fine.length + failures.length}" failures="${failures.length}">`,
    ...fine.map(({ name }) => `  <testcase classname="passport" name="${text(name)}"/>`),
    ...failures.map(
      ({ level, where, says, repair = '' }) =>
        `  <testcase classname="passport" name="${text(where)}"><failure type="${level}" message="${text(says)}">${text(repair)}</failure></testcase>`,
    ),
    '</testsuite>',
    '',
  ].join('\n');
}
