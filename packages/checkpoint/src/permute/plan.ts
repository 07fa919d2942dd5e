/**
 * Plans which rows of which tensors move when a model's q and k weights change from one pairing to the other.
 * It works with names, shapes and byte offsets; it reads and writes no files.
 *
 * RoPE rotates pairs of dimensions of each head. Runtimes pair the dimensions in one of two ways, and a checkpoint is
 * written for one of them. The two differ by a permutation of the rows (output features) of the q and k projections,
 * the same in every head. q·k is a sum over the dimensions of a head, so it does not change. For the R rows of a head
 * that rotate:
 *
 * ```
 * half → interleaved    new row 2j ← old row j          new row 2j+1 ← old row j + R/2       R = 8: 0 4 1 5 2 6 3 7
 * interleaved → half    new row j  ← old row 2j         new row j + R/2 ← old row 2j+1       R = 8: 0 2 4 6 1 3 5 7
 * ```
 *
 * @module
 * @see huggingface/transformers#25199; ggml-org/llama.cpp@6fed9f6 conversion/llama.py, LlamaModel.permute
 */
import type { WeightPairing } from '@ropewalk/dialects/internal/models';
import { countClaimed } from '@ropewalk/formats/internal';
import { fail, refuse } from 'ropewalk/backend';
import {
  checkName,
  nameForMessage,
  type OptionNames,
  optionNames,
  reading,
  readList,
  readName,
  readOptions,
} from 'ropewalk/internal';

/** The heads of one layer. */
export interface HeadGeometry {
  readonly numHeads: number;
  readonly numKvHeads: number;
  /** The rows of a head, or of its RoPE part (MLA). */
  readonly headDim: number;
  /** How many of these rows, from the first, rotate; an even number. */
  readonly rotaryDim: number;
  /** Rows from one q head to the next: a gate or a part without position may be between them. Default: headDim. */
  readonly queryRows?: number;
  /** The first of the headDim rows in a q head. Default: 0. */
  readonly queryOffset?: number;
  /** The same as queryRows, for k. */
  readonly keyRows?: number;
  /** The same as queryOffset, for k. */
  readonly keyOffset?: number;
}

/**
 * The layout of a tensor that q, k and v share:
 *
 * - `concatenated`: all of q, all of k, all of v (Phi-3, ModernBERT; all of llama.cpp)
 * - `by-head`: q, k, v of head 0, then of head 1, … (GPT-NeoX)
 * - `by-group`: the q heads of a kv head, its k, its v, then the next (Falcon 40B)
 * - `codegen`: four shards, each with q, v, k in this order
 */
export type FusedLayout = 'concatenated' | 'by-head' | 'by-group' | 'codegen';

/** A tensor of a safetensors or GGUF file. */
export interface LocatedTensor {
  readonly name: string;
  /** The index of its file; 0 for a model of one file. */
  readonly file: number;
  /** Slowest dimension first: a projection is `[rows, columns]`. GGUF files list the dimensions in reverse. */
  readonly shape: readonly number[];
  /** The type as the file names it. */
  readonly type: string;
  /** Bytes from the start of the file. */
  readonly byteOffset: number;
  /** Undefined for a type whose layout is unknown. */
  readonly sizeBytes: number | undefined;
}

/** Options of {@link planPermutation}. */
export interface PermuteOptions {
  readonly to: WeightPairing;
  /** The naming scheme of the tensors. */
  readonly naming: 'huggingface' | 'gguf';
  /** Returns the heads of a layer by its number. */
  readonly geometryOf: (layer: number) => HeadGeometry;
  /** The layout of fused tensors. Default: fused tensors are refused. */
  readonly fused?: FusedLayout;
  /** Allows layers that use another layer's k instead of their own. */
  readonly sharesKeys?: boolean;
  /** Moves matching tensors only. Groups named q and k replace the built-in names of tensors. */
  readonly only?: RegExp;
  /** Names the file in messages. */
  readonly where?: string;
}

const NAMES: OptionNames<PermuteOptions> = /* @__PURE__ */ optionNames(
  'to naming geometryOf fused sharesKeys only where',
);

