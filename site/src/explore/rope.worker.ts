/** Reads dropped files, compares, converts and exports in a worker, because each takes longer than a frame. @module */
import {
  type ComparedSide,
  type Conversion,
  type ConvertOptions,
  compareModels,
  convertRope,
  effectiveRope,
  type LayerGroup,
  type ModelComparison,
  type ModelRope,
  type Passport,
  type PassportForm,
  PEERS,
  passportOf,
} from '@ropewalk/dialects';
import { checkStamp, describeReading, rotationMatrix, STAMP_FORM } from '@ropewalk/dialects/internal';
import { parseJson, readExactly, SAFETENSORS_INDEX, safetensorsHeaderOf, safetensorsShards } from '@ropewalk/formats';
import {
  type AnglePrecision,
  anglePrecision,
  graphCost,
  ropeModel,
  TABLE_CONTEXT,
  writeOnnxModel,
} from '@ropewalk/onnx';
import { planRope, type RopeSpec, type RopeTable, RopewalkError, type TableRecipe } from 'ropewalk';
import { counted, readGguf } from '../shared/model-files.js';
import type { Remote } from '../shared/remote.js';

/** The parts of a model's files that RoPE needs. */
export type Opened = {
  readonly file: string;
  readonly bytesRead: number;
  readonly bytes: number;
  /** The host that was asked. Undefined for the visitor's own files. */
  readonly host?: string;
  /** The facts from the headers of the weights. Undefined without weights. */
  readonly weights?: { readonly tensors: number; readonly parameters: number; readonly types: readonly string[] };
} & (
  | { readonly kind: 'json'; readonly json: unknown }
  | {
      readonly kind: 'gguf';
      readonly metadata: ReadonlyMap<string, unknown>;
      readonly tensors: readonly { readonly name: string }[];
      readonly factors: ReadonlyMap<string, Float32Array>;
    }
);

/** One side of a comparison. */
export interface Side {
  readonly read: {
    readonly rope: ModelRope | RopeSpec;
    readonly groups: readonly LayerGroup[];
    readonly names: Pick<ConvertOptions, 'modelType' | 'architecture'>;
    readonly heads: number | undefined;
  };
  /** The reader: an arithmetic, or a peer. For a peer the model is converted to the peer's arguments and read back. */
  readonly as: string;
}

/** A comparison with the differences of the angles in each of its groups. */
export interface Compared extends ModelComparison {
  readonly positions: readonly number[];
  /** For each group `[positions, pairs]`, in radians in [0, π]. It is undefined if a side does not rotate. */
  readonly apart: readonly (Apart | undefined)[];
}

/** The angles between the two sides' rotations of each pair. */
export interface Apart {
  readonly pairs: number;
  readonly angles: Float64Array;
}

/** A peer's arguments for a RoPE, or the reason why it has none. */
export type Converted = { readonly peer: string; readonly about: string } & (
  | { readonly conversion: Conversion }
  | { readonly refusal: string }
);

/** The readings of a model by each reader, and the findings. */
export interface ReadByAll {
  readonly readings: readonly {
    readonly form: string;
    readonly reader: string;
    /** Lines. */
    readonly rotates: readonly string[];
    readonly why: readonly string[];
  }[];
  readonly findings: Passport['findings'];
  /** Whether a stamp that was given is of this RoPE. */
  readonly isStamped: boolean | undefined;
}

/** A stamp of `ropewalk passport --stamp`. */
export interface Stamp {
  readonly name: string;
  readonly json: unknown;
}

/** The SHA-256 of a text. */
async function hashOf(text: string): Promise<string> {
  if (!crypto.subtle) throw new Error('A stamp needs this page over https, or from this device.');
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The options of an export. */
export type ExportWish = Omit<Parameters<typeof ropeModel>[0], 'normEps' | 'kvCache'> & { readonly title: string };

/** An ONNX model. */
export interface Exported {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly angles: string;
  readonly context: number;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** The number of nodes of each operator, such as `2 RotaryEmbedding`. */
  readonly nodes: readonly string[];
  readonly precision: readonly AnglePrecision[];
}

const total = (files: readonly File[]): number => files.reduce((sum, { size }) => sum + size, 0);

async function openGguf(files: readonly (File | Remote)[]): Promise<Opened> {
  const count = { bytes: 0 };
  const { file, header, factors, bytes } = await readGguf(files, count);
  const { metadata, tensors } = header;
  return {
    kind: 'gguf',
    file,
    bytesRead: count.bytes,
    bytes,
    weights: {
      tensors: tensors.length,
      parameters: tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0),
      types: [...new Set(tensors.map(({ type }) => type))],
    },
    metadata: new Map([...metadata].filter(([key]) => !key.startsWith('tokenizer.'))), // the vocabulary takes megabytes
    tensors: tensors.map(({ name }) => ({ name })),
    factors,
  };
}

