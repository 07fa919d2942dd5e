/** The RoPE of an ONNX graph in `ropewalk inspect`: its description, and `--run`, which computes it on a backend. @module */
import { writeNpy } from '@ropewalk/formats';
import { writeOutput } from '@ropewalk/formats/internal/node';
import { type ImportedModel, type ImportedRope, runImported } from '@ropewalk/onnx';
import { type FoundFrequencies, groupAlike } from '@ropewalk/onnx/internal';
import type { Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean, nameLayers, ranges, show } from 'ropewalk/internal';
import { openBackend } from './backends.js';
import { readNpy } from './npy-input.js';
import type { Texts } from './options.js';
import { EXIT, printResult } from './output.js';
import { VERSION } from './version.js';

/** Options that need `--run`. */
export type RunOptions = Texts<'x' | 'positions' | 'out' | 'backend'> & {
  readonly json?: boolean;
  /** Each is `NAME=file.npy`. */
  readonly input?: readonly string[];
};

/** Runs the RoPE that `--run` names. @returns exit code 0 */
export async function runRope(
  file: string,
  imported: ImportedModel,
  name: string,
  options: RunOptions,
): Promise<number> {
  if (!options.x || !options.out) fail('FORMAT', '--run', 'it needs --x FILE.npy and --out FILE.npy.');
  if (!options.out.endsWith('.npy')) refuse('FORMAT', '--out', 'a .npy file', options.out);
  const rope = choose(file, imported, name);
  const inputs: Record<string, Tensor> = {};
  for (const given of options.input ?? []) {
    const [, key, path] = /^([^=]+)=(.+)$/s.exec(given) ?? refuse('FORMAT', '--input', 'NAME=FILE.npy', given);
    if (Object.hasOwn(inputs, key!)) fail('FORMAT', '--input', `${show(key)} is given twice.`);
    inputs[key!] = readNpy(path!, '--input');
  }
  const x = readNpy(options.x, '--x', 'bf16');
  const positionIds = options.positions === undefined ? undefined : readNpy(options.positions, '--positions');
  const backend = await openBackend(options.backend ?? 'auto');
  try {
    const y = runImported(rope, backend, { x: backend.upload(x), positionIds, inputs });
    const { dtype, shape } = y;
    // npy has no bf16; its bits are stored as u16, as they came.
    writeOutput(options.out, writeNpy(await y.read(), { dtype: dtype === 'bf16' ? 'u16' : dtype, shape }), '--out');
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
    didYouMean(name, names) ?? `ropewalk inspect ${file} lists them.`,
  );
}

/** Describes each kind of RoPE in the graph, and what only resembles one. */
export function describeRopes(file: string, { model, ropes, layers, nearly }: ImportedModel): string[] {
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
  for (const { name, scopeName, because } of nearly)
    lines.push('', `${where({ name, scope: scopeName })}: not RoPE, because ${because}`);
  return lines;
}

/** The name of a node, after that of the function or subgraph that holds it. */
function where({ name, scope }: { readonly name: string; readonly scope: string }): string {
  return scope === '' ? name : `${scope} / ${name}`;
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

/** The same as JSON, with everything that is known of each RoPE. */
export function ropesToJson(file: string, { model, ropes, layers, nearly }: ImportedModel): object {
  return {
    ropewalk: VERSION,
    file,
    irVersion: model.irVersion,
    producer: model.producer,
    opsets: opsetsOf(model),
    layers,
    ropes: ropes.map(({ found: _nodes, ...rope }) => rope),
    nearly: nearly.map(({ name, scopeName, because }) => ({ name, scope: scopeName, because })),
  };
}

/** The versions of operators that a graph uses, by domain. */
export function opsetsOf({ opsets }: ImportedModel['model']): Record<string, number> {
  return Object.fromEntries(Array.from(opsets, ([domain, version]) => [domain || 'ai.onnx', version]));
}