/** A tensor whose rows move. */
export interface TensorMove {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly number[];
  readonly file: number;
  readonly layer: number;
  /** Tells apart layers with the same number in different parts of a model (mtp.layers.0). */
  readonly layerKey: string;
  /** The projection, its bias, a norm over head_dim, or quantisation data beside the projection. */
  readonly kind: 'weight' | 'bias' | 'norm' | 'beside';
  readonly byteOffset: number;
  readonly rows: number;
  readonly rowBytes: number;
  /** The first row of each window that belongs to a q head, ascending. */
  readonly q: readonly number[];
  /** The first row of each window that belongs to a k head, ascending. */
  readonly k: readonly number[];
  readonly geometry: HeadGeometry;
}

/** The rows that move. */
export interface PermutePlan {
  readonly to: WeightPairing;
  readonly moves: readonly TensorMove[];
  /** Full sentences about similar tensors that stay unchanged, with the reasons. */
  readonly notes: readonly string[];
}

const PAIRINGS = ['half', 'interleaved'] as const;
/** Bounds forged counts before memory is taken. Real models have 128 heads of at most 576 rows. */
const MAX_HEADS = 2 ** 16;
const MAX_HEAD_ROWS = 2 ** 16;

/** The meaning of a tensor's name. */
interface Role {
  readonly layer: number;
  readonly layerKey: string;
  readonly part: 'q' | 'k' | 'fused' | 'q-norm' | 'k-norm';
  /** The part after the module's name: weight, bias, weight_scale, … */
  readonly suffix: string;
  /** The user's pattern matched it. Only its length then tells whether it is a norm. */
  readonly byGroups?: true;
}

const ATTENTION = ['self_attn', 'self_attention', 'attention', 'attn'];
const PART_NAMES: Readonly<Record<Role['part'], string>> = {
  q: 'q_proj wq q_b_proj attn_q attn_q_b',
  k: 'k_proj wk kv_a_proj_with_mqa attn_k attn_kv_a_mqa',
  fused: 'qkv_proj query_key_value Wqkv wqkv qkv c_attn attn_qkv',
  'q-norm': 'q_norm q_layernorm query_layernorm attn_q_norm',
  'k-norm': 'k_norm k_layernorm key_layernorm attn_k_norm',
};
const PART_OF: ReadonlyMap<string, Role['part']> = /* @__PURE__ */ new Map(
  /* @__PURE__ */ Object.entries(PART_NAMES).flatMap(([part, names]) =>
    names.split(' ').map((name) => [name, part as Role['part']] as const),
  ),
);
/** Modules around the language model's layers. Other modules (a vision tower) have no RoPE of this kind. */
const AROUND = 'model base_model language_model text_model transformer gpt_neox module mtp'.split(' ');
const OTHER_TOWER = /vision|visual|image|img|audio|speech|whisper|cross_attn|crossattention|encoder_attn|^[va]\.blk\./;

function roleInHuggingface(name: string): Role | undefined {
  const parts = name.split('.');
  const at = parts.findIndex((part, n) => /^(layers|h|blocks)$/.test(part) && /^\d{1,9}$/.test(parts[n + 1] ?? ''));
  if (at < 0 || !parts.slice(0, at).every((part) => AROUND.includes(part))) return undefined;
  const inner = parts.slice(at + 2);
  if (inner[0] === 'norm_attn_norm') inner.shift();
  const part = PART_OF.get(inner[1] ?? '');
  if (!ATTENTION.includes(inner[0] ?? '') || !part || inner[1]!.startsWith('attn_')) return undefined;
  // PEFT's name for a weight with an adapter.
  if (inner[2] === 'base_layer') inner.splice(2, 1);
  const layer = Number(parts[at + 1]);
  const layerKey = `${parts.slice(0, at).includes('mtp') ? 'mtp.' : ''}${layer}`;
  return { layer, layerKey, part, suffix: inner.slice(2).join('.') };
}

function roleInGguf(name: string): Role | undefined {
  const [, digits, module = '', suffix = ''] = /^blk\.(\d{1,9})\.(attn_[a-z_]+)\.(.+)$/.exec(name) ?? [];
  const part = PART_OF.get(module);
  const layer = Number(digits);
  return part && { layer, layerKey: String(layer), part, suffix };
}

