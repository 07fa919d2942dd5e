/** Plans which bytes of one file's weights go where in another file, by the names and rows of weights.ts. @module */
import { permutedRows } from '@ropewalk/dialects/internal/models';
import { type Tensor, tensorFrom } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { PlannedModel } from './plan-model.js';
import type { StreamWeightOptions, WritePiece } from './stream-weight.js';
import type { DecoderConfig } from './types.js';
import { biasInTurns, splitLatent, untransposed } from './upload.js';
import { bytesHeld, type Held, type TensorLayout, type WeightPlan } from './weights.js';

/** Types of weights that are written. */
export const WRITTEN_TYPES = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0'] as const;

export type WrittenType = (typeof WRITTEN_TYPES)[number];

type Floats = Tensor<'f32' | 'f16' | 'bf16'>;

/** A stream of bytes that is read in one go, and the weights in it, one after the other. */
interface Stream {
  readonly weights: readonly { readonly place: string; readonly held: Held; readonly bytes: number }[];
  /** Passes on all bytes, each once. */
  run(write: WritePiece, options: StreamWeightOptions): Promise<void>;
}

/** Bytes of a stream, and their place in a tensor of the new file. */
interface Copy {
  readonly from: number;
  readonly size: number;
  readonly tensor: number;
  readonly at: number;
  /** Whether the new file has the f32 numbers less 1. */
  readonly lessOne: boolean;
}

/** The new order of the rows of q and k. */
export interface Repairing {
  readonly to: 'half' | 'interleaved';
  readonly rotaryDim: number;
}

/** The plan of a new file's tensors. */
export interface Repack {
  readonly tensors: readonly (TensorLayout & { readonly held: Held; readonly sizeBytes: number })[];
  /** Reads all weights, and passes on bytes with the number of their tensor and their place in it. */
  run(
    write: (bytes: Uint8Array, tensor: number, at: number) => Promise<void>,
    options: StreamWeightOptions,
  ): Promise<void>;
}

/** Matrices that no file stores as they are written: they are put together from floats. */
const REBUILT = /\.(kvB|expertGateUp|expertDownTransposed)\.weight$/;

/**
 * Returns the rule for the new types. Vectors, biases, norms and routers stay f32; without `type`, matrices stay as
 * well.
 */
export function typeFor(type: WrittenType | undefined) {
  return ({ place, shape }: { readonly place: string; readonly shape: readonly number[] }): Held | undefined => {
    const small = /altup|laurel/.test(place); // llama-quantize leaves them as they are
    if (shape.length < 2 || !/(?<!norm|router|\.conv)\.weight$/i.test(place)) return 'f32';
    if (type !== 'q8_0' && type !== 'q4_0') return type;
    if (REBUILT.test(place) || small || shape.at(-1)! % 32 !== 0) return 'f16';
    return /^(embedding|head)\./.test(place) ? 'q8_0' : type;
  };
}

