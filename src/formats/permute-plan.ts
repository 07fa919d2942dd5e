/**
 * Which rows of which tensors move when a model's q and k weights change from one pairing to the other. Names, shapes and
 * byte offsets only: nothing is read or written here.
 *
 * RoPE turns pairs of dimensions of each head. Runtimes differ in which dimensions make a pair, and a checkpoint is written for
 * one of the two ways; in between lies a permutation of the rows (output features) of the q and k projections, the same in every
 * head. q·k is a sum over the dimensions of a head, so moving q's and k's alike changes nothing else. With a window of R rows:
 *
 * ```
 * half → interleaved    new row 2j ← old row j          new row 2j+1 ← old row j + R/2       R = 8: 0 4 1 5 2 6 3 7
 * interleaved → half    new row j  ← old row 2j         new row j + R/2 ← old row 2j+1       R = 8: 0 2 4 6 1 3 5 7
 * ```
 *
 * @module
 * @see huggingface/transformers#25199; ggml-org/llama.cpp@6fed9f6 conversion/llama.py, LlamaModel.permute
 */
import { refuse } from '../core/errors.js';
import { nameForMessage } from '../core/text.js';
import { countClaimed } from './bytes.js';

/** The two ways that weights are laid out. */
export type WeightPairing = 'half' | 'interleaved';

/** The heads of one layer. */
export interface HeadGeometry {
  readonly numHeads: number;
  readonly numKvHeads: number;
  /** Rows of a head, or of the part of it that RoPE sees (MLA). */
  readonly headDim: number;
  /** Rows at the start of those that turn, even; the rest stay. */
  readonly rotaryDim: number;
  /** Rows from one q head to the next, where that is not headDim: a gate or a part without position lies between. */
  readonly queryRows?: number;
  /** Where in a q head the headDim rows start; 0 unless given. */
  readonly queryOffset?: number;
  /** As queryRows, for k. */
  readonly keyRows?: number;
  /** As queryOffset, for k. */
  readonly keyOffset?: number;
}

/**
 * How q, k and v share one tensor. Rows, D = headDim:
 *
 * - `concatenated`: all of q, all of k, all of v (Phi-3, ModernBERT; all of llama.cpp)
 * - `by-head`: q, k, v of head 0, then of head 1, … (GPT-NeoX)
 * - `by-group`: the q heads of a kv head, its k, its v, then the next (Falcon 40B)
 * - `codegen`: four shards, each with its q, v, k in this order
 */
export type FusedLayout = 'concatenated' | 'by-head' | 'by-group' | 'codegen';

/** A tensor of a file, of either format. */
export interface LocatedTensor {
  readonly name: string;
  /** Which of a model's files it lies in; 0 where there is one. */
  readonly file: number;
  /** Slowest dimension first, as in HuggingFace: a projection is `[rows, columns]`. GGUF lists it backwards. */
  readonly shape: readonly number[];
  /** The type as the file names it. */
  readonly type: string;
  /** Bytes from the start of the file. */
  readonly byteOffset: number;
  /** undefined for a type whose rows are not known to lie one after the other. */
  readonly sizeBytes: number | undefined;
}

/** What planning needs to know about a model. */
export interface PermuteOptions {
  readonly to: WeightPairing;
  /** Whose names the tensors have. */
  readonly naming: 'huggingface' | 'gguf';
  /** The heads of a layer, by its number. */
  readonly geometryOf: (layer: number) => HeadGeometry;
  /** How fused tensors are laid out; they are refused unless given. */
  readonly fused?: FusedLayout;
  /** Layers may use another layer's k, and have none of their own. */
  readonly sharesKeys?: boolean;
  /** Only tensors that match. With groups named q and k it says which tensors are which, in place of the names known here. */
  readonly only?: RegExp;
  /** Names the file in messages. */
  readonly where?: string;
}

/** A tensor of which rows move. */
export interface TensorMove {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly number[];
  readonly file: number;
  readonly layer: number;
  /** Layers with the same number in different parts of a model (mtp.layers.0) are kept apart by this. */
  readonly layerKey: string;
  /** What it is: the projection, its bias, a norm over head_dim, or what quantisation keeps beside the projection. */
  readonly kind: 'weight' | 'bias' | 'norm' | 'beside';
  readonly byteOffset: number;
  readonly rows: number;
  readonly rowBytes: number;
  /** First row of each window that belongs to a q head, ascending. */
  readonly q: readonly number[];
  /** First row of each window that belongs to a k head, ascending. */
  readonly k: readonly number[];
  readonly geometry: HeadGeometry;
}

