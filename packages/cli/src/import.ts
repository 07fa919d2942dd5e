/** `ropewalk import`: the RoPE of an .onnx file, found, described, and run on a backend. @module */
import { writeNpy } from '@ropewalk/formats';
import { onnxFileOf, readExternal, readFileBytes, writeOutput } from '@ropewalk/formats/node';
import {
  type FoundFrequencies,
  groupAlike,
  type ImportedModel,
  type ImportedRope,
  importOnnx,
  MAX_MODEL_BYTES,
  type NearMiss,
  runImported,
} from '@ropewalk/onnx';
import type { Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean, nameLayers, ranges, show } from 'ropewalk/internal';
import { openBackend } from './backends.js';
import { readNpy } from './npy-input.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, printable, printResult } from './output.js';
import { VERSION } from './version.js';

export type ImportOptions = Texts<'run' | 'x' | 'positions' | 'out' | 'backend'> &
  Switches<'json'> & { /** `NAME=file.npy`, each. */ readonly input?: readonly string[] };

/** @returns 0 when RoPE was found (and run); 1 when there is none, or when something only resembles one */
export async function importModel(path: string, options: ImportOptions): Promise<number> {
  checkOptions(options);
  const file = onnxFileOf(path);
  const imported = readGraph(file);
  if (options.run !== undefined) return run(file, imported, options.run, options);
  printResult(options.json, {
    json: () => toJson(file, imported),
    lines: () => describe(file, imported).map(printable),
  });
  return imported.ropes.length === 0 || imported.nearly.length > 0 ? EXIT.failed : EXIT.ok;
}

/** Reads a graph and finds its RoPE; of files beside it only the tables are read. */
export function readGraph(file: string): ImportedModel {
  const bytes = readFileBytes(file, MAX_MODEL_BYTES);
  return importOnnx(bytes, file, { loadExternal: (place) => readExternal(file, place) });
}

function checkOptions(options: ImportOptions): void {
  const flags = new Flags(options);
  if (options.run === undefined) {
    flags.refuseAny(['x', 'positions', 'out', 'backend', 'input'], 'it needs --run NODE.');
    return;
  }
  if (!options.x || !options.out) fail('FORMAT', '--run', 'it needs --x FILE.npy and --out FILE.npy.');
  if (!options.out.endsWith('.npy')) refuse('FORMAT', '--out', 'a .npy file', options.out);
}

async function run(file: string, imported: ImportedModel, name: string, options: ImportOptions): Promise<number> {
  const rope = choose(file, imported, name);
  const inputs: Record<string, Tensor> = {};
  for (const given of options.input ?? []) {
    const [, key, path] = /^([^=]+)=(.+)$/s.exec(given) ?? refuse('FORMAT', '--input', 'NAME=FILE.npy', given);
    if (Object.hasOwn(inputs, key!)) fail('FORMAT', '--input', `${show(key)} is given twice.`);
    inputs[key!] = readNpy(path!, '--input');
  }
  const x = readNpy(options.x!, '--x', 'bf16');
  const positionIds = options.positions === undefined ? undefined : readNpy(options.positions, '--positions');
  const backend = await openBackend(options.backend ?? 'auto');
  try {
    const y = runImported(rope, backend, { x: backend.upload(x), positionIds, inputs });
    const { dtype, shape } = y;
    // npy has no bf16; its bits are stored as u16, as they came.
    writeOutput(options.out!, writeNpy(await y.read(), { dtype: dtype === 'bf16' ? 'u16' : dtype, shape }), '--out');
    const { x: from, out } = options;
    printResult(options.json, {
      json: () => ({ rope: rope.name, backend: backend.name, x: from, out, dtype, shape: [...shape] }),
      lines: () => [`${rope.name}: ${dtype} [${shape.join(', ')}] on ${backend.name}, wrote ${options.out}`],
    });
  } finally {
    backend.dispose();
  }
  return EXIT.ok;
}

function choose(file: string, { ropes }: ImportedModel, name: string): ImportedRope {
  const found = ropes.filter((rope) => rope.name === name || rope.y === name || where(rope) === name);
  if (found.length === 1) return found[0]!;
  if (ropes.length === 0) fail('RANGE', '--run', `${file} has no RoPE to run.`);
  if (found.length > 1)
    fail(
      'RANGE',
      '--run',
      `several RoPEs are called ${show(name)}. Name one by what it writes: ${found.map((rope) => rope.y).join(', ')}.`,
    );
  const names = ropes.slice(0, 4).map((rope) => show(where(rope)));
  const more = ropes.length > 4 ? ` and ${ropes.length - 4} more` : '';
  return refuse(
    'RANGE',
    '--run',
    `one of ${names.join(', ')}${more}`,
    name,
    didYouMean(name, names) ?? `ropewalk import ${file} lists them.`,
  );
}

