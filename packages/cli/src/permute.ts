/**
 * `ropewalk permute`: puts a model's q and k weights from one pairing into the other.
 *
 * @module
 */
import { copyFile, open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type PermutePlan, permutedRows, planPermutation, type WeightPairing } from '@ropewalk/formats';
import {
  type CopyOptions,
  copyPermuted,
  factsOf,
  type GivenGeometry,
  type LayerProof,
  type ModelFacts,
  type OpenModel,
  openModel,
  provableLayers,
  proveScores,
  refuseSystem,
  writeWhole,
} from '@ropewalk/formats/node';
import { refuse } from 'ropewalk/backend';
import { readInteger, readPattern } from './options.js';
import { EXIT, openPrinter } from './output.js';

/** Options of the command, as the command line gives them. */
export interface PermuteCommandOptions {
  readonly to: string;
  readonly from?: string;
  readonly config?: string;
  readonly heads?: string;
  readonly kvHeads?: string;
  readonly headDim?: string;
  readonly rotaryDim?: string;
  readonly tensors?: string;
  readonly dryRun?: boolean;
  readonly check?: boolean;
  readonly force?: boolean;
  readonly json?: boolean;
}

const MIB = 2 ** 20;

/**
 * Plans the permutation, proves it by q·k, and writes the model anew.
 *
 * @param input - a .safetensors or .gguf file, or a folder of .safetensors
 * @param output - a file or folder that does not exist; not needed for a dry run
 * @param options - as the command line gives them
 * @param print - where its text goes; stdout unless given
 * @returns the exit code: failed when the scores are not the same, and then nothing is left
 * @throws {RopewalkError} for bad options, files that cannot be read or written, and models that cannot be permuted: the caller exits with 2
 */
export async function permute(
  input: string,
  output: string | undefined,
  options: PermuteCommandOptions,
  print: (text: string) => void = (text) => void process.stdout.write(text),
): Promise<number> {
  const to = readPairing(options.to, '--to')!;
  const given = readGiven(options);
  const only = options.tensors === undefined ? undefined : readPattern(options.tensors, 'permute: --tensors');
  if (output === undefined && !options.dryRun)
    refuse(
      'FORMAT',
      'permute: OUT',
      'a name to write to',
      undefined,
      'Give one, or --dry-run to see what would be done.',
    );
  const model = await openModel(input);
  const facts = await factsOf(model, given);
  const from = chooseFrom(to, given.from, facts, options.force ?? false);
  const plan = planPermutation(model.tensors, {
    to,
    naming: model.format === 'gguf' ? 'gguf' : 'huggingface',
    geometryOf: facts.geometryOf,
    sharesKeys: facts.sharesKeys,
    where: input,
    ...(facts.fused ? { fused: facts.fused } : {}),
    ...(only ? { only } : {}),
  });
  const job: Job = { model, facts, plan, from, output: options.dryRun ? undefined : output, options };
  if (!options.json) print(`${describePlan(job).join('\n')}\n`);
  const proofs = await untilInterrupted((signal) => run(job, signal));
  if (proofs === undefined) return EXIT.failed;
  const failed = proofs.some((proof) => !(proof.difference <= proof.bound));
  if (options.json) print(`${JSON.stringify(toJson(job, proofs, failed))}\n`);
  else print(`${describeResult(job, proofs, failed).join('\n')}\n`);
  return failed ? EXIT.failed : EXIT.ok;
}

interface Job {
  readonly model: OpenModel;
  readonly facts: ModelFacts;
  readonly plan: PermutePlan;
  readonly from: WeightPairing;
  /** undefined for a dry run. */
  readonly output: string | undefined;
  readonly options: PermuteCommandOptions;
}

function readPairing(text: string | undefined, flag: string): WeightPairing | undefined {
  if (text === undefined || text === 'half' || text === 'interleaved') return text;
  return refuse('FORMAT', `permute: ${flag}`, 'half or interleaved', text);
}

