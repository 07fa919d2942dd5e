/**
 * Reads views from flat tensors, and puts the outputs of a graph in their places: on the host, or in WebNN's memory,
 * whole or in part.
 *
 * @module
 */
import type { HostArray } from 'ropewalk';
import { isRowMajor, rowMajorStrides, walk } from 'ropewalk/backend';
import { countElements, type Layout } from 'ropewalk/internal';
import type { Target } from '../backend/graph.js';
import type { MlBuilder, MlOperand } from './api.js';
import type { Stretch, WebnnStorage } from './storage.js';

export type Output =
  | {
      readonly target: Target;
      readonly mode: 'host';
      /** Taken when the plan is queued, because the tensor may be disposed before the plan runs. */
      readonly array: HostArray;
      readonly storage?: undefined;
      readonly places?: undefined;
    }
  | {
      readonly target: Target;
      /** `base` and `part` become a tensor of the storage; `scatter` writes the output into a copy of its base. */
      readonly mode: 'base' | 'part' | 'scatter';
      readonly storage: WebnnStorage;
      readonly places: Places;
    };

/** Returns the graph's name for a result. Outputs that are scattered into one storage share a result. */
export function resultName({ target, mode, storage }: Output, outputs: readonly Output[]): string {
  return mode === 'scatter' ? outputs.find((other) => other.storage === storage)!.target.name : target.name;
}

/** Returns the graph's name for the base into which outputs are scattered. */
export function beforeName(result: string): string {
  return `${result}_before`;
}

/** Returns the graph's name for the places of an output's blocks. */
export function placesName({ target }: Output): string {
  return `${target.name}_places`;
}

/** Returns the part of a graph's key for one output. */
export function keyOfOutput(output: Output, outputs: readonly Output[]): string {
  const { target, mode, storage, places } = output;
  if (mode === 'host') return `${target.name} host`;
  const { block, blocks, permutation } = places;
  const into = mode === 'scatter' ? `${resultName(output, outputs)} ${storage.length} ${block} ${blocks.length}` : '';
  return `${target.name} ${mode} ${into} ${permutation}`;
}

/** Appends the operators that bring the outputs into the form of their places. */
export function defineOutputs(
  ml: MlBuilder,
  values: ReadonlyMap<string, MlOperand>,
  outputs: readonly Output[],
): Readonly<Record<string, MlOperand>> {
  const results: Record<string, MlOperand> = {};
  for (const output of outputs) {
    const name = resultName(output, outputs);
    const value = values.get(output.target.name)!;
    if (output.mode === 'host') {
      results[name] = ml.identity(value); // an input cannot be an output, nor one value two outputs
      continue;
    }
    const { block, blocks, permutation } = output.places;
    const inOrder = permutation ? ml.transpose(value, { permutation }) : value;
    if (output.mode !== 'scatter') {
      results[name] = ml.reshape(inOrder, [countElements(value.shape)]);
      continue;
    }
    const { dataType, length } = output.storage;
    const before = results[name] ?? ml.input(beforeName(name), { dataType, shape: [length] });
    const at = ml.input(placesName(output), { dataType: 'int32', shape: [blocks.length, 1] });
    results[name] = scatter(ml, before, block, at, inOrder);
  }
  return results;
}

/** The places of an output in its storage, in blocks of elements that stay together. */
export interface Places {
  /** The elements per block. It divides the storage's length and every start. */
  readonly block: number;
  /** The block of the storage for each block of the output, in the output's order. */
  readonly blocks: Int32Array;
  /** The stretch that the blocks fill in order, if they do. */
  readonly stretch: Stretch | undefined;
  /** The order of the output's dimensions in the storage, if it differs. */
  readonly permutation: readonly number[] | undefined;
}

/** Reads the elements of a layout from a flat operand. */
export function readLayout(ml: MlBuilder, flat: MlOperand, layout: Layout): MlOperand {
  const { shape, offset } = layout;
  const size = countElements(shape);
  if (!isRowMajor(layout)) {
    const places = new Int32Array(size);
    walk(layout, (at, n) => void (places[n] = at));
    return ml.gather(flat, ml.constant({ dataType: 'int32', shape }, places), { axis: 0 });
  }
  const part = size === flat.shape[0] ? flat : ml.slice(flat, [offset], [size]);
  return ml.reshape(part, shape);
}

export function placesOf({ storage, pieces, order }: Target): Places {
  const { length } = storage;
  const runs = pieces.map(({ to }) => runOf(to));
  let block = length;
  for (const [n, { to }] of pieces.entries()) {
    block = greatestDivisor(block, runs[n]!.length);
    walk(outer(to, runs[n]!.dims), (at) => void (block = greatestDivisor(block, at)));
  }
  const count = pieces.reduce((sum, { to }) => sum + countElements(to.shape), 0) / block;
  const blocks = new Int32Array(count);
  let n = 0;
  for (const [p, { to }] of pieces.entries()) {
    const { dims, length: run } = runs[p]!;
    walk(outer(to, dims), (at) => {
      for (let k = 0; k < run / block; k++) blocks[n++] = at / block + k;
    });
  }
  const inOrder = blocks.every((at, k) => at === blocks[0]! + k);
  const start = blocks[0]! * block;
  return {
    block,
    blocks,
    stretch: inOrder ? { start, end: start + count * block } : undefined,
    permutation: order && permutationOf(order),
  };
}

/** Writes blocks into a flat operand. `places` is `[count, 1]`. */
export function scatter(
  ml: MlBuilder,
  flat: MlOperand,
  block: number,
  places: MlOperand,
  values: MlOperand,
): MlOperand {
  const length = flat.shape[0]!;
  const rows = ml.reshape(flat, [length / block, block]);
  const updates = ml.reshape(values, [places.shape[0]!, block]);
  return ml.reshape(ml.scatterND(rows, places, updates), [length]);
}

/** Counts the elements at the end of a layout that lie side by side, and the dimensions before them. */
function runOf({ shape, strides }: Layout): { readonly length: number; readonly dims: number } {
  let length = 1;
  let dims = shape.length;
  while (dims > 0 && (shape[dims - 1] === 1 || strides[dims - 1] === length)) length *= shape[--dims]!;
  return { length, dims };
}

function outer({ shape, strides, offset }: Layout, dims: number): Layout {
  return { shape: shape.slice(0, dims), strides: strides.slice(0, dims), offset };
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b);
}

/** Returns the dimensions of a dense layout by falling stride. */
function permutationOf({ shape, strides }: Layout): readonly number[] {
  return rowMajorStrides(shape)
    .map((_, d) => d)
    .sort((a, b) => strides[b]! - strides[a]! || a - b);
}
