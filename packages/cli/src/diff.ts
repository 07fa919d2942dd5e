/**
 * `ropewalk diff`: the effective RoPE of two models, or of two readings of one, layer by layer.
 *
 * @module
 */
import { compareRope, type LayerRope, type ReadingSource, type RopeComparison, specToJson } from '@ropewalk/dialects';
import type { RopeSpec, TableRecipe } from 'ropewalk';
import { ranges } from 'ropewalk/backend';
import { readRopeSource } from './convert.js';
import { isFolder, readModel } from './model-file.js';
import { oneOf, readContext, readIntegers } from './options.js';
import { EXIT, printJson } from './output.js';

/** Options of the command, as the command line gives them. */
export interface DiffOptions {
  readonly context?: string;
  readonly positions?: string;
  readonly recipe?: string;
  readonly json?: boolean;
}

const RECIPES: readonly TableRecipe[] = ['float64', 'ggml-f32', 'hf-f32'];
const MAX_POSITIONS = 64;

/** One side: a model with its layers, or one record for all. */
interface DiffSide {
  readonly name: string;
  readonly source: ReadingSource;
  readonly recipe: TableRecipe;
  /** undefined for a record. */
  readonly layers: readonly LayerRope[] | undefined;
  readonly record: RopeSpec | undefined;
  readonly notes: readonly string[];
  readonly about: string;
}

/** Layers whose two sides are the same two records. */
interface DiffGroup {
  readonly layers: number[];
  readonly types: string;
  readonly a: RopeSpec | undefined;
  readonly b: RopeSpec | undefined;
  readonly comparison: RopeComparison | undefined;
  readonly same: boolean;
  readonly verdict: readonly string[];
}

/**
 * Compares.
 *
 * @param a - a config.json, a .gguf, a folder with one, a record or arguments as .json, or a `ROPE(…)` line; `@RECIPE` behind it
 * @param b - the same
 * @param options - context, positions, recipe, json
 * @returns the exit code: 0 when a model would give the same with either, 1 when not
 * @throws {RopewalkError} for input that makes no sense: the caller exits with 2
 */
export async function diff(a: string, b: string, options: DiffOptions): Promise<number> {
  const context = readContext(options.context, 'diff');
  const positions = readIntegers(
    options.positions ?? '1,40,8192,131072',
    'diff: --positions',
    0,
    2 ** 31 - 1,
    MAX_POSITIONS,
  );
  const recipe = options.recipe === undefined ? 'float64' : oneOf(options.recipe, RECIPES, 'diff: --recipe');
  const [sideA, sideB] = [await readSide(a, recipe, context), await readSide(b, recipe, context)];
  const [countA, countB] = [sideA.layers?.length, sideB.layers?.length];
  const groups = groupLayers(sideA, sideB, positions);
  const notes: string[] = [];
  if (countA !== undefined && countB !== undefined && countA !== countB)
    notes.push(`A has ${countA} layers and B ${countB}: only the first ${Math.min(countA, countB)} are compared.`);
  const same = notes.length === 0 && groups.every((group) => group.same);
  if (options.json) printJson(toJson(sideA, sideB, groups, { same, notes }));
  else process.stdout.write(`${describe(sideA, sideB, groups, notes).join('\n')}\n`);
  return same ? EXIT.ok : EXIT.failed;
}

async function readSide(text: string, recipe: TableRecipe, context: { context?: number }): Promise<DiffSide> {
  // A path may hold an @ of its own: only the last one, with a word behind it that could be a recipe, counts.
  const [, before, word] = /^(.+)@([\w-]+)$/s.exec(text) ?? [];
  const at =
    before !== undefined &&
    (/\.(json|gguf)$|^\s*ROPE\s*\(.*\)$/is.test(before) || (isFolder(before) && !isFolder(text)));
  const [file, own] = at ? [before, oneOf(word!, RECIPES, `diff: ${text}`)] : [text, recipe];
  const source = await readRopeSource(file, 'diff', context).catch(noRopeInLayer0);
  if (source && !source.model)
    return {
      name: text,
      source: 'record',
      recipe: own,
      layers: undefined,
      record: source.spec,
      notes: source.notes,
      about: 'one record for every layer',
    };
  const model = source?.model ?? (await readModel(file, 'diff', context));
  return {
    name: text,
    source: model.source,
    recipe: own,
    layers: model.layers,
    record: undefined,
    notes: model.notes,
    about: `${model.architecture}, ${model.numLayers} layers (${model.source})`,
  };
}

/** A model whose first layer has no position encoding is a model still. */
function noRopeInLayer0(error: unknown): undefined {
  if (error instanceof Error && error.message.includes('which has no position encoding')) return undefined;
  throw error;
}

