/**
 * The RoPE of a graph, layer by layer, and the comparison of its tables with those of a model.
 *
 * @module
 */
import { effectiveRope, type LayerRope, type ModelRope } from '@ropewalk/dialects';
import type { RopeSpec } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { reading, readOptional, readOptions } from 'ropewalk/internal';
import { CannotEvaluate } from '../operators/values.js';
import { type RopeDescription, specOf } from './describe.js';
import { groupAlike, type ImportedModel, type ImportedRope } from './index.js';
import { type ComparedTables, compareTables, unitOf } from './sampling.js';

/** Relative differences of frequencies up to this are the rounding of f32. */
const ROUNDING = 2 ** -21;

/** Matches the description that `export --whole` writes for weights of a GGUF: `llama (gguf): a whole decoder`. */
const OF_GGUF = /^\S+ \(gguf\):/;

/** The RoPE of a graph. */
export interface GraphRope {
  /** The RoPE of each layer; one spec if all RoPE of the graph is alike and nothing tells its layers. */
  readonly rope: ModelRope | RopeSpec;
  /** The tables of RoPE with the frequencies of the other model, each table once. */
  readonly tables: readonly (ComparedTables & {
    /** The name of the RoPE that reads them. */
    readonly name: string;
  })[];
  /** True if each RoPE has the frequencies and the magnitude of the other model's layer. */
  readonly alike: boolean;
  /** Mistakes inside the graph, in full sentences. */
  readonly findings: readonly string[];
}

/**
 * Reads the RoPE of a graph for the comparison with a model.
 *
 * Frequencies are computed from cos and sin, within the error of {@link ImportedRope.frequencies}. If the other model's
 * frequencies are within that error, they are taken, because a table cannot tell them apart, and every row of the table
 * is compared with them. Rotations that differ from the other model's come first: if q and k of a layer differ, the
 * wrong one is shown.
 *
 * @param imported - from importOnnx
 * @param where - the name of the file in messages
 * @param other - the model or the spec to compare with, if any
 * @throws {RopewalkError} FORMAT if the graph has no RoPE, or its tables cannot be read; UNSUPPORTED if they follow no
 *   rule of positions, or the layers are not known
 */
export function graphRope(imported: ImportedModel, where: string, other?: ModelRope | RopeSpec): GraphRope {
  return reading(where, () => ropeOf(readOptions(imported, where), where, readOptional(other, where)));
}

function ropeOf(imported: ImportedModel, where: string, other: ModelRope | RopeSpec | undefined): GraphRope {
  const { ropes, layers } = imported;
  if (ropes.length === 0) fail('FORMAT', where, 'no RoPE is found in it. ropewalk import says what was looked for.');
  const tables = new Map<string, GraphRope['tables'][number]>();
  const findings: string[] = imported.nearly.map(({ name, because }) => `${name} is not RoPE, because ${because}.`);
  let alike = true;
  const read = (rope: ImportedRope, of: RopeSpec | undefined): { spec: RopeSpec; alike: boolean } => {
    const spec = specOfGraph(rope, where);
    const backward = rotatesBackward(rope);
    if (backward) findings.push(`${rope.name} rotates backward: its sines have the wrong sign.`);
    const same = of && [rope, ...(rope.longer ? [rope.longer] : [])].findIndex((one) => hasFrequencies(one, rope, of));
    if (same === undefined || same < 0) {
      alike = false;
      return { spec, alike };
    }
    const { base, scaling, freqFactors, frequencyDim, axes } = of!;
    const own = { base, scaling, freqFactors, frequencyDim, attentionFactor: of!.attentionFactor };
    const taken: RopeSpec = { ...inFrameOf(spec, of!), ...own, axes: spec.axes && axes ? axes : spec.axes };
    const key = JSON.stringify([rope.tables.cos, rope.tables.sin, rope.rotaryDim, effectiveRope(of!).invFreq.join()]);
    if (!tables.has(key) && !backward)
      tables.set(key, { name: rope.name, ...compared(rope, taken, same === 1, where) });
    return { spec: taken, alike: true };
  };

  if (layers.length === 0) {
    if (groupAlike(ropes).length > 1) {
      const next = 'Give a graph with KV caches, or compare one RoPE: ropewalk import --json has each as a record.';
      fail('UNSUPPORTED', where, `its RoPEs differ, and no outputs named present.N.key say their layers. ${next}`);
    }
    const of = other && ('layers' in other ? other.layers.find(({ rope }) => rope)?.rope : other);
    return { rope: read(ropes[0]!, of).spec, tables: [...tables.values()], alike, findings };
  }
  const others = other && 'layers' in other ? other.layers : undefined;
  const numLayers = layers.at(-1)! + 1;
  const without = ropes.filter(({ layer }) => layer === undefined);
  if (without.length > 0)
    findings.push(`${without.length} RoPEs, the first one ${without[0]!.name}, belong to no layer with a KV cache.`);
  const ofLayer = new Map<number, ImportedRope[]>();
  for (const rope of ropes) {
    if (rope.layer === undefined) continue;
    const own = ofLayer.get(rope.layer);
    if (own) own.push(rope);
    else ofLayer.set(rope.layer, [rope]);
  }
  const cached = new Set(layers);
  const all = Array.from({ length: numLayers }, (_, layer): LayerRope => {
    const of: Partial<LayerRope> | undefined = others ? others[layer] : { rope: other as RopeSpec | undefined };
    const kinds = groupAlike(ofLayer.get(layer) ?? []).map(([first]) => read(first!, of?.rope));
    // In latent attention a part of each query head rotates, and one key that is such a part.
    const part = kinds.find(({ spec }) => rotatesWhole(spec))?.spec;
    const effects = kinds.map(({ spec }) => JSON.stringify(effectiveRope(part ? inFrameOf(spec, part) : spec)));
    if (new Set(effects).size > 1) findings.push(`Layer ${layer}: q and k are rotated by different RoPEs.`);
    // A layer without a cache of its own, such as a convolution between others, is taken from the model.
    const rope = cached.has(layer) ? (kinds.find(({ alike }) => !alike) ?? kinds[0])?.spec : of?.rope;
    // Windows are in the masks, which are not read.
    return { layer, layerType: of?.layerType, window: of?.window, rope };
  });
  const model: ModelRope = {
    // The source decides the order of rows in the weights of q and k.
    source: OF_GGUF.test(imported.model.graph.doc) ? 'gguf' : 'huggingface',
    architecture: 'ONNX graph',
    known: true,
    numLayers,
    layers: all,
    maxContext: shortest([
      ...ropes.map(({ tables: { rows } }) => rows),
      ...Array.from(tables.values(), ({ end }) => end),
    ]),
    notes: [],
  };
  return { rope: model, tables: [...tables.values()], alike, findings };
}

