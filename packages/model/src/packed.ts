/**
 * Weights of few bits as HuggingFace publishes them: integers or 8-bit floats in one tensor, scales and perhaps zero
 * points in others. Weight: (code − zero point) · scale.
 *
 * @module
 * @see AutoGPTQ 0.7.1 qlinear_cuda_old.py; AutoAWQ 0.2.9 awq/modules/linear/gemm.py; compressed-tensors 0.9.4
 *   compressors/quantized_compressors; deepseek-ai/DeepSeek-V3 inference/kernel.py, weight_dequant
 */
import { f16FromNumber, numberFromF16 } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { Fields, nameForMessage, numberFromF8e4m3 } from 'ropewalk/internal';

export interface StoredTensor {
  readonly name: string;
  /** Slowest dimension first. */
  readonly shape: readonly number[];
  /** The type by the file's name: F32, BF16, Q8_0. */
  readonly type: string;
  readonly file: string;
  readonly byteOffset: number;
  readonly sizeBytes: number | undefined;
  /** The tensors of a matrix that is packed into several. */
  readonly packed?: PackedTensor;
}

/** How codes lie: columns of a matrix or its rows in words of 32 bits, or a byte for each. */
type Layout = 'gptq' | 'awq' | 'rows' | 'i8' | 'fp8';

/** The form of all packed matrices, from config.json. */
export interface Packing {
  readonly layout: Layout;
  readonly bits: number;
  /** The rows and columns with one scale; undefined where the scales' own shape tells it. */
  readonly block: readonly [rows: number | undefined, columns: number | undefined];
  /** Whether g_idx tells the group of each column. */
  readonly ordered: boolean;
  /** Added to zero points: AutoGPTQ stores one less. */
  readonly zeroPlus: 0 | 1;
}

/** A matrix `[n, k]` in several tensors. */
export interface PackedTensor extends Omit<Packing, 'block' | 'ordered'> {
  readonly codes: StoredTensor;
  readonly scales: StoredTensor;
  readonly zeros: StoredTensor | undefined;
  readonly order: StoredTensor | undefined;
  /** The rows and columns with one scale, and the number of groups in a row. */
  readonly rows: number;
  readonly columns: number;
  readonly groups: number;
}

const NEXT = 'Take weights in F32, F16 or BF16, or a quantised GGUF file.';
export const PACKED_METHODS = ['gptq', 'awq', 'fp8', 'compressed-tensors'] as const;

/** Reads quantization_config. @throws {RopewalkError} UNSUPPORTED for a kind that is not read */
export function packingOf(config: Fields, own: string | undefined): Packing | undefined {
  const method = config.text('quant_method');
  if (method === own) return undefined;
  const only = (key: string, ...values: readonly (string | number)[]): void => {
    if (!config.has(key)) return;
    const got = typeof values[0] === 'number' ? config.integer(key) : config.text(key).toLowerCase();
    if (!values.includes(got)) config.refuse('UNSUPPORTED', key, values.join(' or '), NEXT);
  };
  const groupOf = (from: Fields): number | undefined => {
    const size = from.optionalNumber('group_size') ?? -1;
    if (size === -1) return undefined;
    return Number.isInteger(size) && size >= 1 ? size : from.refuse('FORMAT', 'group_size', 'an integer >= 1, or -1');
  };
  const plain = { ordered: false, zeroPlus: 0, block: [undefined, undefined] } as const;
  if (method === 'gptq') {
    only('bits', 2, 4, 8);
    only('checkpoint_format', 'gptq', 'gptq_v2');
    const zeroPlus = config.optionalText('checkpoint_format') === 'gptq_v2' ? 0 : 1;
    const ordered = config.optionalFlag('desc_act') ?? false;
    return { layout: 'gptq', bits: config.integer('bits'), block: [1, groupOf(config)], ordered, zeroPlus };
  }
  if (method === 'awq') {
    only('bits', 4);
    only('version', 'gemm');
    return { ...plain, layout: 'awq', bits: 4, block: [1, groupOf(config)] };
  }
  if (method === 'fp8') {
    only('fmt', 'e4m3', 'float8_e4m3fn');
    return { ...plain, layout: 'fp8', bits: 8, block: pairOf(config, 'weight_block_size') ?? [undefined, undefined] };
  }
  if (method !== 'compressed-tensors')
    return config.refuse('UNSUPPORTED', 'quant_method', [own ?? 'none', ...PACKED_METHODS].join(', '), NEXT);
  only('format', 'pack-quantized', 'naive-quantized', 'int-quantized', 'float-quantized');
  const groups = config.object('config_groups');
  const all = groups.keys().map((key) => groups.object(key).object('weights'));
  const kinds = all.map((weights): Packing => {
    const bits = weights.integer('num_bits');
    const float = weights.text('type') === 'float';
    const packed = config.text('format') === 'pack-quantized';
    if (packed ? float || (bits !== 4 && bits !== 8) : bits !== 8)
      weights.refuse('UNSUPPORTED', 'num_bits', packed ? '4 or 8, of type int' : '8', NEXT);
    const block = pairOf(weights, 'block_structure') ?? ([undefined, groupOf(weights)] as const);
    return { ...plain, layout: packed ? 'rows' : float ? 'fp8' : 'i8', bits, block, ordered: true };
  });
  const [first, other] = new Set(kinds.map((kind) => JSON.stringify(kind)));
  if (!first || other) return config.refuse('UNSUPPORTED', 'config_groups', 'one kind of weights in all groups', NEXT);
  return kinds[0]!;
}

