/** `ropewalk diff`: the effective RoPE of two models, or of two readings of one, layer by layer. @module */

import { readRopeSource } from '@ropewalk/checkpoint/node';
import { type ComparedSide, compareModels, type RopeComparison, specToJson } from '@ropewalk/dialects';
import { isFolder, isGraphFolder, onnxFileOf } from '@ropewalk/formats/node';
import { type GraphRope, graphRope, type ImportedModel } from '@ropewalk/onnx';
import type { TableRecipe } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { countLayers, nameLayers, readName } from 'ropewalk/internal';
import { problemsOf, readGraph } from './inspect-graph.js';
import { Flags, MAX_INTEGER, type Switches, type Texts } from './options.js';
import { EXIT, printable, printResult, small } from './output.js';
import { isRopeLine } from './rope-line.js';
import { readRope } from './rope-source.js';

export type DiffOptions = Texts<'context' | 'positions' | 'recipe'> & Switches<'json'>;

const RECIPES = ['float64', 'ggml-f32', 'hf-f32'] as const;
const MAX_POSITIONS = 64;

interface DiffSide extends ComparedSide {
  readonly name: string;
  readonly about: string;
  readonly notes: readonly string[];
  /** Problems of a graph, as full sentences. */
  readonly findings: readonly string[];
  /** The tables of a graph, compared with the other side. */
  readonly tables?: GraphRope['tables'];
}

/** A graph that was read before the other side. */
interface GraphSide {
  readonly name: string;
  readonly file: string;
  readonly graph: ImportedModel;
}

/**
 * @param a - a text for {@link readRope}, with `@RECIPE` behind it for the computation of its angles
 * @returns 0 when a model gives the same results with both, else 1
 */
export async function diff(a: string, b: string, options: DiffOptions): Promise<number> {
  const flags = new Flags(options);
  const context = flags.integer('context', 1);
  const positions = flags.integers('positions', 0, MAX_INTEGER, MAX_POSITIONS) ?? [1, 40, 8192, 131072];
  const recipe = flags.word('recipe', RECIPES) ?? 'float64';
  const read = (text: string, tokens = context) => readSide(text, recipe, tokens);
  const [first, second] = [await read(a), await read(b)];
  let sides: readonly [DiffSide, DiffSide];
  if ('graph' in first && 'graph' in second) {
    const side = sideOfGraph(first);
    sides = [side, sideOfGraph(second, side)];
  } else if ('graph' in first)
    sides = await besideGraph(first, (tokens) => read(b, tokens) as Promise<DiffSide>, context);
  else if ('graph' in second) {
    const [graph, other] = await besideGraph(second, (tokens) => read(a, tokens) as Promise<DiffSide>, context);
    sides = [other, graph];
  } else sides = [first, second];
  const compared = compareModels(...sides, positions);
  const result = { ...compared, same: compared.same && sides.every(({ findings }) => findings.length === 0) };
  const toJson = () => {
    const [jsonA, jsonB] = sides.map(({ name, recipe: own, rope, notes, findings, tables }) => ({
      name,
      source: tables ? 'onnx' : 'layers' in rope ? rope.source : 'record',
      recipe: own,
      layers: 'layers' in rope ? rope.layers.length : undefined,
      notes,
      findings,
      tables,
    }));
    const groups = result.groups.map((group) => ({
      ...group,
      a: group.a ? specToJson(group.a) : null,
      b: group.b ? specToJson(group.b) : null,
    }));
    return { ...result, a: jsonA, b: jsonB, groups };
  };
  printResult(options.json, { json: toJson, lines: () => describe(sides, result) });
  return result.same ? EXIT.ok : EXIT.failed;
}

async function readSide(text: string, recipe: TableRecipe, context: number | undefined): Promise<DiffSide | GraphSide> {
  // A path may contain an @: only the last one counts, and only if the text before it is a file or a line.
  const [, before, word] = /^(.+)@([\w-]+)$/s.exec(text) ?? [];
  const at =
    before !== undefined &&
    (/\.(json|gguf|onnx)$|^\s*ROPE\s*\(.*\)$/is.test(before) || (isFolder(before) && !isFolder(text)));
  const [path, own] = at ? [before, readName(word!, RECIPES, text)] : [text, recipe];
  if (/\.onnx$/i.test(path) || isGraphFolder(path)) {
    if (at) fail('UNSUPPORTED', text, 'a graph computes its angles itself. Leave out what is behind @.');
    const file = onnxFileOf(path);
    return { name: text, file, graph: readGraph(file) };
  }
  const record = { name: text, recipe: own, about: 'one record for every layer', notes: [], findings: [] };
  if (isRopeLine(path)) {
    const { spec, notes } = await readRope(path);
    return { ...record, rope: spec, notes };
  }
  const source = await readRopeSource(path, context);
  if (source.kind === 'record') return { ...record, rope: source.spec };
  const { model } = source;
  const about = `${model.architecture}, ${countLayers(model.numLayers)} (${model.source})`;
  return { ...record, rope: model, about, notes: model.notes };
}