function readGiven(options: PermuteCommandOptions): GivenGeometry {
  const integer = (text: string | undefined, flag: string): number | undefined =>
    readInteger(text, `permute: ${flag}`, 1, 2 ** 16);
  const { from, config, heads, kvHeads, headDim, rotaryDim } = options;
  const numbers = {
    heads: integer(heads, '--heads'),
    kvHeads: integer(kvHeads, '--kv-heads'),
    headDim: integer(headDim, '--head-dim'),
    rotaryDim: integer(rotaryDim, '--rotary-dim'),
  };
  const known = Object.fromEntries(Object.entries(numbers).filter(([, value]) => value !== undefined));
  const pairing = readPairing(from, '--from');
  return { ...known, ...(pairing ? { from: pairing } : {}), ...(config === undefined ? {} : { config }) };
}

/** A permutation that is applied twice, or to weights that never were in the other order, ruins the model without a word. */
function chooseFrom(
  to: WeightPairing,
  said: WeightPairing | undefined,
  facts: ModelFacts,
  force: boolean,
): WeightPairing {
  const from: WeightPairing = to === 'half' ? 'interleaved' : 'half';
  if (said === to)
    refuse('FORMAT', 'permute: --from', `${from}, the other of the two`, said, 'There is nothing to permute.');
  if (facts.native === to && !force) {
    const known = `one whose weights are ${from}`;
    const next = 'If you know that the weights are not what this says, add --force.';
    refuse('FORMAT', 'permute: model', known, `${to} already`, `${facts.evidence} ${next}`);
  }
  if (facts.from === undefined) {
    const next =
      'Say with --from how the weights are laid out: half for rotate_half or NEOX, interleaved for neighbours.';
    refuse('UNSUPPORTED', 'permute: model', 'one whose pairing is known', facts.architecture, next);
  }
  return from;
}

class Interrupted extends Error {
  constructor(readonly signal: NodeJS.Signals) {
    super(`interrupted by ${signal}`);
  }
}

/** Runs work that a signal stops: it cleans up first, then the process ends as one that was stopped. */
async function untilInterrupted<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T | undefined> {
  const abort = new AbortController();
  const stop = (signal: NodeJS.Signals): void => abort.abort(new Interrupted(signal));
  const signals: NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  for (const signal of signals) process.on(signal, stop);
  const release = (): void => {
    for (const signal of signals) process.removeListener(signal, stop);
  };
  try {
    return await work(abort.signal);
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    process.stderr.write('ropewalk: permute: interrupted; nothing was written\n');
    release();
    process.kill(process.pid, error.signal);
    return undefined;
  } finally {
    release();
  }
}

/** What was written was not what was meant; carries the evidence out past the clean-up. */
class ProofFailed extends Error {
  constructor(readonly proofs: readonly LayerProof[]) {
    super('the scores are not the same');
  }
}

async function run(job: Job, signal: AbortSignal): Promise<readonly LayerProof[]> {
  const { model, plan, facts, output, options } = job;
  const all = options.check ?? false;
  const prove = async (after: readonly string[] | undefined, onLayer: () => void): Promise<LayerProof[]> =>
    proveScores(plan.moves, {
      to: plan.to,
      before: model.files,
      ...(after ? { after } : {}),
      bigEndian: model.gguf?.bigEndian ?? false,
      ropeOf: facts.ropeOf,
      all,
      signal,
      onLayer,
    });
  const layers = provableLayers(plan.moves, all).length;
  if (output === undefined) {
    const printer = openPrinter(layers, 'layers compared', options.json);
    try {
      return await prove(undefined, () => printer.step());
    } finally {
      printer.stop();
    }
  }
  const sizeBytes = model.sizes.reduce((a, b) => a + b, 0);
  const printer = openPrinter(Math.ceil(sizeBytes / MIB) + layers, 'MiB written and layers compared', options.json);
  let steps = 0;
  let bytes = 0;
  const onBytes = (count: number): void => {
    for (bytes += count; steps < Math.floor(bytes / MIB); steps++) printer.step();
  };
  const inputs = model.kind === 'folder' ? [model.path, ...model.files] : [model.path];
  const { force = false } = options;
  try {
    return await writeWhole(output, { sizeBytes, inputs, force, kind: model.kind }, async (temporary) => {
      const after = await writeFiles(model, plan, temporary, { signal, onBytes });
      const proofs = await prove(after, () => printer.step());
      if (proofs.some(({ difference, bound }) => !(difference <= bound))) throw new ProofFailed(proofs);
      signal.throwIfAborted();
      return proofs;
    });
  } catch (error) {
    if (error instanceof ProofFailed) return error.proofs;
    throw error;
  } finally {
    printer.stop();
  }
}