/** What moves. */
export interface PermutePlan {
  readonly to: WeightPairing;
  readonly moves: readonly TensorMove[];
  /** What was left as it is although its name could make one wonder; full sentences. */
  readonly notes: readonly string[];
}

/** Real models have 128 heads of at most 576 rows; a forged count stops here, before anything of its size is made. */
const MAX_HEADS = 2 ** 16;
const MAX_HEAD_ROWS = 2 ** 16;

/**
 * The permutation of one head's window.
 *
 * @param rotaryDim - rows of the window, even
 * @param to - the pairing that the rows are put in; they are in the other
 * @returns `[rotaryDim]`: the old row, within the window, of each new row
 * @throws {RopewalkError} RANGE for an odd or absurd size; UNSUPPORTED for another pairing
 */
export function permutedRows(rotaryDim: number, to: WeightPairing): Uint32Array {
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > MAX_HEAD_ROWS)
    refuse('RANGE', 'permute: rotary_dim', `an even integer in [2, ${MAX_HEAD_ROWS}]`, rotaryDim);
  if (to !== 'half' && to !== 'interleaved') refuse('UNSUPPORTED', 'permute: to', 'half or interleaved', to);
  const half = rotaryDim / 2;
  const source = new Uint32Array(rotaryDim);
  for (let j = 0; j < half; j++) {
    if (to === 'interleaved') {
      source[2 * j] = j;
      source[2 * j + 1] = j + half;
    } else {
      source[j] = 2 * j;
      source[j + half] = 2 * j + 1;
    }
  }
  return source;
}

/** What a name says. */
interface Role {
  readonly layer: number;
  readonly layerKey: string;
  readonly part: 'q' | 'k' | 'fused' | 'q-norm' | 'k-norm';
  /** What follows the module's name: weight, bias, weight_scale, … */
  readonly suffix: string;
  /** The user's own pattern named it: whether it is a norm is then told from its length. */
  readonly byGroups?: true;
}

const ATTENTION = new Set(['self_attn', 'self_attention', 'attention', 'attn']);
const PART_OF: ReadonlyMap<string, Role['part']> = /* @__PURE__ */ new Map<string, Role['part']>([
  ...['q_proj', 'wq', 'q_b_proj', 'attn_q', 'attn_q_b'].map((name) => [name, 'q'] as const),
  ...['k_proj', 'wk', 'kv_a_proj_with_mqa', 'attn_k', 'attn_kv_a_mqa'].map((name) => [name, 'k'] as const),
  ...['qkv_proj', 'query_key_value', 'Wqkv', 'wqkv', 'qkv', 'c_attn', 'attn_qkv'].map(
    (name) => [name, 'fused'] as const,
  ),
  ...['q_norm', 'q_layernorm', 'query_layernorm', 'attn_q_norm'].map((name) => [name, 'q-norm'] as const),
  ...['k_norm', 'k_layernorm', 'key_layernorm', 'attn_k_norm'].map((name) => [name, 'k-norm'] as const),
]);
/** Modules around the language model's layers. What lies in others (a vision tower) has no RoPE of this kind. */
const AROUND = new Set([
  'model',
  'base_model',
  'language_model',
  'text_model',
  'transformer',
  'gpt_neox',
  'module',
  'mtp',
]);
const OTHER_TOWER = /vision|visual|image|img|audio|speech|whisper|cross_attn|crossattention|encoder_attn|^[va]\.blk\./;

function roleInHuggingface(name: string): Role | undefined {
  const parts = name.split('.');
  const at = parts.findIndex((part, n) => /^(layers|h|blocks)$/.test(part) && /^\d{1,9}$/.test(parts[n + 1] ?? ''));
  if (at < 0 || !parts.slice(0, at).every((part) => AROUND.has(part))) return undefined;
  const inner = parts.slice(at + 2);
  if (inner[0] === 'norm_attn_norm') inner.shift();
  const part = PART_OF.get(inner[1] ?? '');
  if (!ATTENTION.has(inner[0] ?? '') || !part || inner[1]!.startsWith('attn_')) return undefined;
  // A base layer is what PEFT calls a weight that has an adapter beside it.
  if (inner[2] === 'base_layer') inner.splice(2, 1);
  const prefix = parts.slice(0, at).includes('mtp') ? 'mtp.' : '';
  return {
    layer: Number(parts[at + 1]),
    layerKey: `${prefix}${Number(parts[at + 1])}`,
    part,
    suffix: inner.slice(2).join('.'),
  };
}

