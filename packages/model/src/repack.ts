/**
 * The weights of one file as the tensors of another: which bytes go where. Both sides are the names and rows of weights.ts.
 *
 * @module
 */
import { permutedRows } from '@ropewalk/formats';
import { BLOCK_FORMATS, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import type { PlannedModel } from './plan-model.js';
import type { StreamWeightOptions, WritePiece } from './stream-weight.js';
import type { DecoderConfig } from './types.js';
import { biasInTurns, splitLatent, untransposed } from './upload.js';
import { type Held, isBlockFormat, type TensorLayout, type WeightPlan } from './weights.js';

/** Types of weights that are written. */
export const WRITTEN_TYPES = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0'] as const;

/** One of them. */
export type WrittenType = (typeof WRITTEN_TYPES)[number];

/** A tensor of the new file. */
export interface NewTensor extends TensorLayout {
  readonly held: Held;
  readonly sizeBytes: number;
}

/** What is read in one go, and the weights that it gives, one after the other. */
interface Stream {
  /** Weights and their bytes. */
  readonly weights: readonly { readonly place: string; readonly held: Held; readonly bytes: number }[];
  /** Hands on all bytes, each once. */
  run(write: WritePiece, options: StreamWeightOptions): Promise<void>;
}

/** Bytes of a stream, and where they go. */
interface Copy {
  readonly from: number;
  readonly size: number;
  /** The tensor, and the byte in it. */
  readonly tensor: number;
  readonly at: number;
  /** Floats of f32, which the new file has less 1. */
  readonly lessOne: boolean;
}

/** How the rows of q and k change. */
export interface Repairing {
  readonly to: 'half' | 'interleaved';
  readonly rotaryDim: number;
}

/** The work of writing a file's tensors. */
export interface Repack {
  readonly tensors: readonly NewTensor[];
  /** Reads all weights, and hands on bytes with the tensor that they are of, and their place in it. */
  run(
    write: (bytes: Uint8Array, tensor: number, at: number) => Promise<void>,
    options: StreamWeightOptions,
  ): Promise<void>;
}

/** Bytes of weights of a type. */
export function bytesOf(held: Held, count: number): number {
  return isBlockFormat(held)
    ? (count / BLOCK_FORMATS[held].weights) * BLOCK_FORMATS[held].bytes
    : count * sizeBytes(held);
}

/** Matrices that are written as they lie in no file: their parts are floats. */
const REBUILT = /\.(kvB|expertGateUp|expertDownTransposed)\.weight$/;

/**
 * What each weight becomes: vectors, biases, norms and routers stay f32, as in llama.cpp's files.
 *
 * @param type - undefined leaves matrices as they are
 */
export function typeFor(type: WrittenType | undefined) {
  return ({ place, shape }: { readonly place: string; readonly shape: readonly number[] }): Held | undefined => {
    if (shape.length < 2 || !/(?<!norm|router)\.weight$/i.test(place)) return 'f32';
    if (type !== 'q8_0' && type !== 'q4_0') return type;
    if (REBUILT.test(place) || shape.at(-1)! % 32 !== 0) return 'f16';
    return /^(embedding|head)\./.test(place) ? 'q8_0' : type;
  };
}

/**
 * Plans the new file.
 *
 * @param description - of the old file; its weights are held as they are written
 * @param layout - of layoutOf, for the new one
 * @param repairing - the new order of the rows of q and k; undefined where they stay
 * @throws {RopewalkError} UNSUPPORTED for a weight that the old file does not have
 */
export function planRepack(
  description: PlannedModel,
  layout: readonly TensorLayout[],
  repairing: Repairing | undefined,
): Repack {
  const streams = streamsOf(description, layout, repairing);
  const found = new Map<string, { stream: number; from: number; held: Held }>();
  for (const [stream, { weights }] of streams.entries()) {
    let from = 0;
    for (const { place, held, bytes } of weights) {
      found.set(place, { stream, from, held });
      from += bytes;
    }
  }
  const copies = streams.map((): Copy[] => []);
  const tensors = layout.map((tensor, n): NewTensor => {
    const held = tensor.parts.map(({ place, from, at, count, lessOne }) => {
      // A head that the old file does not have is the embedding.
      const source = found.get(place) ?? (place === 'head.weight' ? found.get('embedding.weight') : undefined);
      if (!source) return fail('UNSUPPORTED', description.where, `tensor ${tensor.name} cannot be made of its weights`);
      const size = (elements: number): number => bytesOf(source.held, elements);
      copies[source.stream]!.push({
        from: source.from + size(from),
        size: size(count),
        tensor: n,
        at: size(at),
        lessOne,
      });
      return source.held;
    });
    const other = held.find((one) => one !== held[0]);
    if (other) {
      const types = `${held[0]} and ${other}, and ${tensor.name} is one tensor`;
      fail('UNSUPPORTED', description.where, `its parts are ${types}. Give a type for all: --type f16.`);
    }
    const count = tensor.shape.reduce((product, size) => product * size, 1);
    return { ...tensor, held: held[0]!, sizeBytes: bytesOf(held[0]!, count) };
  });
  return {
    tensors,
    async run(write, options) {
      for (const [n, stream] of streams.entries()) {
        const own = copies[n]!.sort((a, b) => a.from - b.from);
        await stream.run(async (piece, at) => {
          for (const { from, size, tensor, at: to, lessOne } of own) {
            const [first, end] = [Math.max(from, at), Math.min(from + size, at + piece.length)];
            if (first >= end) continue;
            const bytes = piece.subarray(first - at, end - at);
            await write(lessOne ? minusOne(bytes) : bytes, tensor, to + first - from);
          }
        }, options);
      }
    },
  };
}

function minusOne(bytes: Uint8Array): Uint8Array {
  const floats = new Float32Array(bytes.slice().buffer);
  return new Uint8Array(floats.map((value) => value - 1).buffer);
}

function streamsOf(
  description: PlannedModel,
  layout: readonly TensorLayout[],
  repairing: Repairing | undefined,
): Stream[] {
  const { config, weights } = description;
  const wanted = new Set(layout.flatMap(({ parts }) => parts.map(({ place }) => place)));
  const plans = new Map(weights.map((plan) => [plan.place, plan]));
  const streams: Stream[] = [];
  for (const plan of weights) {
    const { place, held, heldBytes: bytes } = plan;
    const read: Stream['run'] = (write, options) => description.streamWeight(plan, write, options);
    if (wanted.has(place) || (place === 'embedding.weight' && wanted.has('head.weight'))) {
      const rows = repairing && /^\d+\.[qk]\.(weight|bias)$/.test(place) ? rowsOf(config, plan, repairing) : undefined;
      const run: Stream['run'] = rows ? (write, options) => read(byHeads(write, rows), options) : read;
      streams.push({ weights: [{ place, held, bytes }], run });
    } else streams.push(...rebuilt(description, plan, plans));
  }
  return streams;
}

/** Weights that the new file has in another form. */
function rebuilt(description: PlannedModel, plan: WeightPlan, plans: ReadonlyMap<string, WeightPlan>): Stream[] {
  const { config } = description;
  const { place, held, heldBytes } = plan;
  const [, before, part] = /^(\d+\.)(\w+\.\w+)$/.exec(place) ?? [];
  const at = (name: string): string => `${before}${name}`;
  /** Loads weights, and writes what `make` makes of them. */
  const whole = (
    names: readonly string[],
    outputs: readonly string[],
    make: (...loaded: Tensor<'f32' | 'f16' | 'bf16'>[]) => readonly Tensor<'f32' | 'f16' | 'bf16'>[],
  ): Stream[] => {
    const own = names.map((name) => plans.get(at(name))!);
    const total = own.reduce((sum, one) => sum + one.heldBytes, 0);
    return [
      {
        // All are of one type, and as large together.
        weights: outputs.map((name) => ({ place: at(name), held, bytes: total / outputs.length })),
        async run(write, options) {
          const loaded: Tensor<'f32' | 'f16' | 'bf16'>[] = [];
          for (const one of own) loaded.push(await load(description, one, options));
          let offset = 0;
          for (const tensor of make(...loaded)) {
            const data = tensor.contiguous().read() as Float32Array | Uint16Array;
            await write(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
            offset += data.byteLength;
          }
        },
      },
    ];
  };
  switch (part) {
    case 'kvB.weight': {
      const { latent, valueDim } = config;
      const [stream] = whole(['kvB.weight'], ['kB.weight', 'vB.weight'], (kvB) => {
        const { kB, vB } = splitLatent(config, kvB!);
        return [kB!.weight, vB!.weight] as Tensor<'f32'>[];
      });
      const keys = (heldBytes * latent!.nope) / (latent!.nope + valueDim);
      const sizes = [keys, heldBytes - keys];
      return [{ ...stream!, weights: stream!.weights.map((one, n) => ({ ...one, bytes: sizes[n]! })) }];
    }
    case 'kB.weight':
      // Keys turned, then values, head by head.
      return whole(['kB.weight', 'vB.weight'], ['kvB.weight'], (kB, vB) => [joinLatent(kB!, vB!)]);
    case 'expertGateUpBlocks.weight':
      return [
        {
          weights: ['expertGate.weight', 'expertUp.weight'].map((name) => ({
            place: at(name),
            held,
            bytes: heldBytes / 2,
          })),
          run: (write, options) => description.streamWeight(plan, write, options),
        },
      ];
    case 'expertGateUpBlocks.bias':
    case 'expertGateUp.bias':
      return whole([part], ['expertGate.bias', 'expertUp.bias'], (bias) =>
        [0, 1].map((n) => biasInTurns(bias, n as 0 | 1)!),
      );
    case 'expertGateUp.weight':
      return whole([part], ['expertGate.weight', 'expertUp.weight'], (weight) => {
        const none = { weight: weight!, bias: undefined };
        const { expertGate, expertUp } = untransposed(none, none);
        return [expertGate!.weight, expertUp!.weight] as Tensor<'f32'>[];
      });
    case 'expertDownTransposed.weight':
      return whole([part], ['expertDown.weight'], (weight) => [weight!.permute([0, 2, 1])]);
    case 'expertDownTransposed.bias':
      return whole([part], ['expertDown.bias'], (bias) => [bias!]);
    default:
      return [];
  }
}

/** kvB from kB `[n, c, p]` and vB `[n, dv, c]`. */
function joinLatent(kB: Tensor<'f32' | 'f16' | 'bf16'>, vB: Tensor<'f32' | 'f16' | 'bf16'>) {
  const [n, c, p] = kB.shape as [number, number, number];
  const dv = vB.shape[1]!;
  const keys = kB.permute([0, 2, 1]).contiguous().read() as Float32Array;
  const values = vB.contiguous().read() as Float32Array;
  const data = new (keys.constructor as Float32ArrayConstructor)(keys.length + values.length);
  for (let head = 0; head < n; head++) {
    data.set(keys.subarray(head * p * c, (head + 1) * p * c), head * (p + dv) * c);
    data.set(values.subarray(head * dv * c, (head + 1) * dv * c), (head * (p + dv) + p) * c);
  }
  return tensorFrom(data, { dtype: kB.dtype as 'f32', shape: [n * (p + dv), c] });
}

async function load(description: PlannedModel, plan: WeightPlan, options: StreamWeightOptions) {
  const { held, heldBytes, shape } = plan;
  const bytes = new Uint8Array(heldBytes);
  await description.streamWeight(plan, (piece, at) => bytes.set(piece, at), options);
  const data = held === 'f32' ? new Float32Array(bytes.buffer) : new Uint16Array(bytes.buffer);
  return tensorFrom(data as Float32Array, { dtype: held as 'f32', shape });
}

/** Rows of a head, and the new row of each that moves. */
interface HeadRows {
  readonly rowBytes: number;
  readonly rows: number;
  readonly to: Uint32Array;
}

function rowsOf({ headDim }: DecoderConfig, { heldBytes, shape }: WeightPlan, { to, rotaryDim }: Repairing): HeadRows {
  // permutedRows gives the old row of each new one: of the way back, the new row of each old one.
  const back = permutedRows(rotaryDim, to === 'half' ? 'interleaved' : 'half');
  return { rowBytes: heldBytes / shape[0]!, rows: headDim, to: back };
}

/** Puts the rows of each head in their new order; a head is held at a time. */
function byHeads(write: WritePiece, { rowBytes, rows, to }: HeadRows): WritePiece {
  const head = new Uint8Array(rowBytes * rows);
  return async (piece, at) => {
    for (let from = 0; from < piece.length; ) {
      const inHead = (at + from) % head.length;
      const [row, inRow] = [Math.floor(inHead / rowBytes), inHead % rowBytes];
      const count = Math.min(rowBytes - inRow, piece.length - from);
      head.set(piece.subarray(from, from + count), (to[row] ?? row) * rowBytes + inRow);
      from += count;
      if (inHead + count === head.length) await write(head, at + from - head.length);
    }
  };
}