/** Writes each file of the model under or as a temporary name. Returns where the weights went. */
async function writeFiles(
  model: OpenModel,
  plan: PermutePlan,
  temporary: string,
  options: CopyOptions,
): Promise<string[]> {
  const after: string[] = [];
  for (const [file, from] of model.files.entries()) {
    const to = model.kind === 'folder' ? join(temporary, basename(from)) : temporary;
    await copyPermuted(
      from,
      to,
      plan.moves.filter((move) => move.file === file),
      plan.to,
      options,
    );
    after.push(to);
  }
  for (const name of model.companions) {
    options.signal?.throwIfAborted();
    const to = join(temporary, name);
    await copyFile(join(model.path, name), to).catch((cause) =>
      refuseSystem('DEVICE', to, 'to be able to write', cause),
    );
    const handle = await open(to);
    await handle.sync().catch(() => undefined);
    await handle.close();
  }
  return after;
}

function describePlan({ model, facts, plan, from, options }: Job): string[] {
  const { moves } = plan;
  const geometries = new Map<string, { text: string; layers: Set<string> }>();
  for (const { geometry: g, layerKey } of moves) {
    const gate = g.queryRows === undefined ? '' : `, ${g.queryRows} rows from one q head to the next`;
    const text = `heads ${g.numHeads}, kv heads ${g.numKvHeads}, head_dim ${g.headDim}, rotary_dim ${g.rotaryDim}${gate}`;
    const group = geometries.get(text) ?? { text, layers: new Set<string>() };
    group.layers.add(layerKey);
    geometries.set(text, group);
  }
  const lines = [`${model.path}: ${facts.architecture}, ${from} → ${plan.to}`, `  evidence      ${facts.evidence}`];
  for (const { text, layers } of geometries.values())
    lines.push(`  geometry      ${text}${geometries.size > 1 ? ` (${layers.size} layers)` : ''}`);
  const kinds = new Map<string, number>();
  for (const { name } of moves) {
    const kind = name.replace(/\d+/g, 'N');
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  lines.push(`  moves         ${moves.length} of ${model.tensors.length} tensors, whole rows:`);
  if (options.dryRun)
    for (const move of moves) lines.push(`                ${move.name}  ${move.type} [${move.shape.join(', ')}]`);
  else for (const [kind, count] of kinds) lines.push(`                ${count} × ${kind}`);
  const r = moves[0]!.geometry.rotaryDim;
  const source = [...permutedRows(r, plan.to)];
  const some =
    source.length > 16 ? `${source.slice(0, 12).join(' ')} … ${source.slice(-2).join(' ')}` : source.join(' ');
  lines.push(`  in each head  new rows 0 … ${r - 1} are old rows ${some}`);
  for (const note of [...facts.notes, ...plan.notes]) lines.push(`  note          ${note}`);
  return lines;
}

/** `3.1e-16`, `0.31` */
function short(x: number): string {
  return x >= 1e-3 && x < 1000 ? x.toPrecision(2) : x === 0 ? '0' : x.toExponential(1);
}

function describeResult(
  { model, facts, plan, from, output, options }: Job,
  proofs: readonly LayerProof[],
  failed: boolean,
): string[] {
  const lines: string[] = [];
  const [first] = proofs;
  if (first)
    lines.push(
      `  proof         scores q·k of ${first.qHeads} q and ${first.kHeads} k heads at positions ${first.positions.join(', ')}, in units of |q|·|k|, turned as ${plan.to}`,
      `                against the old weights turned as ${from}. Off by, where rounding explains ${short(first.bound)}:`,
    );
  for (const { layer, difference, bound, unmoved } of proofs) {
    const verdict =
      difference <= bound ? '' : Number.isFinite(difference) ? ', WRONG' : ' (too large to compare), WRONG';
    const doubt = unmoved > bound ? '' : ' (these cannot tell: zero, or all alike)';
    lines.push(
      `                layer ${layer}: new weights ${short(difference)}${verdict}; weights left as they were ${short(unmoved)}${doubt}`,
    );
  }
  const opaque = new Set(proofs.flatMap((proof) => proof.opaque)).size;
  if (opaque > 0)
    lines.push(
      `                ${opaque} of the tensors are not decoded here, or hold NaN or infinity: a number made from a row's bytes stands for the row`,
    );
  if (proofs.length === 0) lines.push('  proof         none: no layer has both q and k weights here');
  if (failed) return [...lines, '  Nothing was written.'];
  if (model.leftOut.length > 0 && output !== undefined) lines.push(`  not copied    ${model.leftOut.join(', ')}`);
  lines.push(output === undefined ? '  Nothing was written: a dry run.' : `  wrote         ${output}`);
  if (output !== undefined || options.dryRun) lines.push(...tell(plan.to, from, facts));
  return lines;
}

/** What the file itself cannot say, and whoever runs it must know. */
function tell(to: WeightPairing, from: WeightPairing, { runtime, architecture, native }: ModelFacts): string[] {
  const words = {
    interleaved:
      'pairs are (2j, 2j+1): ggml mode 0 (NORMAL), ONNX interleaved=1, is_neox_style=False, MLX traditional=True, GPT_J',
    half: 'pairs are (j, j + rotary_dim/2): ggml mode 2 (NEOX), ONNX interleaved=0, is_neox_style=True, MLX traditional=False, GPT_NEOX',
  };
  const lines = [
    '',
    'Tell the runtime',
    `  ${words[to]}.`,
    '  Base, scaling, rotary_dim and the order of frequencies are as before.',
  ];
  if (runtime !== undefined && native === from) {
    const file = runtime === 'llama.cpp' ? `general.architecture ${architecture}` : `model_type ${architecture}`;
    lines.push(
      `  Nothing in the file says so: ${runtime} goes by ${file}, would turn it as ${from}, and talk nonsense.`,
    );
    if (runtime === 'transformers')
      lines.push(
        '  A converter that permutes by itself (llama.cpp, for architectures that it runs as NORMAL) must not see it.',
      );
  }
  return lines;
}

function toJson({ model, facts, plan, from, output }: Job, proofs: readonly LayerProof[], failed: boolean): unknown {
  return {
    input: model.path,
    output: failed ? null : (output ?? null),
    architecture: facts.architecture,
    from,
    to: plan.to,
    evidence: facts.evidence,
    tensors: plan.moves.map(({ name, type, shape, layer, kind, rows, rowBytes, q, k, geometry }) => ({
      name,
      type,
      shape,
      layer,
      kind,
      rows,
      row_bytes: rowBytes,
      q_windows: q.length,
      k_windows: k.length,
      heads: geometry.numHeads,
      kv_heads: geometry.numKvHeads,
      head_dim: geometry.headDim,
      rotary_dim: geometry.rotaryDim,
    })),
    unchanged: model.tensors.length - plan.moves.length,
    not_copied: model.leftOut,
    notes: [...facts.notes, ...plan.notes],
    proof: proofs,
    proved: !failed && proofs.length > 0 && proofs.every(({ unmoved, bound }) => unmoved > bound),
  };
}
