/**
 * Converts a model's q and k weights from one pairing to the other: plan, write, prove (Node only).
 *
 * @module
 */
import { copyFile, open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { WeightPairing } from '@ropewalk/dialects/internal/models';
import { checkPath, refuseSystem, writeWhole } from '@ropewalk/formats/internal/node';
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, optionNames, readField, readName, readOptions } from 'ropewalk/internal';
import { type CopyOptions, copyPermuted } from './file.node.js';
import { factsOf, type GivenGeometry, type ModelFacts, type OpenModel, openModel } from './model.node.js';
import { type PermutePlan, planPermutation } from './plan.js';
import { isProved, type LayerProof, provableLayers, proveScores } from './proof.node.js';

/** The new pairing, and facts that the model's files do not state. */
export interface PermuteModelOptions extends GivenGeometry {
  /** The new pairing. */
  readonly to: WeightPairing;
  /** Permutes only tensors that match. Groups named q and k say which tensors are which. */
  readonly only?: RegExp;
  /** Permutes although the model states that its weights have that pairing already. */
  readonly force?: boolean;
}

const NAMES: OptionNames<PermuteModelOptions> = /* @__PURE__ */ optionNames(
  'from config heads kvHeads headDim rotaryDim to only force',
);

/** A permutation that can be carried out. */
export interface ModelPermutation {
  readonly model: OpenModel;
  readonly facts: ModelFacts;
  readonly plan: PermutePlan;
  /** The pairing that the weights have now. */
  readonly from: WeightPairing;
}

/** Options of {@link runModelPermutation}. */
export interface RunPermutationOptions {
  /** The file or folder to write. Default: nothing is written. */
  readonly output?: string;
  /** Proves all layers and heads instead of a sample. */
  readonly all?: boolean;
  /** Replaces the output if it is a file. */
  readonly force?: boolean;
  /** Stops the work and removes what was written. */
  readonly signal?: AbortSignal;
  /** Called with the share that is done, in [0, 1]. */
  readonly onProgress?: (share: number) => void;
}

const RUN_NAMES: OptionNames<RunPermutationOptions> = /* @__PURE__ */ optionNames('output all force signal onProgress');

/** The result of a permutation. */
export interface PermutationResult {
  /** One proof for each layer that was compared. */
  readonly proofs: readonly LayerProof[];
  /** Whether scores differ. In that case nothing was written. */
  readonly failed: boolean;
}

/**
 * Plans a permutation. Reads headers and metadata, no weights.
 *
 * @param input - a .safetensors or .gguf file, or a folder with one model
 * @param options - the new pairing, and facts that the model's files do not state
 * @throws {RopewalkError} FORMAT for files that cannot be read or contradict the options, and for weights that have the
 *   pairing already; UNSUPPORTED or SHAPE for what cannot be permuted by rows
 * @example const permutation = await planModelPermutation('llama', { to: 'interleaved' });
 */
export async function planModelPermutation(input: string, options: PermuteModelOptions): Promise<ModelPermutation> {
  const model = await openModel(input);
  const given = readOptions(options, 'permute: options', NAMES);
  if (given.from !== undefined) readName(given.from, ['half', 'interleaved'], 'permute: from');
  const facts = await factsOf(model, given);
  const from = chooseFrom(facts, given);
  const plan = planPermutation(model.tensors, {
    to: given.to,
    naming: model.format === 'gguf' ? 'gguf' : 'huggingface',
    geometryOf: facts.geometryOf,
    sharesKeys: facts.sharesKeys,
    fused: facts.fused,
    only: given.only,
    where: input,
  });
  return { model, facts, plan, from };
}

/** Permuting twice, or weights that never had the other order, ruins a model silently. */
function chooseFrom(facts: ModelFacts, { to, from: said, force }: PermuteModelOptions): WeightPairing {
  const from: WeightPairing = to === 'half' ? 'interleaved' : 'half';
  if (said === to) fail('FORMAT', 'from', `--from and --to both say ${said}. There is nothing to permute.`);
  const next = 'If you know that this is not so, add --force.';
  if (facts.native === to && !force)
    fail('FORMAT', 'model', `its weights are ${to} already. ${facts.evidence} ${next}`);
  const choice = 'Say it with --from: half for rotate_half or NEOX, interleaved for neighbours.';
  if (facts.from === undefined)
    fail('UNSUPPORTED', 'from', `the pairing of ${facts.architecture} is not known. ${choice}`);
  return from;
}