/**
 * Plans the new file: `description` is the old one, `layout` the new.
 *
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
  const tensors = layout.map((tensor, n) => {
    const held = tensor.parts.map(({ place, from, at, count, lessOne }) => {
      // If the old file has no head, the embedding is the head.
      const source = found.get(place) ?? (place === 'head.weight' ? found.get('embedding.weight') : undefined);
      if (!source) return fail('UNSUPPORTED', description.where, `tensor ${tensor.name} cannot be made of its weights`);
      const size = (elements: number): number => bytesHeld(source.held, elements);
      const start = source.from + size(from);
      copies[source.stream]!.push({ from: start, size: size(count), tensor: n, at: size(at), lessOne });
      return source.held;
    });
    const other = held.find((one) => one !== held[0]);
    if (other) {
      const types = `${held[0]} and ${other}, and ${tensor.name} is one tensor`;
      fail('UNSUPPORTED', description.where, `its parts are ${types}. Give a type for all: --type f16.`);
    }
    return { ...tensor, held: held[0]!, sizeBytes: bytesHeld(held[0]!, countElements(tensor.shape)) };
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
  const wanted = new Set(layout.flatMap(({ parts }) => parts.map(({ place }) => place)));
  const plans = new Map(description.weights.map((plan) => [plan.place, plan]));
  const streams = description.weights.map((plan) => {
    const { place, held, heldBytes: bytes } = plan;
    if (!wanted.has(place) && !(place === 'embedding.weight' && wanted.has('head.weight'))) {
      const stream = rebuilt(description, plan, plans);
      if (stream || !place.endsWith('.bias')) return stream;
      return fail('UNSUPPORTED', `${description.where}: ${plan.name}`, 'the new form of the model has no such bias.');
    }
    const read: Stream['run'] = (write, options) => description.streamWeight(plan, write, options);
    const moves = repairing && /^\d+\.[qk]\.(weight|bias)$/.test(place);
    const run: Stream['run'] = (write, options) =>
      read(moves ? byHeads(write, description.config, plan, repairing) : write, options);
    return { weights: [{ place, held, bytes }], run };
  });
  return streams.filter((stream) => stream !== undefined);
}

/** Makes the stream of a weight that the new file has in another form; undefined for the other weights. */
function rebuilt(
  description: PlannedModel,
  plan: WeightPlan,
  plans: ReadonlyMap<string, WeightPlan>,
): Stream | undefined {
  const { latent, valueDim } = description.config;
  const { place, held } = plan;
  const [, before, part] = /^(\d+\.)(\w+\.\w+)$/.exec(place) ?? [];
  const inputsOf = (names: readonly string[]): WeightPlan[] => names.map((name) => plans.get(`${before}${name}`)!);
  /** Lists the outputs, which are of one type, with their shares of the bytes. Default: equal shares. */
  const outputsOf = (inputs: readonly WeightPlan[], names: readonly string[], shares?: readonly number[]) => {
    const total = inputs.reduce((sum, { heldBytes }) => sum + heldBytes, 0);
    const bytesOf = (n: number): number => (shares ? total * shares[n]! : total / names.length);
    return names.map((name, n) => ({ place: `${before}${name}`, held, bytes: bytesOf(n) }));
  };
  /** Loads whole weights, and writes the tensors that `make` returns. */
  const whole = (
    names: readonly string[],
    outputs: readonly string[],
    make: (...loaded: Floats[]) => readonly Floats[],
    shares?: readonly number[],
  ): Stream => {
    const inputs = inputsOf(names);
    return {
      weights: outputsOf(inputs, outputs, shares),
      async run(write, options) {
        const loaded: Floats[] = [];
        for (const one of inputs) loaded.push(await load(description, one, options));
        let offset = 0;
        for (const tensor of make(...loaded)) {
          const data = tensor.contiguous().read() as Float32Array | Uint16Array;
          await write(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
          offset += data.byteLength;
        }
      },
    };
  };
  switch (part) {
    case 'kvB.weight': {
      const keys = latent!.nope / (latent!.nope + valueDim);
      const make = (kvB?: Floats) => {
        const { kB, vB } = splitLatent(description.config, kvB!);
        return [kB!.weight, vB!.weight] as Floats[];
      };
      return whole([part], ['kB.weight', 'vB.weight'], make, [keys, 1 - keys]);
    }
    case 'kB.weight':
      return whole(['kB.weight', 'vB.weight'], ['kvB.weight'], (kB, vB) => [joinLatent(kB!, vB!)]);
    case 'expertGateUpBlocks.weight':
      return {
        weights: outputsOf([plan], ['expertGate.weight', 'expertUp.weight']),
        run: (write, options) => description.streamWeight(plan, write, options),
      };
    case 'expertGateUpBlocks.bias':
    case 'expertGateUp.bias':
      return whole([part], ['expertGate.bias', 'expertUp.bias'], (bias) =>
        ([0, 1] as const).map((n) => biasInTurns(bias, n)!),
      );
    case 'expertGateUp.weight':
      return whole([part], ['expertGate.weight', 'expertUp.weight'], (weight) => {
        const none = { weight: weight!, bias: undefined };
        const { expertGate, expertUp } = untransposed(description.config, none, none);
        return [expertGate!.weight, expertUp!.weight] as Floats[];
      });
    case 'expertDownTransposed.weight':
      return whole([part], ['expertDown.weight'], (weight) => [weight!.permute([0, 2, 1])]);
    case 'expertGate.weight':
      return whole([part, 'expertUp.weight'], ['expertGateUp.weight'], (gate, up) => [besideEachOther(gate!, up!)]);
    case 'expertDown.weight':
      return whole([part], ['expertDownTransposed.weight'], (weight) => [weight!.permute([0, 2, 1])]);
    case 'expertDownTransposed.bias':
      return whole([part], ['expertDown.bias'], (bias) => [bias!]);
    default:
      return undefined;
  }
}

/** Joins kB `[n, c, p]` and vB `[n, dv, c]` to kvB, head by head: the keys transposed, then the values. */
function joinLatent(kB: Floats, vB: Floats): Floats {
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

/** Joins the gates and ups of experts, `[e, x, h]` each, to `[e, h, 2x]`, as Llama 4 has them. */
function besideEachOther(gate: Floats, up: Floats): Floats {
  const [e, x, h] = gate.shape as [number, number, number];
  const [gates, ups] = [gate, up].map((one) => one.permute([0, 2, 1]).contiguous().read() as Float32Array);
  const data = new (gates!.constructor as Float32ArrayConstructor)(2 * gates!.length);
  for (let row = 0; row < e * h; row++) {
    data.set(gates!.subarray(row * x, (row + 1) * x), 2 * row * x);
    data.set(ups!.subarray(row * x, (row + 1) * x), (2 * row + 1) * x);
  }
  return tensorFrom(data, { dtype: gate.dtype as 'f32', shape: [e, h, 2 * x] });
}

async function load(description: PlannedModel, plan: WeightPlan, options: StreamWeightOptions) {
  const { held, heldBytes, shape } = plan;
  const bytes = new Uint8Array(heldBytes);
  await description.streamWeight(plan, (piece, at) => bytes.set(piece, at), options);
  const data = held === 'f32' ? new Float32Array(bytes.buffer) : new Uint16Array(bytes.buffer);
  return tensorFrom(data as Float32Array, { dtype: held as 'f32', shape });
}

/** Puts the rows of each head in their new order. One head is in memory at a time. */
function byHeads(
  write: WritePiece,
  { headDim }: DecoderConfig,
  { heldBytes, shape }: WeightPlan,
  { to: pairing, rotaryDim }: Repairing,
): WritePiece {
  // permutedRows gives the old row of each new one. For the way back it gives the new row of each old one.
  const to = permutedRows(rotaryDim, pairing === 'half' ? 'interleaved' : 'half');
  const rowBytes = heldBytes / shape[0]!;
  const head = new Uint8Array(rowBytes * headDim);
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