/** True if all dimensions rotate: those of a head, or of the part that was cut out of it before. */
const rotatesWhole = ({ headDim, rotaryDim = headDim }: RopeSpec): boolean => headDim === rotaryDim;

/**
 * Converts a spec of the rotated part of a head to a spec of the whole head, if the other spec is one, and vice versa.
 */
function inFrameOf(spec: RopeSpec, of: RopeSpec): RopeSpec {
  const same = (spec.rotaryDim ?? spec.headDim) === (of.rotaryDim ?? of.headDim);
  if (!same || rotatesWhole(spec) === rotatesWhole(of)) return spec;
  return { ...spec, headDim: of.headDim, rotaryDim: of.rotaryDim, rotaryOffset: of.rotaryOffset };
}

function compared(rope: ImportedRope, spec: RopeSpec, longer: boolean, where: string): ComparedTables {
  try {
    return compareTables(rope.found, spec, longer);
  } catch (error) {
    if (error instanceof CannotEvaluate) fail('UNSUPPORTED', `${where}: ${rope.name}`, error.message);
    throw error;
  }
}

function shortest(rows: readonly (number | undefined)[]): number | undefined {
  const known = rows.filter((count) => count !== undefined);
  return known.length > 0 ? Math.min(...known) : undefined;
}

/** True if either the rotation or the sines of its tables have the other sign, but not both. */
function rotatesBackward({ direction, frequencies }: ImportedRope): boolean {
  return (direction === 'backward') !== (frequencies?.invFreq.some((frequency) => frequency < 0) ?? false);
}

function specOfGraph(rope: ImportedRope, where: string): RopeSpec {
  const { name, frequencies, notes, axisOfPair, headDim } = rope;
  if (!frequencies) {
    const why = notes.find((note) => note.startsWith('frequencies')) ?? 'its tables are inside of attention';
    return fail('FORMAT', `${where}: ${name}`, why);
  }
  const spec = rope.spec ?? specOf(rope, { ...frequencies, invFreq: frequencies.invFreq.map(Math.abs) }, axisOfPair);
  const why = headDim === undefined ? 'the size of its heads is not known' : 'no record describes its position axes';
  return spec ?? fail('UNSUPPORTED', `${where}: ${name}`, why);
}

/** True if the frequencies and the magnitude of a graph's tables are those of a spec. */
function hasFrequencies(
  { frequencies }: Pick<RopeDescription, 'frequencies'>,
  { rotaryDim, tables }: RopeDescription,
  of: RopeSpec,
): boolean {
  const effective = effectiveRope(of);
  // Vision has other exponents than a spec with half pairing.
  if (!frequencies || effective.rotaryDim !== rotaryDim || of.pairing === 'vision') return false;
  const { invFreq, within, magnitude } = frequencies;
  return (
    Math.abs(magnitude / effective.attentionFactor - 1) <= ROUNDING + 8 * unitOf(tables.dtype) &&
    invFreq.every((frequency, j) => {
      const wanted = effective.invFreq[j]!;
      // If a pair does not rotate, `within` is in radians per position.
      const error = within[j]! * (frequency === 0 ? 1 : Math.abs(frequency));
      return Math.abs(Math.abs(frequency) - wanted) <= error + ROUNDING * Math.abs(wanted);
    })
  );
}
