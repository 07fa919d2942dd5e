/**
 * Writes a model with the shape of Qwen2, half a billion parameters and random weights. It is as fast and as large as a
 * real model, but its text is random.
 *
 * Usage: node --import tsx bench/decoder/synthetic-model.ts [q8_0|q4_0] [FILE.gguf]
 *
 * @module
 */
import { closeSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { f16FromNumber } from 'ropewalk';

/** The numbers of Qwen2.5-0.5B's config.json. */
const SHAPE = {
  hidden: 896,
  layers: 24,
  heads: 14,
  kvHeads: 2,
  headDim: 64,
  intermediate: 4864,
  vocabulary: 151_936,
  context: 4096,
};
const SEED = 20_261_121;
const BLOCK_WEIGHTS = 32;
/**
 * The formats have blocks of 32 weights: an f16 scale, then evenly distributed integers. q8_0 stores ±127 as signed
 * bytes; q4_0 stores ±7, each plus 8, as two in a byte. The scale makes the standard deviation of the weights 0.02, as
 * in freshly initialised models.
 */
const BLOCKS = {
  q8_0: { ggmlType: 8, fileType: 7, bytes: 34, scale: 0.02 / 73.3 },
  q4_0: { ggmlType: 2, fileType: 2, bytes: 18, scale: 0.02 / 4.18 },
} as const;
const ALIGNMENT = 32;
/** ggml's number of the type. */
const F32 = 0;

/** The format of the matrices. */
export type BlockType = keyof typeof BLOCKS;
/** All formats. */
export const BLOCK_TYPES = Object.keys(BLOCKS) as readonly BlockType[];

interface Planned {
  readonly name: string;
  /** The fastest dimension comes first, as in GGUF. */
  readonly shape: readonly number[];
  readonly type: 'f32' | BlockType;
}

/** Returns the default path of the model. Git ignores its folder. */
export function syntheticPath(type: BlockType): string {
  return fileURLToPath(new URL(`../../.scratch/bench/qwen2-0.5b-random-${type}.gguf`, import.meta.url));
}

/**
 * Writes the model. After an error no partial file is left.
 *
 * @param path - the path of the file, which is replaced if it exists
 * @param type - the format of the matrices
 * @param progress - is called with the share that is written
 */
export function writeSyntheticModel(path: string, type: BlockType, progress: (share: number) => void = () => {}): void {
  const partial = `${path}.partial`;
  mkdirSync(dirname(path), { recursive: true });
  try {
    const file = openSync(partial, 'w');
    try {
      writeTo(file, type, progress);
    } finally {
      closeSync(file);
    }
    renameSync(partial, path);
  } finally {
    rmSync(partial, { force: true });
  }
}

function writeTo(file: number, type: BlockType, progress: (share: number) => void): void {
  const tensors = plannedTensors(type);
  const total = tensors.reduce((sum, tensor) => sum + sizeOf(tensor), 0);
  const header = headerOf(tensors, type);
  writeWhole(file, header);
  const random = new Random(SEED);
  let done = 0;
  for (const tensor of tensors) {
    const size = sizeOf(tensor);
    const piece = tensor.type === 'f32' ? size : 2 ** 16 * BLOCKS[tensor.type].bytes;
    for (let at = 0; at < size; at += piece) {
      const length = Math.min(piece, size - at);
      const bytes = tensor.type === 'f32' ? random.floats(length / 4, tensor.name) : random.blocks(length, tensor.type);
      if (tensor.name === 'token_embd.weight' && at === 0) silenceHighBytes(bytes, type);
      writeWhole(file, bytes);
      done += length;
      progress(done / total);
    }
    writeWhole(file, new Uint8Array(aligned(size) - size));
  }
}

/**
 * Sets the table's rows of the bytes 128–255 to zeros. Their logits are then never the largest, so only ASCII is
 * generated.
 */
function silenceHighBytes(table: Uint8Array, type: BlockType): void {
  const row = (SHAPE.hidden / BLOCK_WEIGHTS) * BLOCKS[type].bytes;
  table.fill(0, 128 * row, 256 * row);
}

function writeWhole(file: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
}

function plannedTensors(type: BlockType): Planned[] {
  const { hidden, layers, heads, kvHeads, headDim, intermediate, vocabulary } = SHAPE;
  const matrix = (name: string, n: number, k: number): Planned => ({
    name: `${name}.weight`,
    shape: [k, n],
    type,
  });
  const vector = (name: string, n: number): Planned => ({ name, shape: [n], type: 'f32' });
  const block = (b: string): Planned[] => [
    vector(`${b}.attn_norm.weight`, hidden),
    matrix(`${b}.attn_q`, heads * headDim, hidden),
    vector(`${b}.attn_q.bias`, heads * headDim),
    matrix(`${b}.attn_k`, kvHeads * headDim, hidden),
    vector(`${b}.attn_k.bias`, kvHeads * headDim),
    matrix(`${b}.attn_v`, kvHeads * headDim, hidden),
    vector(`${b}.attn_v.bias`, kvHeads * headDim),
    matrix(`${b}.attn_output`, hidden, heads * headDim),
    vector(`${b}.ffn_norm.weight`, hidden),
    matrix(`${b}.ffn_gate`, intermediate, hidden),
    matrix(`${b}.ffn_up`, intermediate, hidden),
    matrix(`${b}.ffn_down`, hidden, intermediate),
  ];
  return [
    matrix('token_embd', vocabulary, hidden), // is also the head, because there is no output.weight
    ...Array.from({ length: layers }, (_, layer) => block(`blk.${layer}`)).flat(),
    vector('output_norm.weight', hidden),
  ];
}

function sizeOf({ shape, type }: Planned): number {
  const count = shape.reduce((product, dim) => product * dim, 1);
  return type === 'f32' ? 4 * count : (count / BLOCK_WEIGHTS) * BLOCKS[type].bytes;
}

function aligned(size: number): number {
  return Math.ceil(size / ALIGNMENT) * ALIGNMENT;
}

/** Writes GGUF's header, up to the bytes of the first tensor. @see ggml-org/ggml@d99724f docs/gguf.md */
function headerOf(tensors: readonly Planned[], type: BlockType): Uint8Array {
  const { tokens, types, merges } = vocabulary();
  const metadata: readonly [string, Value][] = [
    ['general.architecture', text('qwen2')],
    ['general.name', text('random weights of the shape of Qwen2 0.5B')],
    ['general.file_type', u32(BLOCKS[type].fileType)],
    ['qwen2.block_count', u32(SHAPE.layers)],
    ['qwen2.context_length', u32(SHAPE.context)],
    ['qwen2.embedding_length', u32(SHAPE.hidden)],
    ['qwen2.feed_forward_length', u32(SHAPE.intermediate)],
    ['qwen2.attention.head_count', u32(SHAPE.heads)],
    ['qwen2.attention.head_count_kv', u32(SHAPE.kvHeads)],
    ['qwen2.attention.layer_norm_rms_epsilon', f32(1e-6)],
    ['qwen2.rope.freq_base', f32(1e6)],
    ['tokenizer.ggml.model', text('gpt2')],
    ['tokenizer.ggml.pre', text('qwen2')],
    ['tokenizer.ggml.tokens', list(tokens.map(text))],
    ['tokenizer.ggml.token_type', list(types.map(i32))],
    ['tokenizer.ggml.merges', list(merges.map(text))],
    ['tokenizer.ggml.eos_token_id', u32(tokens.length - 1)],
    ['tokenizer.ggml.add_bos_token', bool(false)],
  ];
  const parts: Uint8Array[] = [
    new TextEncoder().encode('GGUF'),
    u32(3).bytes,
    u64(tensors.length),
    u64(metadata.length),
  ];
  for (const [key, value] of metadata) parts.push(text(key).bytes, u32(value.type).bytes, value.bytes);
  let offset = 0;
  for (const tensor of tensors) {
    const { name, shape, type } = tensor;
    const number = type === 'f32' ? F32 : BLOCKS[type].ggmlType;
    parts.push(text(name).bytes, u32(shape.length).bytes, ...shape.map(u64), u32(number).bytes, u64(offset));
    offset += aligned(sizeOf(tensor));
  }
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  return Buffer.concat([...parts, new Uint8Array(aligned(length) - length)]);
}

/** A value of the header: GGUF's number of its type, and its bytes. */
interface Value {
  readonly type: number;
  readonly bytes: Uint8Array;
}

function number(type: number, size: number, write: (view: DataView) => void): Value {
  const bytes = new Uint8Array(size);
  write(new DataView(bytes.buffer));
  return { type, bytes };
}
const u32 = (value: number): Value => number(4, 4, (view) => view.setUint32(0, value, true));
const i32 = (value: number): Value => number(5, 4, (view) => view.setInt32(0, value, true));
const f32 = (value: number): Value => number(6, 4, (view) => view.setFloat32(0, value, true));
const bool = (value: boolean): Value => number(7, 1, (view) => view.setUint8(0, value ? 1 : 0));
const u64 = (value: number): Uint8Array => number(10, 8, (view) => view.setBigUint64(0, BigInt(value), true)).bytes;
const text = (value: string): Value => {
  const encoded = Buffer.from(value, 'utf8');
  return { type: 8, bytes: Buffer.concat([u64(encoded.length), encoded]) };
};
const list = (values: readonly Value[]): Value => ({
  type: 9,
  bytes: Buffer.concat([u32(values[0]!.type).bytes, u64(values.length), ...values.map(({ bytes }) => bytes)]),
});

/**
 * Makes a vocabulary of all bytes, then pairs and triples of printable ASCII, each made by one merge, until it is full.
 * The last token is the end of a text. Other bytes are not used, because random bytes are not valid UTF-8 and
 * llama-server's JSON then throws.
 */
function vocabulary(): { tokens: string[]; types: number[]; merges: string[] } {
  const tokens = byteLetters();
  const printable = tokens.slice(32, 127);
  const merges: string[] = [];
  const size = SHAPE.vocabulary - 1;
  const merge = (first: string, second: string): void => {
    if (tokens.length === size) return;
    tokens.push(first + second);
    merges.push(`${first} ${second}`);
  };
  for (const first of printable) for (const second of printable) merge(first, second);
  for (const pair of tokens.slice(256)) for (const third of printable) merge(pair, third);
  tokens.push('<|endoftext|>');
  return { tokens, types: tokens.map((_, id) => (id === size ? 3 : 1)), merges };
}

/**
 * Lists the letters that stand for bytes in GPT-2's vocabularies.
 *
 * @see openai/gpt-2@9b63575 src/encoder.py, bytes_to_unicode
 */
function byteLetters(): string[] {
  const printable = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++));
}

