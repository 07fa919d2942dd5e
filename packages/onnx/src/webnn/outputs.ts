/**
 * Where the outputs of a graph go: to the host, or into tensors of WebNN's memory, whole or in part.
 *
 * @module
 */
import type { HostArray } from 'ropewalk';
import { countElements } from 'ropewalk/internal';
import type { Target } from '../backend/pack.js';
import type { MlBuilder, MlOperand } from './api.js';
import { type Places, scatter } from './layout.js';
import type { WebnnStorage } from './storage.js';

/** An output. */
export type Output =
  | {
      readonly target: Target;
      readonly mode: 'host';
      /** Taken when the plan is queued: the tensor may be disposed before its turn. */
      readonly array: HostArray;
      readonly storage?: undefined;
      readonly places?: undefined;
    }
  | {
      readonly target: Target;
      /** `base` and `part` become a storage's tensor; `scatter` makes one of its base and the output. */
      readonly mode: 'base' | 'part' | 'scatter';
      readonly storage: WebnnStorage;
      readonly places: Places;
    };

/** The graph's name for what comes out: outputs that are scattered into one storage make one tensor. */
export function resultName({ target, mode, storage }: Output, outputs: readonly Output[]): string {
  return mode === 'scatter' ? outputs.find((other) => other.storage === storage)!.target.name : target.name;
}

/** The graph's name for the base that outputs are scattered into. */
export function beforeName(result: string): string {
  return `${result}_before`;
}

/** The graph's name for the blocks that an output goes to. */
export function placesName({ target }: Output): string {
  return `${target.name}_places`;
}

/** What an output adds to the name of its graph. */
export function keyOfOutput(output: Output, outputs: readonly Output[]): string {
  const { target, mode, storage, places } = output;
  if (mode === 'host') return `${target.name} host`;
  const { block, blocks, permutation } = places;
  const into = mode === 'scatter' ? `${resultName(output, outputs)} ${storage.length} ${block} ${blocks.length}` : '';
  return `${target.name} ${mode} ${into} ${permutation}`;
}

/** Appends what becomes of the values of a graph's outputs. */
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
      results[name] = ml.identity(value); // an input cannot be an output, and no value two of them
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