function roleInGguf(name: string): Role | undefined {
  const match = /^blk\.(\d{1,9})\.(attn_[a-z_]+)\.(.+)$/.exec(name);
  const part = PART_OF.get(match?.[2] ?? '');
  return match && part
    ? { layer: Number(match[1]), layerKey: String(Number(match[1])), part, suffix: match[3]! }
    : undefined;
}

/** The user's own names: groups q and k of the pattern. */
function roleByGroups(name: string, only: RegExp): Role | undefined {
  const groups = only.exec(name)?.groups;
  if (groups?.q === undefined && groups?.k === undefined) return undefined;
  const layer = /\d{1,9}/.exec(name)?.[0];
  const [, suffix = 'weight'] = /\.([^.]+)$/.exec(name) ?? [];
  return {
    layer: Number(layer ?? 0),
    layerKey: String(Number(layer ?? 0)),
    part: groups.q === undefined ? 'k' : 'q',
    suffix,
    byGroups: true,
  };
}

/** Says whether a name that no rule took could still be that of a q or k. */
function looksLikeOne(name: string): boolean {
  return name.split('.').some((part) => part === 'indexer' || PART_OF.has(part));
}

/**
 * Plans the permutation.
 *
 * @param tensors - all tensors of the model; those of several files (shards) come in one list
 * @param options - the pairing wanted, and what is known about the model
 * @returns what moves, in the order given
 * @throws {RopewalkError} SHAPE when rows do not fit the heads; UNSUPPORTED for what cannot be moved by rows, for fused tensors of unknown
 *   layout, and for names that may or may not be q or k; FORMAT when no q and k are there, or one without the other; RANGE for absurd heads
 */