async function openJson(config: File, files: readonly File[]): Promise<Opened> {
  const count = { bytes: 0 };
  const read = async (file: File): Promise<unknown> =>
    parseJson(await readExactly(await counted(file, count), 0, file.size, file.name), file.name);
  const json = await read(config);
  if ((json as { form?: unknown } | null)?.form === STAMP_FORM)
    throw new Error(
      `${config.name}: a passport is held against a model. Open the model here, then the passport in its tab Passport.`,
    );
  const shards = files.filter(({ name }) => /\.safetensors$/i.test(name));
  const common = { kind: 'json' as const, file: config.name, json };
  if (shards.length === 0) return { ...common, bytesRead: count.bytes, bytes: config.size };
  const index = files.find(({ name }) => name === SAFETENSORS_INDEX);
  const names = safetensorsShards(
    shards.map(({ name }) => name),
    index && (await read(index)),
    'the folder',
    SAFETENSORS_INDEX,
  );
  const used = shards.filter(({ name }) => names.has(name));
  let [tensors, parameters] = [0, 0];
  const types = new Set<string>();
  for (const file of used) {
    const header = await safetensorsHeaderOf(await counted(file, count), file.name);
    for (const { type, shape } of header.tensors.values()) {
      tensors++;
      parameters += shape.reduce((a, b) => a * b, 1);
      types.add(type);
    }
  }
  const bytes = config.size + (index?.size ?? 0) + total(used);
  return { ...common, bytesRead: count.bytes, bytes, weights: { tensors, parameters, types: [...types] } };
}

/**
 * Computes the cosines and sines of text tokens as the recipe's peer does.
 *
 * A scaling that the peer lacks becomes one factor per pair, as in compareRope.
 */
function tableOf(spec: RopeSpec, recipe: TableRecipe, tokens: readonly number[]): RopeTable {
  const { numAxes } = effectiveRope(spec);
  // A text token has the same position on every axis, but 0 on ggml's fourth axis.
  const positions = Array.from({ length: numAxes }, (_, axis) => tokens.map((p) => (axis === 3 ? 0 : p))).flat();
  const plan = (one: RopeSpec): RopeTable => planRope({ ...one, positions, recipe, tableDtype: 'f64' }).table;
  try {
    return plan(spec);
  } catch (error) {
    if (recipe === 'float64' || !(error instanceof RopewalkError) || error.code !== 'UNSUPPORTED') throw error;
    return plan(convertRope(spec, recipe === 'ggml-f32' ? 'ggml' : 'huggingface').readBack);
  }
}

function apartOf(a: RopeTable, b: RopeTable): Apart {
  const pairs = Math.max(a.pairs, b.pairs);
  const angles = new Float64Array(a.rows * pairs);
  const at = ({ cos, sin, pairs: own }: RopeTable, row: number, j: number): readonly [number, number] =>
    j < own ? [cos[row * own + j]!, sin[row * own + j]!] : [1, 0]; // a dimension that does not rotate
  for (let row = 0; row < a.rows; row++)
    for (let j = 0; j < pairs; j++) {
      const [[ca, sa], [cb, sb]] = [at(a, row, j), at(b, row, j)];
      angles[row * pairs + j] = Math.abs(Math.atan2(sb * ca - cb * sa, cb * ca + sb * sa));
    }
  return { pairs, angles };
}

/** Reads a side. For a peer it converts the RoPE to the peer's arguments and back. */
function readAs({ read, as }: Side, context: number | undefined): ComparedSide {
  const peer = PEERS.find(({ name }) => name === as);
  if (!peer) return { rope: read.rope, recipe: as as TableRecipe };
  const { rope, groups, names, heads } = read;
  const through = (spec: RopeSpec, layerType?: string): RopeSpec =>
    convertRope(spec, as, { context, heads, layerType, ...names }).readBack;
  if (!('layers' in rope)) return { rope: through(rope), recipe: 'float64' };
  const layers = [...rope.layers];
  for (const group of groups) {
    const spec = group.rope && through(group.rope, group.layerType);
    for (const n of group.layers) layers[n] = { ...layers[n]!, rope: spec };
  }
  return { rope: { ...rope, layers }, recipe: 'float64' };
}

