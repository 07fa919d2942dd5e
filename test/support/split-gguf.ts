/** Splits a GGUF file into parts, as llama-gguf-split does. */
import { parseGguf } from '@ropewalk/formats';

/** The keys that describe how a model is split. A key that is `undefined` is left out. */
export interface SplitKeys {
  readonly 'split.no': number | undefined;
  readonly 'split.count': number | undefined;
  readonly 'split.tensors.count': number | undefined;
}

/**
 * Splits a little-endian file of version 2 or 3. The first part has all metadata, the others only the three keys.
 *
 * @param counts - the number of tensors in each part
 * @param name - the start of the parts' names, `NAME-00001-of-00002.gguf`
 * @param keysOf - changes the keys of part n, to make parts that do not fit together
 */
export function splitGguf(
  bytes: Uint8Array,
  counts: readonly number[],
  name = 'model',
  keysOf: (n: number, keys: SplitKeys) => SplitKeys = (_n, keys) => keys,
): Record<string, Uint8Array> {
  const { metadata, tensors, alignment, dataOffset } = parseGguf(bytes);
  const padded = (length: number): number => Math.ceil(length / alignment) * alignment;
  const sizes = tensors.map(({ name: text, shape }) => 24 + new TextEncoder().encode(text).length + 8 * shape.length);
  const total = sizes.reduce((a, b) => a + b, 0);
  // The gap between the list of tensors and the data is less than one alignment.
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const nameBytes = sizes[0]! - 24 - 8 * tensors[0]!.shape.length;
  let list = dataOffset - total;
  const startsHere = (at: number): boolean =>
    view.getUint32(at, true) === nameBytes &&
    new TextDecoder().decode(bytes.subarray(at + 8, at + 8 + nameBytes)) === tensors[0]!.name;
  while (!startsHere(list)) list--;

  const parts: [string, Uint8Array][] = [];
  let n = 0;
  let record = list;
  for (const [part, count] of counts.entries()) {
    const own = tensors.slice(n, n + count);
    const keys = keysOf(part, {
      'split.no': part,
      'split.count': counts.length,
      'split.tensors.count': tensors.length,
    });
    const said = Object.entries(keys).filter(([, value]) => value !== undefined) as [string, number][];
    const out: number[] = [...bytes.subarray(0, 8), ...u64(count), ...u64(said.length + (part ? 0 : metadata.size))];
    if (part === 0) out.push(...bytes.subarray(24, list));
    for (const [key, value] of said) {
      // llama.cpp writes the first two as u16, the third as i32.
      const short = key !== 'split.tensors.count';
      out.push(...u64(key.length), ...new TextEncoder().encode(key), short ? 2 : 5, 0, 0, 0);
      out.push(...u64(value).slice(0, short ? 2 : 4));
    }
    let offset = 0;
    for (const { sizeBytes } of own) {
      const size = sizes[n++]!;
      out.push(...bytes.subarray(record, record + size - 8), ...u64(offset));
      record += size;
      offset += padded(sizeBytes!);
    }
    const start = padded(out.length);
    const file = new Uint8Array(start + offset);
    file.set(out);
    let at = start;
    for (const { offset: from, sizeBytes } of own) {
      file.set(bytes.subarray(dataOffset + from, dataOffset + from + sizeBytes!), at);
      at += padded(sizeBytes!);
    }
    parts.push([`${name}-${five(part + 1)}-of-${five(counts.length)}.gguf`, file]);
  }
  return Object.fromEntries(parts);
}

function u64(value: number): number[] {
  return [...new Uint8Array(BigUint64Array.of(BigInt(value)).buffer)];
}

function five(n: number): string {
  return String(n).padStart(5, '0');
}