/** Reads a name by the user's pattern, whose groups are q and k. */
function roleByGroups(name: string, only: RegExp): Role | undefined {
  const groups = only.exec(name)?.groups;
  if (groups?.q === undefined && groups?.k === undefined) return undefined;
  const layer = Number(/\d{1,9}/.exec(name)?.[0] ?? 0);
  const [, suffix = 'weight'] = /\.([^.]+)$/.exec(name) ?? [];
  return { layer, layerKey: String(layer), part: groups.q === undefined ? 'k' : 'q', suffix, byGroups: true };
}

/** Whether an unknown name could be that of a q or k. */
function looksLikeOne(name: string): boolean {
  return name.split('.').some((part) => part === 'indexer' || PART_OF.has(part));
}

function readPermuteOptions(given: PermuteOptions) {
  const options = readOptions(given, 'permute: options', NAMES);
  const { where = 'permute', geometryOf, fused, only } = options;
  checkName(where, 'permute: where', 'the model');
  readName(options.to, PAIRINGS, `${where}: to`);
  readName(options.naming, ['huggingface', 'gguf'], `${where}: naming`);
  if (fused !== undefined) readName(fused, ['concatenated', 'by-head', 'by-group', 'codegen'], `${where}: fused`);
  if (typeof geometryOf !== 'function') refuse('RANGE', `${where}: geometryOf`, 'a function', geometryOf);
  const pattern = reading(`${where}: --tensors`, () => {
    if (only === undefined) return undefined;
    if (!(only instanceof RegExp)) refuse('RANGE', `${where}: --tensors`, 'a regular expression', only);
    // Flags g and y would make every match depend on the one before.
    return new RegExp(only.source, only.flags.replace(/[gy]/g, ''));
  });
  return { ...options, where, only: pattern };
}
type Options = ReturnType<typeof readPermuteOptions>;

function readTensors(given: readonly LocatedTensor[], where: string): LocatedTensor[] {
  const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
  return Array.from(readList(given, `${where}: tensors`), (item, n) => {
    const at = `${where}: tensors[${n}]`;
    const tensor = readOptions(item, at);
    const { name, type, file, byteOffset, sizeBytes } = tensor;
    if (typeof name !== 'string' || typeof type !== 'string') refuse('RANGE', at, 'a name and a type', [name, type]);
    const shape = Array.from(readList(tensor.shape, `${at}: shape`));
    const got = [file, byteOffset, sizeBytes, shape];
    if (![file, byteOffset, sizeBytes ?? 0, ...shape].every(isCount))
      refuse('RANGE', at, 'integers >= 0 as file, byteOffset, sizeBytes and shape', got);
    return { ...tensor, shape };
  });
}

/**
 * Plans the permutation.
 *
 * @param tensors - all tensors of the model, those of several files (shards) in one list
 * @param options - the new pairing, and the facts about the model
 * @returns what moves, in the order of `tensors`
 * @throws {RopewalkError} SHAPE when rows do not fit the heads; UNSUPPORTED for tensors that cannot be moved by rows,
 *   for fused tensors of unknown layout, and for names that may or may not be q or k; FORMAT when q or k is missing;
 *   RANGE for impossible heads or arguments
 */