/** Reads the quantization_config of a config.json; undefined if it has none, or one that the family reads itself. */
export function packingFromJson(json: unknown, own: string | undefined, where: string): Packing | undefined {
  const outer: Fields = new Fields(json, where);
  for (const one of [outer.optionalObject('text_config'), outer]) {
    const config = one?.optionalObject('quantization_config');
    if (config) return packingOf(config, own);
  }
  return undefined;
}

function pairOf(fields: Fields, key: string): readonly [number, number] | undefined {
  if (!fields.has(key)) return undefined;
  const [rows, columns, more] = fields.integers(key, 1);
  if (!rows || !columns || more !== undefined) return fields.refuse('FORMAT', key, 'two integers >= 1');
  return [rows, columns];
}

const CODES = /\.(qweight|weight_packed|weight)$/;
const PARTS = /\.(qzeros|scales|g_idx|weight_(scale|scale_inv|shape|zero_point|g_idx)|(input|output|k|v)_scale)$/;

/** Makes one tensor `NAME.weight` of the tensors of each packed matrix. Other tensors stay. */
export function packTensors(stored: readonly StoredTensor[], packing: Packing): StoredTensor[] {
  const byName = new Map(stored.map((tensor) => [tensor.name, tensor]));
  return stored.flatMap((codes): StoredTensor[] => {
    const { name, type } = codes;
    if (PARTS.test(name)) return [];
    const base = name.replace(CODES, '');
    const isCodes = /\.(qweight|weight_packed)$/.test(name) || (/\.weight$/.test(name) && /^(I8|F8_E4M3)$/.test(type));
    if (!isCodes) return [codes];
    const find = (...parts: readonly string[]): StoredTensor | undefined =>
      parts.map((part) => byName.get(`${base}.${part}`)).find((tensor) => tensor !== undefined);
    const scales = find('scales', 'weight_scale', 'weight_scale_inv');
    if (!scales)
      return fail('FORMAT', `${codes.file}: tensor ${nameForMessage(name)}`, `its scales are missing. ${NEXT}`);
    const parts = { codes, scales, zeros: find('qzeros', 'weight_zero_point'), order: find('g_idx', 'weight_g_idx') };
    return [joined(base, parts, packing)];
  });
}

type Parts = Pick<PackedTensor, 'codes' | 'scales' | 'zeros' | 'order'>;