/** Thrown when the written files are wrong. It carries the proofs, because the files are removed. */
class ProofFailed extends Error {
  constructor(readonly proofs: readonly LayerProof[]) {
    super('the scores are not the same');
  }
}

/**
 * Carries a permutation out: writes the new model under a temporary name, proves by q·k that every score is the same,
 * and only then puts it in place. Without an output it proves the plan alone.
 *
 * @param permutation - from {@link planModelPermutation}
 * @param options - output, all, force, signal, onProgress
 * @throws {RopewalkError} FORMAT when the output exists or a file cannot be read; DEVICE when it cannot be written
 */
export async function runModelPermutation(
  permutation: ModelPermutation,
  options: RunPermutationOptions = {},
): Promise<PermutationResult> {
  const given = readOptions(permutation, 'permute');
  const model = readOptions(given.model, 'permute: model');
  const plan = readOptions(given.plan, 'permute: plan');
  const facts = readOptions(given.facts, 'permute: facts');
  const {
    output,
    all = false,
    force,
    signal,
    onProgress = () => {},
  } = readOptions(options, 'permute: options', RUN_NAMES);
  if (output !== undefined) checkPath(output);
  if (typeof onProgress !== 'function') refuse('RANGE', 'permute: onProgress', 'a function', onProgress);
  if (signal !== undefined && typeof readField(signal, 'throwIfAborted', 'permute: signal') !== 'function')
    refuse('RANGE', 'permute: signal', 'an AbortSignal', signal);
  const layers = provableLayers(plan.moves, all).length;
  const sizeBytes = output === undefined ? 0 : model.sizes.reduce((a, b) => a + b, 0);
  // The proof of a layer takes about as long as writing some megabytes.
  const total = sizeBytes + layers * 2 ** 20;
  let done = 0;
  const onBytes = (count: number): void => {
    done += count;
    onProgress(done / total);
  };
  const prove = (after?: readonly string[]): Promise<LayerProof[]> =>
    proveScores(plan.moves, {
      to: plan.to,
      before: model.files,
      after,
      bigEndian: model.gguf?.bigEndian ?? false,
      ropeOf: facts.ropeOf,
      all,
      signal,
      onLayer: () => onBytes(2 ** 20),
    });
  if (output === undefined) {
    const proofs = await prove();
    return { proofs, failed: !proofs.every(isProved) };
  }
  const inputs = model.kind === 'folder' ? [model.path, ...model.files] : [model.path];
  try {
    const proofs = await writeWhole(output, { sizeBytes, inputs, force, kind: model.kind }, async (temporary) => {
      const proofs = await prove(await writeFiles(model, plan, temporary, { signal, onBytes }));
      if (!proofs.every(isProved)) throw new ProofFailed(proofs);
      signal?.throwIfAborted();
      return proofs;
    });
    return { proofs, failed: false };
  } catch (error) {
    if (error instanceof ProofFailed) return { proofs: error.proofs, failed: true };
    throw error;
  }
}

/** Writes each file of the model under a temporary name. @returns the paths of the weights */
async function writeFiles(model: OpenModel, plan: PermutePlan, temporary: string, options: CopyOptions) {
  const after: string[] = [];
  for (const [file, from] of model.files.entries()) {
    const to = model.kind === 'folder' ? join(temporary, basename(from)) : temporary;
    const moves = plan.moves.filter((move) => move.file === file);
    await copyPermuted(from, to, moves, plan.to, options);
    after.push(to);
  }
  for (const name of model.companions) {
    options.signal?.throwIfAborted();
    const to = join(temporary, name);
    const unwritable = (cause: unknown): never => refuseSystem('DEVICE', to, 'to be able to write', cause);
    await copyFile(join(model.path, name), to).catch(unwritable);
    const handle = await open(to);
    await handle.sync().catch(() => undefined);
    await handle.close();
  }
  return after;
}