export function planPermutation(tensors: readonly LocatedTensor[], options: PermuteOptions): PermutePlan {
  const given = readPermuteOptions(options);
  const { only, naming, where } = given;
  const all = readTensors(tensors, where);
  const byGroups = only !== undefined && /\(\?<[qk]>/.test(only.source);
  const moves: TensorMove[] = [];
  const towers: string[] = [];
  const notes = new Set<string>();
  const left = new Map<string, string>();
  const taken = new Map<string, string>();
  const heads = new Map<number, HeadGeometry>();
  for (const tensor of all) {
    const { name } = tensor;
    const role = byGroups ? roleByGroups(name, only) : naming === 'gguf' ? roleInGguf(name) : roleInHuggingface(name);
    if (!role) {
      if (byGroups || !looksLikeOne(name)) continue;
      const next = "Name the tensors that move with --tensors '(?<q>…)|(?<k>…)'.";
      if (!OTHER_TOWER.test(name))
        fail(
          'UNSUPPORTED',
          `${where}: ${nameForMessage(name)}`,
          `this name does not say whether it is q or k. ${next}`,
        );
      towers.push(name);
      continue;
    }
    if (only && !byGroups && !only.test(name)) {
      left.set(role.layerKey, name);
      continue;
    }
    taken.set(role.layerKey, name);
    const geometry = heads.get(role.layer) ?? geometryAt(role.layer, given);
    heads.set(role.layer, geometry);
    const move = moveOf(tensor, role, geometry, given, notes);
    if (move) moves.push(move);
  }
  for (const [layer, name] of taken) {
    const other = left.get(layer);
    if (other === undefined) continue;
    const [one, two] = [nameForMessage(name), nameForMessage(other)];
    fail(
      'FORMAT',
      `${where}: --tensors`,
      `it matches ${one} but not ${two}. Match all tensors of layer ${layer}, or none.`,
    );
  }
  checkPairs(moves, given);
  checkOverlap(all, moves, where);
  if (towers.length > 0)
    notes.add(`${towers.length} tensors of other towers (${nameForMessage(towers[0]!)}, …) stay as they are.`);
  if (left.size > 0)
    notes.add(
      `--tensors leaves ${left.size} ${left.size === 1 ? 'layer as it is' : 'layers as they are'}. No runtime mixes the pairings of layers.`,
    );
  return { to: given.to, moves, notes: [...notes] };
}

function geometryAt(layer: number, { geometryOf, where: file }: Options): HeadGeometry {
  const where = `${file}: layer ${layer}`;
  const geometry = readOptions(
    reading(`${where}: geometryOf`, () => geometryOf(layer)),
    `${where}: geometryOf`,
  );
  const { numHeads, numKvHeads, headDim, rotaryDim } = geometry;
  const { queryRows = headDim, queryOffset = 0, keyRows = headDim, keyOffset = 0 } = geometry;
  const integer = (value: number, name: string, low: number, high: number): void => {
    if (!Number.isInteger(value) || value < low || value > high)
      refuse('RANGE', `${where}: ${name}`, `an integer in [${low}, ${high}]`, value);
  };
  integer(numHeads, 'heads', 1, MAX_HEADS);
  integer(numKvHeads, 'kv_heads', 1, numHeads);
  integer(headDim, 'head_dim', 2, MAX_HEAD_ROWS);
  integer(rotaryDim, 'rotary_dim', 2, headDim);
  if (rotaryDim % 2 !== 0)
    refuse('RANGE', `${where}: rotary_dim`, `an even integer in [2, head_dim=${headDim}]`, rotaryDim);
  if (numHeads % numKvHeads !== 0) refuse('RANGE', `${where}: kv_heads`, `a divisor of heads=${numHeads}`, numKvHeads);
  integer(queryOffset, 'query_offset', 0, MAX_HEAD_ROWS);
  integer(queryRows, 'query_rows', queryOffset + headDim, 2 * MAX_HEAD_ROWS);
  integer(keyOffset, 'key_offset', 0, MAX_HEAD_ROWS);
  integer(keyRows, 'key_rows', keyOffset + headDim, 2 * MAX_HEAD_ROWS);
  return geometry;
}

/** The rows of a tensor, and the first rotating row of each head. */
interface Windows {
  readonly rows: number;
  /** The formula of rows, for messages. */
  readonly why: string;
  readonly q: readonly number[];
  readonly k: readonly number[];
}

function windowsOf(part: 'q' | 'k' | 'fused', g: HeadGeometry, fused: FusedLayout | undefined, where: string): Windows {
  const starts = (count: number, stride: number, first: number): number[] =>
    Array.from({ length: count }, (_item, h) => first + h * stride);
  const { numHeads: n, numKvHeads: kv, headDim: d } = g;
  if (part === 'q') {
    const stride = g.queryRows ?? d;
    return { rows: n * stride, why: `heads=${n} × ${stride}`, q: starts(n, stride, g.queryOffset ?? 0), k: [] };
  }
  if (part === 'k') {
    const stride = g.keyRows ?? d;
    return { rows: kv * stride, why: `kv_heads=${kv} × ${stride}`, q: [], k: starts(kv, stride, g.keyOffset ?? 0) };
  }
  switch (fused) {
    case undefined:
      return fail('UNSUPPORTED', where, 'how q, k and v share this tensor is unknown for this model');
    case 'concatenated':
      return {
        rows: (n + 2 * kv) * d,
        why: `(heads=${n} + 2 × kv_heads=${kv}) × ${d}`,
        q: starts(n, d, 0),
        k: starts(kv, d, n * d),
      };
    case 'by-head':
      if (kv !== n) refuse('RANGE', `${where}: kv_heads`, `heads=${n}, as each head holds q, k and v`, kv);
      return { rows: 3 * n * d, why: `3 × heads=${n} × ${d}`, q: starts(n, 3 * d, 0), k: starts(n, 3 * d, d) };
    case 'by-group': {
      const group = n / kv;
      const stride = (group + 2) * d;
      return {
        rows: kv * stride,
        why: `kv_heads=${kv} × (${group} + 2) × ${d}`,
        q: Array.from({ length: n }, (_item, h) => Math.floor(h / group) * stride + (h % group) * d),
        k: starts(kv, stride, group * d),
      };
    }
    case 'codegen': {
      if (kv !== n || n % 4 !== 0) refuse('RANGE', `${where}: heads`, 'a multiple of 4, and as many kv_heads', [n, kv]);
      const own = n / 4;
      const at = (h: number, first: number): number => (3 * Math.floor(h / own) * own + first + (h % own)) * d;
      const each = (first: number): number[] => Array.from({ length: n }, (_item, h) => at(h, first));
      return { rows: 3 * n * d, why: `3 × heads=${n} × ${d}`, q: each(0), k: each(2 * own) };
    }
  }
}

/** Suffixes of data beside a projection, with as many rows as the projection, or one value for all rows. */
const BESIDE =
  /^(weight_(scale|scale_inv|zero_point|packed)|scale|lora_magnitude_vector.*|lora_B(\..*)?|weight\.lora_b)$/;
/** Suffixes of data that no permutation of the output rows changes. */
const SHARED =
  /^(lora_A(\..*)?|weight\.lora_a|weight_(scale_2|shape)|(weight|input)_global_scale|(input|output|[qkv])_scale)$/;

function moveOf(
  tensor: LocatedTensor,
  role: Role,
  geometry: HeadGeometry,
  { where: file, fused }: Options,
  notes: Set<string>,
): TensorMove | undefined {
  const { name, shape, sizeBytes, type, byteOffset } = tensor;
  const { part, suffix, layer, layerKey } = role;
  const where = `${file}: ${nameForMessage(name)}`;
  const count = countClaimed(shape) ?? refuse('SHAPE', where, 'fewer than 2^50 elements', shape);
  const common = { name, type, shape, file: tensor.file, layer, layerKey, byteOffset, geometry };
  const bytesOfRow = (rows: number): number => {
    if (sizeBytes === undefined)
      fail('UNSUPPORTED', where, `the layout of type ${type} is unknown. Permute the model before quantising it.`);
    const rowBytes = sizeBytes / rows;
    if (Number.isInteger(rowBytes) && rowBytes > 0) return rowBytes;
    return fail('UNSUPPORTED', where, `its ${rows} rows of ${type} are not whole bytes: ${sizeBytes} bytes in all`);
  };

  const norm =
    part === 'q-norm' || part === 'k-norm' || (role.byGroups && shape.length === 1 && count === geometry.headDim);
  if (norm && (suffix === 'weight' || suffix === 'bias' || /^norms\.\d+\.weight$/.test(suffix))) {
    const query = part === 'q-norm' || part === 'q';
    const { headDim: d } = geometry;
    const heads = query ? geometry.numHeads : geometry.numKvHeads;
    const expected = `head_dim=${d} values, or ${heads} heads × ${d}`;
    if (count !== d && count !== heads * d)
      refuse('SHAPE', where, expected, shape, 'Check heads, kv_heads and head_dim.');
    const starts = Array.from({ length: count / d }, (_item, h) => h * d);
    const [q, k] = query ? [starts, []] : [[], starts];
    return { ...common, kind: 'norm', rows: count, rowBytes: bytesOfRow(count), q, k };
  }
  if (norm) refuse('UNSUPPORTED', where, 'a norm with weight or bias', suffix);

  const windows = windowsOf(part as 'q' | 'k' | 'fused', geometry, fused, where);
  const { rows, q, k } = windows;
  const beside = BESIDE.test(suffix);
  if (suffix === 'weight' || suffix === 'bias' || (beside && shape[0] === rows)) {
    const next = 'Check heads, kv_heads and head_dim. A weight packed along its rows cannot be permuted.';
    if (shape[0] !== rows) refuse('SHAPE', where, `${rows} rows, ${windows.why}`, shape, next);
    const kind = suffix === 'bias' ? 'bias' : suffix === 'weight' || suffix === 'weight_packed' ? 'weight' : 'beside';
    return { ...common, kind, rows, rowBytes: bytesOfRow(rows), q, k };
  }
  if (SHARED.test(suffix) && (suffix.includes('lora') || count <= 2)) return undefined;
  if (beside && count === 1) return undefined;
  if (beside && shape.length === 2 && shape[0]! > 0 && staysInBlocks(rows / shape[0]!, windows, geometry)) {
    notes.add('Scales of blocks that hold whole heads (weight_scale, weight_scale_inv) stay as they are.');
    return undefined;
  }
  const expected = 'weights that move by whole rows, or scales per row, per block of whole heads or per tensor';
  return refuse('UNSUPPORTED', where, expected, shape, 'Permute the model before quantising it.');
}

/** Whether the rows of each head that rotate are in one block, and so keep their scale. */
function staysInBlocks(blockRows: number, { q, k }: Windows, { rotaryDim }: HeadGeometry): boolean {
  if (!Number.isInteger(blockRows) || blockRows < 1) return false;
  return [...q, ...k].every((row) => Math.floor(row / blockRows) === Math.floor((row + rotaryDim - 1) / blockRows));
}

/** Refuses a layer of which only q or only k would move. */
function checkPairs(moves: readonly TensorMove[], { sharesKeys, where }: Options): void {
  const next = "Is this the language model? Name its tensors with --tensors '(?<q>…)|(?<k>…)'.";
  if (moves.length === 0) fail('FORMAT', where, `no q and k projections found. ${next}`);
  if (moves.every((move) => move.kind === 'norm')) fail('FORMAT', where, `only norms of q and k found. ${next}`);
  const layers = new Map<string, { q?: string; k?: string }>();
  for (const { name, layerKey, kind, q, k } of moves) {
    // An adapter may change q alone.
    if (kind !== 'weight') continue;
    const layer = layers.get(layerKey) ?? {};
    if (q.length > 0) layer.q = name;
    if (k.length > 0) layer.k = name;
    layers.set(layerKey, layer);
  }
  for (const [layer, { q, k }] of layers) {
    if (q !== undefined && (k !== undefined || sharesKeys)) continue;
    const sentence = `${nameForMessage(q ?? k!)} has no ${q === undefined ? 'q' : 'k'} beside it`;
    fail('FORMAT', `${where}: layer ${layer}`, `${sentence}. If this is one shard of several, give the folder.`);
  }
}

/** Refuses tensors that move and share bytes with others. */
function checkOverlap(tensors: readonly LocatedTensor[], moves: readonly TensorMove[], where: string): void {
  const moved = new Set(moves.map((move) => move.name));
  const order = [...tensors].sort((a, b) => a.file - b.file || a.byteOffset - b.byteOffset);
  let file = -1;
  // The furthest end so far, of all tensors and of those that move.
  let [end, movedEnd] = [0, 0];
  for (const tensor of order) {
    const { name, byteOffset, sizeBytes = 0 } = tensor;
    if (tensor.file !== file) [file, end, movedEnd] = [tensor.file, 0, 0];
    if (sizeBytes > 0 && byteOffset < (moved.has(name) ? end : movedEnd))
      fail('FORMAT', `${where}: ${nameForMessage(name)}`, 'it shares bytes with another tensor. The file is forged.');
    end = Math.max(end, byteOffset + sizeBytes);
    if (moved.has(name)) movedEnd = Math.max(movedEnd, byteOffset + sizeBytes);
  }
}