function joined(base: string, { codes, scales, zeros, order: found }: Parts, packing: Packing): StoredTensor {
  const { layout, bits, block, ordered, zeroPlus } = packing;
  const per = 32 / bits;
  const words = layout === 'gptq' || layout === 'awq' || layout === 'rows';
  const need = (tensor: StoredTensor, types: readonly string[], unit: number, count: number): void => {
    const where = `${tensor.file}: tensor ${nameForMessage(tensor.name)}`;
    if (!types.includes(tensor.type)) refuse('UNSUPPORTED', where, `type ${types.join(' or ')}`, tensor.type, NEXT);
    if (tensor.sizeBytes !== unit * count)
      refuse('FORMAT', where, `${count} elements`, tensor.shape, 'The config does not belong to these weights.');
  };
  const [a = 0, b = 0] = codes.shape;
  if (codes.shape.length !== 2) refuse('FORMAT', `${codes.file}: tensor ${codes.name}`, 'a matrix', codes.shape);
  const [n, k] = { gptq: [b, a * per], awq: [b * 8, a], rows: [a, b * per], i8: [a, b], fp8: [a, b] }[layout] as [
    number,
    number,
  ];
  need(codes, words ? ['I32'] : [layout === 'i8' ? 'I8' : 'F8_E4M3'], words ? 4 : 1, a * b);
  const turned = layout === 'gptq' || layout === 'awq';
  const [down, across] = turned ? [n, scales.shape[0] ?? 1] : [scales.shape[0] ?? 1, scales.shape[1] ?? 1];
  const rows = turned ? 1 : (block[0] ?? Math.ceil(n / Math.max(1, down)));
  const columns = block[1] ?? Math.ceil(k / Math.max(1, across));
  const groups = Math.ceil(k / columns);
  need(scales, ['F16', 'BF16', 'F32'], scales.type === 'F32' ? 4 : 2, Math.ceil(n / rows) * groups);
  if (zeros) need(zeros, ['I32'], 4, layout === 'rows' ? Math.ceil(n / per) * groups : groups * Math.ceil(n / per));
  const order = ordered ? found : undefined;
  if (order) need(order, ['I32'], 4, k);
  const parts = { codes, scales, zeros, order };
  const sizeBytes = [codes, scales, zeros, order].reduce((sum, tensor) => sum + (tensor?.sizeBytes ?? 0), 0);
  return {
    ...{ name: `${base}.weight`, file: codes.file, type: packing.layout.toUpperCase(), shape: [n, k] },
    ...{ byteOffset: codes.byteOffset, sizeBytes },
    packed: { layout, bits, zeroPlus, ...parts, rows, columns, groups },
  };
}

/** True if blocks of q8_0 hold the weights: their codes less zero points have 8 bits, and their scales 16. */
export function fitsQ8({ layout, bits, zeros, order, columns, scales }: PackedTensor, k: number): boolean {
  if (layout === 'fp8' || order || scales.type === 'F32') return false;
  return k % 32 === 0 && columns % 32 === 0 && (bits < 8 || !zeros);
}

/** Reads a tensor whole. */
type ReadTensor = (tensor: StoredTensor) => Promise<Uint8Array>;

/** Reads rows of a packed matrix. */
export interface PackedRows {
  /** Writes the weights of a row, each rounded to f32 once. */
  numbers(row: number, out: Float32Array, at: number): void;
  /** Writes the blocks of q8_0 of a row. Scales in bf16 below 2^-17 are rounded to f16. */
  blocks(row: number, out: Uint8Array, at: number): void;
}

/** The place in a word of each of eight columns. */
const AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7];