const worker = {
  /** Reads a model's files: a JSON, a GGUF or its parts, or a folder. It reads only the headers of weights. */
  async open(files: readonly File[]): Promise<Opened> {
    const jsons = files.filter(({ name }) => /\.json$/i.test(name));
    const config =
      jsons.find(({ name }) => name === 'config.json') ?? (files.length === jsons.length ? jsons[0] : undefined);
    if (config) return openJson(config, files);
    const ggufs = files.filter(({ name }) => /\.gguf$/i.test(name));
    if (ggufs.length > 0) return openGguf(ggufs);
    const named = files.map(({ name }) => name).slice(0, 3);
    throw new Error(
      files.some(({ name }) => /\.safetensors$/i.test(name))
        ? 'A .safetensors file does not say how its model rotates: config.json beside it does. Drop both, or their folder.'
        : files.some(({ name }) => /\.jsonl$/i.test(name))
          ? `${named.join(', ')}: a recording of a server opens in the page Probe.`
          : `${named.join(', ')}: expected a config.json, a .gguf, or a folder with one.`,
    );
  },

  /** Reads the headers of a GGUF on another host, or of all its parts. */
  async openRemote(asked: string, parts: readonly Remote[]): Promise<Opened> {
    return { ...(await openGguf(parts)), file: asked, host: new URL(parts[0]!.url).host };
  },

  /** Compares two sides layer by layer, with their angles at positions up to `last`. */
  compare(sideA: Side, sideB: Side, context: number | undefined, last: number): Compared {
    const [a, b] = [readAs(sideA, context), readAs(sideB, context)];
    const compared = compareModels(a, b, [1, 40, 8192, 131072]);
    const count = 96;
    const positions = [
      ...new Set(Array.from({ length: count }, (_, n) => Math.round(Math.max(1, last) ** (n / (count - 1))))),
    ];
    const apart = compared.groups.map((group) =>
      group.a && group.b
        ? apartOf(tableOf(group.a, a.recipe, positions), tableOf(group.b, b.recipe, positions))
        : undefined,
    );
    return { ...compared, positions, apart };
  },

  /** Converts a RoPE to the arguments of every peer. */
  convert(spec: RopeSpec, options: ConvertOptions): readonly Converted[] {
    return PEERS.map(({ name, about }) => {
      try {
        return { peer: name, about, conversion: convertRope(spec, name, options) };
      } catch (error) {
        if (!(error instanceof RopewalkError)) throw error;
        return { peer: name, about, refusal: error.message };
      }
    });
  },

  /** Reads the forms of a model as every reader does. @param serve - a server's command; empty for none */
  async passport(
    given: readonly Opened[],
    context: number | undefined,
    serve: string,
    stamp: Stamp | undefined,
  ): Promise<ReadByAll> {
    const forms = given.map((opened): PassportForm => {
      const name = opened.file;
      return opened.kind === 'json'
        ? { name, json: opened.json }
        : { name, header: { ...opened, readTensor: (tensor) => opened.factors.get(tensor) } };
    });
    const { readings, findings } = passportOf(forms, { context, ...(serve && { serve: [serve] }) });
    const ofStamp =
      stamp && checkStamp(stamp.json, stamp.name, await hashOf(passportOf(forms.slice(0, 1)).table ?? ''));
    return {
      findings: [...findings, ...(ofStamp ?? [])],
      isStamped: ofStamp && ofStamp.length === 0,
      readings: readings.map((one) => ({
        form: one.form,
        reader: one.reader,
        rotates: describeReading(one),
        why: one.why,
      })),
    };
  },

  /** The matrix by which a head is multiplied at a position, row by row. */
  matrix(spec: RopeSpec, position: number): Float64Array {
    return Float64Array.from(rotationMatrix(spec, position, 'forward').flat());
  },

  /** Builds the ONNX model of a RoPE. */
  exportOnnx({ title, ...wish }: ExportWish): Exported {
    const { graph, angles, context } = ropeModel(wish);
    const model = graph.model('rope', 'ropewalk', title);
    const cost = graphCost(model, { batch: 1, seq: 512, cache: TABLE_CONTEXT }); // checks every type and shape
    const bytes = new Uint8Array(writeOnnxModel(model));
    const positions = [...new Set([1, 4095, 131071].filter((p) => p < context - 1)), context - 1];
    const words = ({ name, dtype, shape }: (typeof model.inputs)[number]) => `${name} ${dtype} [${shape.join(', ')}]`;
    return {
      bytes,
      angles,
      context,
      inputs: model.inputs.map(words),
      outputs: model.outputs.map(words),
      nodes: Array.from(cost.calls, ([type, n]) => `${n} ${type}`),
      precision: anglePrecision(wish.spec, angles, positions, wish.dtype === 'f64' ? 'f64' : 'f32'),
    };
  },
};

/** The functions that the page calls. */
export type Ropes = typeof worker;

export default worker;
