/** Opens a state file of llama.cpp: the cells of its KV cache, and the keys and values of a layer when asked (Node only). @module */
import { elementsAt } from '@ropewalk/formats/internal';
import { type FileHandle, openFile, readAt } from '@ropewalk/formats/internal/node';
import { WIDENED, widenBlocks } from '@ropewalk/model/internal';
import { DTYPES, type Dtype, type Tensor, tensorFrom, sizeBytes as unitBytes } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import type { Dump, DumpTensor } from '../dump.js';
import { type LlamaState, parseLlamaState, type StateRows } from './llama-state.js';

/** An open state file. */
export interface StateFile extends LlamaState {
  /**
   * Reads the keys or the values of a layer.
   *
   * @returns `[cells, width]`, in its dtype; a block format as f32
   */
  rows(rows: StateRows): Promise<Tensor>;
  close(): Promise<void>;
}

/** Opens a state file. The caller closes it. @throws {RopewalkError} as {@link parseLlamaState} */
export async function openStateFile(path: string): Promise<StateFile> {
  const { file, size } = await openFile(path);
  try {
    const state = await parseLlamaState({ size, read: (start, length) => readAt(file, start, length, path) }, path);
    return { ...state, rows: (rows) => readRows(file, rows, path), close: () => file.close() };
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function readRows(file: FileHandle, rows: StateRows, where: string): Promise<Tensor> {
  const { type, width, byteOffset, sizeBytes, isTransposed } = rows;
  const bytes = await readAt(file, byteOffset, sizeBytes, where);
  const dtype = type.toLowerCase() as Dtype;
  if (DTYPES.includes(dtype)) {
    const cells = sizeBytes / unitBytes(dtype) / width;
    return tensorFrom(elementsAt(bytes, 0, dtype, cells * width), {
      dtype,
      shape: [cells, width],
      strides: isTransposed ? [1, cells] : [width, 1],
    });
  }
  const format = WIDENED.get(type) ?? fail('UNSUPPORTED', where, `keys and values of type ${type} cannot be read.`);
  const values = new Float32Array((sizeBytes / format.bytes) * format.weights);
  widenBlocks(format, bytes, where, 'f32', values);
  const cells = values.length / width;
  // A block of a transposed cache would hold one number of many cells, which llama.cpp does not have.
  return tensorFrom(values, { shape: [cells, width] });
}

/**
 * Opens a state file as a dump: tokens, positions, and of each layer the keys, which are after RoPE, and the values. The
 * layers of several caches keep their numbers in their cache, as the file does not tell which layers these are.
 */
export async function openStateDump(path: string): Promise<Dump> {
  const state = await openStateFile(path);
  const { tokens, caches } = state;
  const list = (name: string, values: readonly number[]): DumpTensor => ({
    name,
    shape: [values.length],
    dtype: 'i32',
    read: async () => tensorFrom(Int32Array.from(values)),
  });
  if (caches.some(({ sequences }) => new Set(sequences.flat()).size > 1)) {
    await state.close();
    fail('UNSUPPORTED', path, 'its cache holds several sequences. Save one: llama_state_seq_save_file.');
  }
  const tensors = caches.flatMap(({ positions, layers }, n) => {
    const isOne = caches.length === 1;
    // A cell that became free is taken by a later token, so cells may be in any order.
    const order = [...positions.keys()].sort((x, y) => positions[x]! - positions[y]!);
    const rows = layers.flatMap(({ k, v }, layer) =>
      Object.entries(v ? { k_rope: k, v } : { k_rope: k }).map(([name, one]) => ({
        name: isOne ? `layers.${layer}.${name}` : `cache${n}-${layer}.${name}`,
        shape: [positions.length, one.width],
        dtype: DTYPES.includes(one.type.toLowerCase() as Dtype) ? one.type.toLowerCase() : 'f32',
        read: async () => inOrder(await state.rows(one), order),
      })),
    );
    return [
      list(
        isOne ? 'positions' : `cache${n}.positions`,
        order.map((cell) => positions[cell]!),
      ),
      ...rows,
    ];
  });
  return { label: path, tensors: [list('tokens', tokens), ...tensors], notes: [], close: () => state.close() };
}

/** Puts rows in an order, as f32 where they are not in it. */
async function inOrder(rows: Tensor, order: readonly number[]): Promise<Tensor> {
  if (order.every((cell, n) => cell === n)) return rows;
  const [values, width] = [await rows.readNumbers(), rows.shape[1]!];
  return tensorFrom(
    Float32Array.from({ length: rows.size }, (_, n) =>
      Number(values[order[Math.floor(n / width)]! * width + (n % width)]),
    ),
    { shape: rows.shape },
  );
}