export async function openPacked(
  packed: PackedTensor,
  [n, k]: readonly [number, number],
  read: ReadTensor,
  where: string,
): Promise<PackedRows> {
  const { layout, bits, zeroPlus, rows, columns, groups } = packed;
  const [per, mask, middle] = [32 / bits, 2 ** bits - 1, 2 ** (bits - 1)];
  const aligned = async (tensor: StoredTensor): Promise<ArrayBuffer> => Uint8Array.from(await read(tensor)).buffer;
  const codes = await aligned(packed.codes);
  const bytes = new Uint8Array(codes);
  const words = new Uint32Array(codes, 0, codes.byteLength >> 2);
  const scales = numbersOf(packed.scales.type, await aligned(packed.scales));
  const zeros = packed.zeros && new Uint32Array(await aligned(packed.zeros));
  const order = packed.order && new Int32Array(await aligned(packed.order));
  if (order?.some((group) => !(group >= 0 && group < groups)))
    fail('FORMAT', where, `g_idx names a group outside of [0, ${groups}).`);
  if (!scales.every(Number.isFinite))
    fail('FORMAT', where, 'a scale is no finite number. The file is damaged or forged.');
  const floats = layout === 'fp8' ? Float64Array.from({ length: 256 }, (_, code) => numberFromF8e4m3(code)) : undefined;

  const zeroOf = (row: number, group: number): number => {
    if (!zeros) return layout === 'gptq' || layout === 'awq' ? middle : 0;
    const across = Math.ceil(n / per);
    const inWord = row % per;
    if (layout === 'gptq')
      return ((zeros[group * across + (row - inWord) / per]! >>> (bits * inWord)) & mask) + zeroPlus;
    if (layout === 'awq') return (zeros[group * across + (row >> 3)]! >>> (4 * AWQ_PLACES[row & 7]!)) & 15;
    return ((zeros[((row - inWord) / per) * groups + group]! >>> (bits * inWord)) & mask) - middle;
  };
  const scaleOf = (row: number, group: number): number =>
    layout === 'gptq' || layout === 'awq' ? scales[group * n + row]! : scales[Math.floor(row / rows) * groups + group]!;
  const stored = new Float64Array(k);
  const readCodes = (row: number): void => {
    if (layout === 'gptq')
      for (let j = 0; j < k; j++) stored[j] = (words[Math.floor(j / per) * n + row]! >>> (bits * (j % per))) & mask;
    else if (layout === 'awq') {
      const shift = 4 * AWQ_PLACES[row & 7]!;
      for (let j = 0; j < k; j++) stored[j] = (words[j * (n >> 3) + (row >> 3)]! >>> shift) & 15;
    } else if (layout === 'rows')
      for (let j = 0; j < k; j++)
        stored[j] = ((words[(row * k) / per + Math.floor(j / per)]! >>> (bits * (j % per))) & mask) - middle;
    else if (floats) for (let j = 0; j < k; j++) stored[j] = floats[bytes[row * k + j]!]!;
    else for (let j = 0; j < k; j++) stored[j] = (bytes[row * k + j]! << 24) >> 24;
  };
  const groupZeros = new Float64Array(groups);
  const groupScales = new Float64Array(groups);
  const openRow = (row: number): void => {
    readCodes(row);
    for (let group = 0; group < groups; group++) {
      groupZeros[group] = zeroOf(row, group);
      groupScales[group] = scaleOf(row, group);
    }
  };
  return {
    numbers(row, out, at) {
      openRow(row);
      for (let j = 0; j < k; j++) {
        const group = order ? order[j]! : Math.floor(j / columns);
        const value = (stored[j]! - groupZeros[group]!) * groupScales[group]!;
        if (Number.isNaN(value)) fail('FORMAT', where, 'a weight is no number. The file is damaged or forged.');
        out[at + j] = value;
      }
    },
    blocks(row, out, at) {
      openRow(row);
      for (let j = 0, to = at; j < k; j += 32) {
        const group = Math.floor(j / columns);
        const half = f16FromNumber(groupScales[group]!);
        if (!Number.isFinite(numberFromF16(half)))
          refuse(
            'FORMAT',
            where,
            'scales that f16 holds',
            groupScales[group],
            'Read it in f32: planModel without q8_0.',
          );
        out[to++] = half & 255;
        out[to++] = half >> 8;
        for (let i = j; i < j + 32; i++) out[to++] = stored[i]! - groupZeros[group]!;
      }
    },
  };
}

function numbersOf(type: string, buffer: ArrayBuffer): Float32Array {
  if (type === 'F32') return new Float32Array(buffer);
  const halves = new Uint16Array(buffer);
  if (type === 'F16') return Float32Array.from(halves, numberFromF16);
  return new Float32Array(Uint32Array.from(halves, (bits) => bits << 16).buffer);
}