function groupLayers(a: DiffSide, b: DiffSide, positions: readonly number[]): DiffGroup[] {
  const count = Math.min(a.layers?.length ?? Number.POSITIVE_INFINITY, b.layers?.length ?? Number.POSITIVE_INFINITY);
  const layers = Number.isFinite(count) ? Array.from({ length: count }, (_, layer) => layer) : [0];
  const groups = new Map<string, DiffGroup>();
  const keyOf = (spec: RopeSpec | undefined): string => (spec ? JSON.stringify(specToJson(spec)) : 'none');
  for (const layer of layers) {
    const [ropeA, ropeB] = [a, b].map((side) => (side.layers ? side.layers[layer]!.rope : side.record));
    const names = [a, b].map((side) => side.layers?.[layer]?.layerType).filter((name) => name !== undefined);
    const types = [...new Set(names)].join(' / ');
    const key = `${keyOf(ropeA)} ${keyOf(ropeB)} ${types}`;
    const known = groups.get(key);
    if (known) known.layers.push(layer);
    else
      groups.set(key, { layers: [layer], types, a: ropeA, b: ropeB, ...compareSides(a, b, ropeA, ropeB, positions) });
  }
  return [...groups.values()];
}

function compareSides(
  a: DiffSide,
  b: DiffSide,
  ropeA: RopeSpec | undefined,
  ropeB: RopeSpec | undefined,
  positions: readonly number[],
): Pick<DiffGroup, 'comparison' | 'same' | 'verdict'> {
  if (ropeA && ropeB) {
    const comparison = compareRope(
      { spec: ropeA, source: a.source, recipe: a.recipe },
      { spec: ropeB, source: b.source, recipe: b.recipe },
      positions,
    );
    return { comparison, same: comparison.same, verdict: comparison.verdict };
  }
  if (!ropeA && !ropeB)
    return { comparison: undefined, same: true, verdict: ['Neither has a position encoding here.'] };
  const verdict = [`Only ${ropeA ? 'A' : 'B'} turns these layers: in the other, attention there sees no positions.`];
  return { comparison: undefined, same: false, verdict };
}

function describe(a: DiffSide, b: DiffSide, groups: readonly DiffGroup[], notes: readonly string[]): string[] {
  const lines = [`A  ${a.name}: ${a.about}`, `B  ${b.name}: ${b.about}`];
  for (const [name, side] of [
    ['A', a],
    ['B', b],
  ] as const)
    for (const note of side.notes) lines.push(`  note on ${name}: ${note}`);
  for (const note of notes) lines.push(`  note: ${note}`);
  const one = !a.layers && !b.layers;
  for (const group of groups) {
    const title = one ? 'the two records' : `layers ${ranges(group.layers)}${group.types ? ` (${group.types})` : ''}`;
    const word = !group.same
      ? 'different'
      : group.comparison && group.comparison.layout !== 'same'
        ? 'same, in another layout'
        : 'same';
    lines.push('', `${title}: ${word}`);
    if (group.comparison) lines.push(...tableOf(group.comparison));
    for (const sentence of group.verdict) lines.push(`  ${sentence}`);
  }
  return lines;
}

function tableOf({ rows, maxRelInvFreq, worstPair, apart, searched, nmse }: RopeComparison): string[] {
  // What is the same on both sides is said once, and does not widen the columns.
  const width = Math.max(...rows.filter((row) => row.a !== row.b).map((row) => row.a.length), 1);
  const lines = rows.map((row) => {
    const values = row.a === row.b ? row.a : `${row.a.padEnd(width)}  ${row.b}`;
    return `  ${row.differs ? '≠' : ' '} ${row.name.padEnd(11)} ${values}`;
  });
  lines.push(
    `    inv_freq    max |Δ| ${maxRelInvFreq === 0 ? '0' : `${maxRelInvFreq.toExponential(1)} relative, pair ${worstPair}`}`,
  );
  const far = apart.map(
    ({ rad, position, pair }) =>
      `${rad} rad ${position === undefined ? `nowhere up to ${searched}` : `from ${position} (pair ${pair})`}`,
  );
  lines.push(
    `    angles      more than ${apart[0]!.position === undefined ? `${apart[0]!.rad} rad apart nowhere up to position ${searched}` : far.join(', ')}`,
  );
  const at = (pick: (one: RopeComparison['nmse'][number]) => number): string =>
    nmse.map((one) => `${small(pick(one))} at ${one.position}`).join(', ');
  lines.push(`    NMSE        ${at((one) => one.text)}`);
  if (nmse.some((one) => one.image !== undefined)) lines.push(`    NMSE image  ${at((one) => one.image!)}`);
  return lines;
}

function small(value: number): string {
  return value > 0 && value < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(2)));
}

function toJson(
  a: DiffSide,
  b: DiffSide,
  groups: readonly DiffGroup[],
  rest: { same: boolean; notes: readonly string[] },
): unknown {
  const side = ({ name, source, recipe, layers, notes }: DiffSide): unknown => ({
    name,
    source,
    recipe,
    layers: layers?.length,
    notes,
  });
  return {
    ...rest,
    a: side(a),
    b: side(b),
    groups: groups.map(({ a: ropeA, b: ropeB, comparison, ...group }) => ({
      ...group,
      a: ropeA ? specToJson(ropeA) : null,
      b: ropeB ? specToJson(ropeB) : null,
      ...(comparison ? { comparison } : {}),
    })),
  };
}