/**
 * Compares a graph with a model. Scaling that depends on the context uses the context of the graph, which is the length
 * of its tables, or that of --context.
 */
async function besideGraph(
  graph: GraphSide,
  read: (tokens?: number) => Promise<DiffSide>,
  context: number | undefined,
): Promise<[graph: DiffSide & { alike: boolean }, other: DiffSide]> {
  const other = await read(context);
  const side = sideOfGraph(graph, other);
  const maxContext = contextOf(other);
  const rows = contextOf(side) ?? maxContext;
  if (context !== undefined || side.alike || rows === undefined) return [side, other];
  // Some tables have one row more than the context.
  for (const tokens of new Set([Math.min(rows, maxContext ?? rows), rows, rows - 1])) {
    const again = tokens > 0 ? await read(tokens) : other;
    const made = sideOfGraph(graph, again);
    const note = `read for a context of ${tokens} tokens, as the graph's tables are.`;
    if (made.alike) return [made, { ...again, notes: [...again.notes, note] }];
  }
  return [side, other];
}

const contextOf = ({ rope }: Pick<DiffSide, 'rope'>): number | undefined =>
  'layers' in rope ? rope.maxContext : undefined;

function sideOfGraph({ name, file, graph }: GraphSide, other?: DiffSide): DiffSide & { alike: boolean } {
  const found = graphRope(graph, file, other?.rope);
  const { rope, tables, alike } = found;
  const count = graph.model.graph.nodes.length;
  const layers = 'layers' in rope ? countLayers(rope.numLayers) : 'one RoPE, in layers that are not known';
  const notes = tables.map(
    ({ name: node, positions, worst }) =>
      `${printable(node)}: cos and sin compared at ${positions} positions, at most ${small(worst)} apart.`,
  );
  const [own, others] = [contextOf({ rope }), other && contextOf(other)];
  if (own !== undefined && others !== undefined && own < others)
    notes.push(
      `its ${tables.some(({ end }) => end === own) ? 'angles' : 'tables'} end at position ${own - 1}, and the model's context is ${others}.`,
    );
  const about = `${layers} (onnx, ${count} nodes)`;
  return {
    name,
    recipe: 'float64',
    rope,
    about,
    notes,
    findings: problemsOf(found),
    tables,
    alike,
  };
}

function describe(sides: readonly DiffSide[], { groups, notes, reason }: ReturnType<typeof compareModels>): string[] {
  const names = ['A', 'B'];
  const lines = [
    ...sides.map(({ name, about }, n) => `${names[n]}  ${name}: ${about}`),
    ...sides.flatMap((side, n) => side.notes.map((note) => `  note on ${names[n]}: ${note}`)),
    ...sides.flatMap((side, n) => side.findings.map((sentence) => `  ≠ ${names[n]}: ${sentence}`)),
    ...notes.map((note) => `  note: ${note}`),
    reason,
  ];
  const records = sides.every(({ rope }) => !('layers' in rope));
  for (const { layers, types, comparison, same, verdict } of groups) {
    const title = records ? 'the two records' : `${nameLayers(layers)}${types ? ` (${types})` : ''}`;
    const moved = comparison && comparison.layout !== 'same';
    lines.push('', `${title}: ${same ? (moved ? 'same, in another layout' : 'same') : 'different'}`);
    if (comparison) lines.push(...tableOf(comparison));
    lines.push(...verdict.map((sentence) => `  ${sentence}`));
  }
  return lines;
}

function tableOf({ rows, maxRelInvFreq, worstPair, apart, searched, nmse }: RopeComparison): string[] {
  // Equal values are printed once, and do not widen the columns.
  const width = Math.max(...rows.filter((row) => row.a !== row.b).map((row) => row.a.length), 1);
  const largest = maxRelInvFreq === 0 ? '0' : `${maxRelInvFreq.toExponential(1)} relative, pair ${worstPair}`;
  const nowhere = `${apart[0]!.rad} rad apart nowhere up to position ${searched}`;
  const far = apart.map(
    ({ rad, position, pair }) =>
      `${rad} rad ${position === undefined ? `nowhere up to ${searched}` : `from ${position} (pair ${pair})`}`,
  );
  const at = (pick: (one: RopeComparison['nmse'][number]) => number): string =>
    nmse.map((one) => `${small(pick(one))} at ${one.position}`).join(', ');
  return [
    ...rows.map((row) => {
      const values = row.a === row.b ? row.a : `${row.a.padEnd(width)}  ${row.b}`;
      return `  ${row.differs ? '≠' : ' '} ${row.name.padEnd(11)} ${values}`;
    }),
    `    inv_freq    max |Δ| ${largest}`,
    `    angles      more than ${apart[0]!.position === undefined ? nowhere : far.join(', ')}`,
    `    NMSE        ${at((one) => one.text)}`,
    ...(nmse.some((one) => one.image !== undefined) ? [`    NMSE image  ${at((one) => one.image!)}`] : []),
  ];
}
