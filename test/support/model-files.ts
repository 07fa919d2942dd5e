/** Makes model files for tests, and backends that read only some types of weights. */
import type { Backend, BlockFormat } from 'ropewalk';

/** Wraps a backend so that it reads exactly these block formats. */
export function withFormats(opened: Backend, blockFormats: readonly BlockFormat[] | undefined): Backend {
  return {
    name: 'mine',
    capabilities: () => ({ ...opened.capabilities(), blockFormats }),
    allocate: (dtype, shape) => opened.allocate(dtype, shape),
    upload: (tensor) => opened.upload(tensor),
    whyNot: (plan) => opened.whyNot(plan),
    run: (plan) => opened.run(plan),
    finish: () => opened.finish(),
    dispose: () => opened.dispose(),
  };
}

/** A tensor for a file. */
export interface MadeTensor {
  readonly name: string;
  /** The shape in the order of the format: slowest first in safetensors, fastest first in GGUF. */
  readonly shape: readonly number[];
  /** The type's name for safetensors, or ggml's number for GGUF. */
  readonly type: string | number;
  readonly bytes: Uint8Array;
}

/** Makes a safetensors file. */
export function safetensorsOf(
  tensors: readonly MadeTensor[],
  metadata: Record<string, string> = { format: 'pt' },
): Uint8Array {
  let at = 0;
  const entries = tensors.map(({ name, shape, type, bytes }) => {
    const offsets = [at, (at += bytes.length)];
    return [name, { dtype: type, shape, data_offsets: offsets }];
  });
  const text = new TextEncoder().encode(JSON.stringify({ __metadata__: metadata, ...Object.fromEntries(entries) }));
  const file = new Uint8Array(8 + text.length + at);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  at = 8 + text.length;
  for (const { bytes } of tensors) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

/** Makes a little-endian GGUF file of version 3. Integers become u32, other numbers f32, and lists i32 arrays. */
export function ggufOf(
  tensors: readonly MadeTensor[],
  metadata: Readonly<Record<string, string | number | readonly number[]>>,
  alignment = 32,
): Uint8Array {
  const bytes: number[] = [];
  const u32 = (value: number): void =>
    void bytes.push(value & 255, (value >>> 8) & 255, (value >>> 16) & 255, (value >>> 24) & 255);
  const u64 = (value: number): void => {
    u32(value % 2 ** 32);
    u32(Math.floor(value / 2 ** 32));
  };
  const text = (value: string): void => {
    const encoded = new TextEncoder().encode(value);
    u64(encoded.length);
    bytes.push(...encoded);
  };
  bytes.push(...new TextEncoder().encode('GGUF'));
  u32(3);
  u64(tensors.length);
  u64(Object.keys(metadata).length);
  for (const [key, value] of Object.entries(metadata)) {
    text(key);
    if (typeof value === 'string') {
      u32(8);
      text(value);
    } else if (typeof value === 'number') {
      const whole = Number.isInteger(value);
      u32(whole ? 4 : 6);
      u32(whole ? value : new Uint32Array(Float32Array.of(value).buffer)[0]!);
    } else {
      u32(9);
      u32(5);
      u64(value.length);
      for (const item of value) u32(item);
    }
  }
  let offset = 0;
  const padded = (length: number): number => Math.ceil(length / alignment) * alignment;
  for (const { name, shape, type, bytes: data } of tensors) {
    text(name);
    u32(shape.length);
    for (const dim of shape) u64(dim);
    u32(Number(type));
    u64(offset);
    offset += padded(data.length);
  }
  const start = padded(bytes.length);
  const file = new Uint8Array(start + offset);
  file.set(bytes);
  offset = start;
  for (const { bytes: data } of tensors) {
    file.set(data, offset);
    offset += padded(data.length);
  }
  return file;
}

/** Makes rows that differ: each is filled with bytes that depend on its number. */
export function numberedRows(rows: number, rowBytes: number, seed = 0): Uint8Array {
  const bytes = new Uint8Array(rows * rowBytes);
  for (let n = 0; n < bytes.length; n++) {
    const row = Math.floor(n / rowBytes);
    bytes[n] = Math.imul(Math.imul(row + 1 + seed * 7919, 0x9e3779b1) ^ ((n % rowBytes) + 1), 0x85ebca6b) >>> 24;
  }
  return bytes;
}

/** Reads the labels of rows, four bytes each. */
export function labelledRows(labels: readonly number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(labels).buffer);
}