// −128 and −8 are left out, so that the mean is 0. No quantiser writes −128, and kernels with an unsigned operand may
// depend on that.
const centered8 = (byte: number): number => (byte === 0x80 ? 0x7f : byte);
const centered4 = (byte: number): number => byte | (byte & 0x0f ? 0 : 0x08) | (byte & 0xf0 ? 0 : 0x80);

/** Generates numbers from a seed (xorshift32), so that every machine writes the same file. */
class Random {
  constructor(private state: number) {}

  private next(): number {
    let x = this.state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.state = x;
    return x;
  }

  /** Makes blocks that all have the same scale. */
  blocks(sizeBytes: number, type: BlockType): Uint8Array {
    const bytes = new Uint8Array(sizeBytes);
    new Int32Array(bytes.buffer, 0, sizeBytes >> 2).forEach((_, n, words) => {
      words[n] = this.next();
    });
    const { scale, bytes: step } = BLOCKS[type];
    const bits = f16FromNumber(scale);
    for (let at = 0; at < sizeBytes; at += step) {
      bytes[at] = bits & 255;
      bytes[at + 1] = bits >> 8;
      for (let w = at + 2; w < at + step; w++) bytes[w] = type === 'q8_0' ? centered8(bytes[w]!) : centered4(bytes[w]!);
    }
    return bytes;
  }

  /** Makes the weights of a norm, which are near 1, or biases, which are near 0. */
  floats(count: number, name: string): Uint8Array {
    const center = name.endsWith('.bias') ? 0 : 1;
    return new Uint8Array(Float32Array.from({ length: count }, () => center + 0.02 * (this.next() / 2 ** 31)).buffer);
  }
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const [type = 'q8_0', path = syntheticPath(type as BlockType)] = process.argv.slice(2);
  if (!BLOCK_TYPES.includes(type as BlockType)) throw new Error(`expected ${BLOCK_TYPES.join(' or ')}, got ${type}`);
  writeSyntheticModel(path, type as BlockType, (share) => {
    if (process.stderr.isTTY) process.stderr.write(`\r${Math.round(100 * share)} %`);
  });
  console.log(`wrote ${path}`);
}