function describe(file: string, { model, ropes, layers, nearly }: ImportedModel): string[] {
  const groups = groupAlike(ropes);
  const lines = [
    `${file}: ${ropes.length} RoPE${groups.length > 1 ? `, ${groups.length} kinds` : ''} ` +
      `(${model.graph.nodes.length} nodes, opset ${model.opsets.get('') ?? 'unknown'}${model.producer === '' ? '' : `, from ${show(model.producer)}`})`,
  ];
  if (ropes.length === 0) {
    lines.push(
      '  looked for RotaryEmbedding (ai.onnx, com.microsoft), attention of com.microsoft with do_rotary,',
      '  and arithmetic that turns pairs: y0 = x0·cos − x1·sin, y1 = x0·sin + x1·cos, in whatever operators',
    );
  }
  for (const group of groups) lines.push('', ...describeGroup(group));
  const still = layers.filter((layer) => !ropes.some((rope) => rope.layer === layer));
  if (ropes.length > 0 && still.length > 0) lines.push('', `${nameLayers(still)}: no RoPE`);
  for (const miss of nearly) lines.push('', `${where(miss)}: not RoPE, because ${miss.because}`);
  return lines;
}

function where({ name, scope, scopeName }: { name: string; scope?: string } & Partial<NearMiss>): string {
  const within = scope ?? scopeName ?? '';
  return within === '' ? name : `${within} / ${name}`;
}

function describeGroup(group: readonly ImportedRope[]): string[] {
  const rope = group[0]!;
  const { tables, positions, frequencies, rotaryDim, headDim, rotaryOffset = 0 } = rope;
  const names = group.slice(0, 2).map(where);
  const heads = [...new Set(group.map((one) => one.numHeads).filter((count) => count !== undefined))];
  const known = [...new Set(group.map(({ layer }) => layer))].filter((layer) => layer !== undefined);
  known.sort((a, b) => a - b);
  const title =
    group.length > 2
      ? `${names[0]} … ${where(group.at(-1)!)}: ${group.length} nodes, all alike`
      : `${names.join(', ')}${group.length > 1 ? ': alike' : ''}`;
  const rows: [string, string | undefined][] = [
    ['layers', known.length > 0 ? ranges(known) : undefined],
    ['form', rope.form],
    ['x → y', group.length > 1 ? undefined : `${rope.x} → ${rope.y}${rope.dtype ? ` (${rope.dtype})` : ''}`],
    ['pairing', rope.pairing && `${rope.pairing}${rope.direction === 'backward' ? ', backward' : ''}`],
    ['head_dim', headDim === undefined ? 'not said' : String(headDim)],
    ['rotary_dim', rotaryDim === undefined ? 'not said' : `${rotaryDim}${rotaryOffset ? ` from ${rotaryOffset}` : ''}`],
    ['layout', rope.layout && `${rope.layout}${heads.length > 0 ? `, ${heads.join(' and ')} heads` : ''}`],
    ['cos, sin', TABLES[tables.from] + (tables.rows === undefined ? '' : ` of ${tables.rows} positions`)],
    ['positions', describePositions(positions)],
    ...(frequencies ? describeFrequencies(frequencies) : []),
    ['axes', rope.axisOfPair && `the axis of each pair is ${brief(rope.axisOfPair)}`],
    ['run', rope.whyNotRun && `not here: ${rope.whyNotRun}`],
  ];
  return [
    title,
    ...rows.filter(([, value]) => value !== undefined).map(([key, value]) => `  ${key.padEnd(11)} ${value}`),
    ...rope.notes.map((note) => `  note: ${note}`),
  ];
}

const TABLES: Readonly<Record<ImportedRope['tables']['from'], string>> = {
  cache: 'a cache',
  computed: 'computed in the graph from positions',
  input: 'inputs of the graph',
  inside: 'inside attention',
  unknown: 'from operators that are not known here',
};

function describePositions(positions: ImportedRope['positions']): string {
  switch (positions.from) {
    case 'input':
      return `${positions.name}${positions.shape ? ` [${positions.shape.join(', ')}]` : ''}`;
    case 'graph':
      return `computed: ${positions.operator} ${positions.name}${positions.needs.length > 0 ? `, from ${positions.needs.join(', ')}` : ''}`;
    case 'rows':
      return 'the place in the sequence';
    case 'inside':
      return 'counted by attention';
  }
}

function describeFrequencies({ law, magnitude, invFreq }: FoundFrequencies): [string, string][] {
  const rows: [string, string][] = [];
  if (law.kind === 'power')
    rows.push(['base', `${law.base}${law.factor === 1 ? '' : `, every frequency divided by ${law.factor}`}`]);
  else if (law.kind === 'scaled') {
    const { plainPairs, factors } = law;
    rows.push(
      ['base', String(law.base)],
      ['scaling', `pairs 0-${plainPairs - 1} plain, then divided by ${brief(factors.slice(plainPairs))}`],
    );
  } else rows.push(['frequencies', `no law that is known here: ${brief(invFreq)}`]);
  return magnitude === 1 ? rows : [...rows, ['factor', `${magnitude} on cos and sin`]];
}

function brief(values: readonly number[]): string {
  const short = (value: number): string => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : 'no end');
  return values.length <= 8
    ? values.map(short).join(', ')
    : `${values.slice(0, 3).map(short).join(', ')}, …, ${values.slice(-2).map(short).join(', ')}`;
}

function toJson(file: string, { model, ropes, layers, nearly }: ImportedModel): unknown {
  return {
    ropewalk: VERSION,
    file,
    irVersion: model.irVersion,
    producer: model.producer,
    opsets: Object.fromEntries(
      [...model.opsets].map(([domain, version]) => [domain === '' ? 'ai.onnx' : domain, version]),
    ),
    layers,
    ropes: ropes.map(({ found: _what, ...rope }) => rope),
    nearly: nearly.map(({ name, scopeName, because }) => ({ name, scope: scopeName, because })),
  };
}