export function planPermutation(tensors: readonly LocatedTensor[], options: PermuteOptions): PermutePlan {
  const { only, naming, where = 'permute' } = options;
  const byGroups = only !== undefined && /\(\?<[qk]>/.test(only.source);
  const moves: TensorMove[] = [];
  const towers: string[] = [];
  const notes = new Set<string>();
  const left = new Map<string, string>();
  const taken = new Map<string, string>();
  const heads = new Map<number, HeadGeometry>();
  for (const tensor of tensors) {
    const { name } = tensor;
    const role = byGroups ? roleByGroups(name, only) : naming === 'gguf' ? roleInGguf(name) : roleInHuggingface(name);
    if (!role) {
      if (byGroups || !looksLikeOne(name)) continue;
      if (OTHER_TOWER.test(name)) {
        towers.push(name);
        continue;
      }
      refuse(
        'UNSUPPORTED',
        `${where}: ${nameForMessage(name)}`,
        "a name that says whether it is q or k of a language model's layer",
        name,
        "Name the tensors that move with --tensors '(?<q>…)|(?<k>…)'.",
      );
    }
    if (only && !byGroups && !only.test(name)) {
      left.set(role.layerKey, name);
      continue;
    }
    taken.set(role.layerKey, name);
    const geometry =
      heads.get(role.layer) ?? checkGeometry(options.geometryOf(role.layer), `${where}: layer ${role.layer}`);
    heads.set(role.layer, geometry);
    const move = moveOf(tensor, role, geometry, options, notes);
    if (move) moves.push(move);
  }
  for (const [layer, name] of taken) {
    const other = left.get(layer);
    if (other !== undefined)
      refuse(
        'FORMAT',
        `${where}: --tensors`,
        `all of layer ${layer} or none of it`,
        name,
        `It leaves out ${nameForMessage(other)}.`,
      );
  }
  checkPairs(moves, options, where);
  checkOverlap(tensors, moves, where);
  if (towers.length > 0)
    notes.add(
      `${towers.length} tensors of other towers (${nameForMessage(towers[0]!)}, …) are no part of this RoPE and stay as they are.`,
    );
  if (left.size > 0)
    notes.add(`--tensors leaves ${left.size} layers as they are: no runtime turns layers by different pairings.`);
  return { to: options.to, moves, notes: [...notes] };
}

function checkGeometry(geometry: HeadGeometry, where: string): HeadGeometry {
  const {
    numHeads,
    numKvHeads,
    headDim,
    rotaryDim,
    queryRows = headDim,
    queryOffset = 0,
    keyRows = headDim,
    keyOffset = 0,
  } = geometry;
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

/** The rows of a tensor, and where its windows start. */
interface Windows {
  readonly rows: number;
  /** How the rows come about, for messages. */
  readonly why: string;
  readonly q: readonly number[];
  readonly k: readonly number[];
}

function windowsOf(part: 'q' | 'k' | 'fused', g: HeadGeometry, fused: FusedLayout | undefined, where: string): Windows {
  const starts = (count: number, stride: number, first: number): number[] =>
    Array.from({ length: count }, (_, h) => first + h * stride);
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
      return refuse(
        'UNSUPPORTED',
        where,
        'a model whose layout of q, k and v in one tensor is known',
        'one that is not',
      );
    case 'concatenated':
      return {
        rows: (n + 2 * kv) * d,
        why: `(heads=${n} + 2 × kv_heads=${kv}) × ${d}`,
        q: starts(n, d, 0),
        k: starts(kv, d, n * d),
      };
    case 'by-head':
      if (kv !== n)
        refuse('RANGE', `${where}: kv_heads`, `heads=${n}, as q, k and v lie side by side in each head`, kv);
      return { rows: 3 * n * d, why: `3 × heads=${n} × ${d}`, q: starts(n, 3 * d, 0), k: starts(n, 3 * d, d) };
    case 'by-group': {
      const group = n / kv;
      const stride = (group + 2) * d;
      return {
        rows: kv * stride,
        why: `kv_heads=${kv} × (${group} + 2) × ${d}`,
        q: Array.from({ length: n }, (_, h) => Math.floor(h / group) * stride + (h % group) * d),
        k: starts(kv, stride, group * d),
      };
    }
    case 'codegen': {
      if (kv !== n || n % 4 !== 0) refuse('RANGE', `${where}: heads`, 'a multiple of 4, and as many kv_heads', [n, kv]);
      const own = n / 4;
      const at = (h: number, first: number): number => (3 * Math.floor(h / own) * own + first + (h % own)) * d;
      const each = (first: number): number[] => Array.from({ length: n }, (_, h) => at(h, first));
      return { rows: 3 * n * d, why: `3 × heads=${n} × ${d}`, q: each(0), k: each(2 * own) };
    }
  }
}

/** What hangs on a projection: rows like its own, or one value for all of them. */
const BESIDE =
  /^(weight_scale|weight_scale_inv|weight_zero_point|weight_packed|scale|lora_magnitude_vector.*|lora_B\..*|lora_B|weight\.lora_b)$/;
/** Where rows cannot be told apart, or are not output features. */
const SHARED =
  /^(lora_A\..*|lora_A|weight\.lora_a|input_scale|output_scale|weight_scale_2|weight_global_scale|input_global_scale|weight_shape|[qkv]_scale)$/;

function moveOf(
  tensor: LocatedTensor,
  role: Role,
  geometry: HeadGeometry,
  options: PermuteOptions,
  notes: Set<string>,
): TensorMove | undefined {
  const { name, shape, sizeBytes, file, type, byteOffset } = tensor;
  const { part, suffix, layer, layerKey } = role;
  const where = `${options.where ?? 'permute'}: ${nameForMessage(name)}`;
  const count = countClaimed(shape) ?? refuse('SHAPE', where, 'fewer than 2^50 elements', shape);
  const common = { name, type, shape, file, layer, layerKey, byteOffset, geometry };
  const rowsOf = (rows: number): number => {
    if (sizeBytes === undefined)
      refuse(
        'UNSUPPORTED',
        where,
        'a type whose rows are known to be whole blocks, one after the other',
        type,
        'Permute the model before it is quantised.',
      );
    const rowBytes = sizeBytes / rows;
    if (Number.isInteger(rowBytes) && rowBytes > 0) return rowBytes;
    return refuse('UNSUPPORTED', where, 'rows of whole bytes', `${sizeBytes} bytes of ${type} in ${rows} rows`);
  };

  const norm =
    part === 'q-norm' || part === 'k-norm' || (role.byGroups && shape.length === 1 && count === geometry.headDim);
  if (norm && (suffix === 'weight' || suffix === 'bias' || /^norms\.\d+\.weight$/.test(suffix))) {
    const query = part === 'q-norm' || part === 'q';
    const { headDim: d } = geometry;
    const heads = query ? geometry.numHeads : geometry.numKvHeads;
    if (count !== d && count !== heads * d)
      refuse(
        'SHAPE',
        where,
        `head_dim=${d} values, or ${heads} heads × ${d}`,
        shape,
        'Check heads, kv_heads and head_dim.',
      );
    const starts = Array.from({ length: count / d }, (_, h) => h * d);
    return {
      ...common,
      kind: 'norm',
      rows: count,
      rowBytes: rowsOf(count),
      q: query ? starts : [],
      k: query ? [] : starts,
    };
  }
  if (norm) refuse('UNSUPPORTED', where, 'a norm with weight or bias', suffix);

  const windows = windowsOf(part as 'q' | 'k' | 'fused', geometry, options.fused, where);
  const { rows } = windows;
  const beside = BESIDE.test(suffix);
  if (suffix === 'weight' || suffix === 'bias' || (beside && shape[0] === rows)) {
    if (shape[0] !== rows)
      refuse(
        'SHAPE',
        where,
        `${rows} rows, ${windows.why}`,
        shape,
        'Check heads, kv_heads and head_dim; a weight that is packed along its rows cannot be permuted.',
      );
    return {
      ...common,
      kind: suffix === 'bias' ? 'bias' : suffix === 'weight' || suffix === 'weight_packed' ? 'weight' : 'beside',
      rows,
      rowBytes: rowsOf(rows),
      q: windows.q,
      k: windows.k,
    };
  }
  if (SHARED.test(suffix) && (suffix.includes('lora') || count <= 2)) return undefined;
  if (beside && count === 1) return undefined;
  if (beside && shape.length === 2 && shape[0]! > 0 && staysInBlocks(rows / shape[0]!, windows, geometry)) {
    notes.add('Scales of blocks that hold whole heads (weight_scale, weight_scale_inv) stay as they are.');
    return undefined;
  }
  return refuse(
    'UNSUPPORTED',
    where,
    'weights that move by whole rows, and scales by row, by block of whole heads or for all',
    shape,
    'Permute the model before it is quantised.',
  );
}

/** Whether each window lies in one block of rows: its rows then keep their scale. */
function staysInBlocks(blockRows: number, { q, k }: Windows, { rotaryDim }: HeadGeometry): boolean {
  if (!Number.isInteger(blockRows) || blockRows < 1) return false;
  return [...q, ...k].every((row) => Math.floor(row / blockRows) === Math.floor((row + rotaryDim - 1) / blockRows));
}

/** q moved and k not is the bug that this is to prevent. */
function checkPairs(moves: readonly TensorMove[], { sharesKeys }: PermuteOptions, where: string): void {
  if (moves.length === 0) {
    refuse(
      'FORMAT',
      where,
      'q and k projections among the tensors',
      'none',
      "Is this the language model? Name its tensors with --tensors '(?<q>…)|(?<k>…)'.",
    );
  }
  const layers = new Map<string, { q?: string; k?: string }>();
  for (const { name, layerKey, kind, q, k } of moves) {
    // An adapter may well change q alone: it is the weights that come in pairs.
    if (kind !== 'weight') continue;
    const layer = layers.get(layerKey) ?? {};
    if (q.length > 0) layer.q = name;
    if (k.length > 0) layer.k = name;
    layers.set(layerKey, layer);
  }
  if (moves.every((move) => move.kind === 'norm'))
    refuse('FORMAT', where, 'q and k projections beside their norms', 'norms only');
  for (const [layer, { q, k }] of layers) {
    if (q !== undefined && (k !== undefined || sharesKeys)) continue;
    refuse(
      'FORMAT',
      `${where}: layer ${layer}`,
      'q and k, which move together',
      q ?? k,
      'Its partner is missing: is this one shard of several? Give the folder.',
    );
  }
}

/** Bytes that belong to two tensors would move under the other one's feet. */
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
      refuse(
        'FORMAT',
        `${where}: ${nameForMessage(name)}`,
        'bytes of its own',
        'bytes of another tensor too',
        'The file is forged.',
      );
    end = Math.max(end, byteOffset + sizeBytes);
    if (moved.has(name)) movedEnd = Math.max(movedEnd, byteOffset + sizeBytes);
  }
}
