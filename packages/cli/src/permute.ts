/** `ropewalk permute`: converts a model's q and k weights from one pairing to the other. @module */

import { isProved, type ModelFacts } from '@ropewalk/checkpoint/internal/node';
import {
  type ModelPermutation,
  type PermutationResult,
  planModelPermutation,
  runModelPermutation,
} from '@ropewalk/checkpoint/node';
import { permutedRows, type WeightPairing } from '@ropewalk/dialects/internal/models';
import { fail } from 'ropewalk/backend';
import { untilInterrupted } from './interrupt.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar } from './output.js';

export type PermuteCommandOptions = Texts<'from' | 'config' | 'heads' | 'kvHeads' | 'headDim' | 'rotaryDim'> &
  Texts<'tensors'> &
  Switches<'dryRun' | 'check' | 'force' | 'json'> & { readonly to: string };

const PAIRINGS: readonly WeightPairing[] = ['half', 'interleaved'];

/**
 * Plans the permutation, proves it by q·k, and writes the new model.
 *
 * @param output - a file or folder that does not exist; not needed for a dry run
 * @returns failed when the scores are not the same; then nothing is written
 */
export async function permute(
  input: string,
  output: string | undefined,
  options: PermuteCommandOptions,
  print: (text: string) => void = (text) => void process.stdout.write(text),
): Promise<number> {
  const flags = new Flags(options);
  const { dryRun, force, json } = options;
  const integer = (name: 'heads' | 'kvHeads' | 'headDim' | 'rotaryDim') => flags.integer(name, 1, 2 ** 16);
  if (output === undefined && !dryRun)
    fail('FORMAT', 'OUT', 'it is missing. Name the output, or add --dry-run to see what would be done.');
  const permutation = await planModelPermutation(input, {
    to: flags.word('to', PAIRINGS)!,
    from: flags.word('from', PAIRINGS),
    config: options.config,
    heads: integer('heads'),
    kvHeads: integer('kvHeads'),
    headDim: integer('headDim'),
    rotaryDim: integer('rotaryDim'),
    only: flags.pattern('tensors'),
    force,
  });
  const out = dryRun ? undefined : output;
  if (!json) print(`${describePlan(permutation, dryRun ?? false).join('\n')}\n`);
  const bar = openPercentBar(out === undefined ? 'compared' : 'written and compared', json, process.stdout);
  const result = await untilInterrupted('permute', (signal) =>
    runModelPermutation(permutation, { output: out, all: options.check, force, signal, onProgress: bar.to }),
  ).finally(() => bar.stop());
  if (result === undefined) return EXIT.failed;
  if (json) print(`${JSON.stringify(toJson(permutation, result, out))}\n`);
  else print(`${describeResult(permutation, result, out).join('\n')}\n`);
  return result.failed ? EXIT.failed : EXIT.ok;
}

function describePlan({ model, facts, plan, from }: ModelPermutation, every: boolean): string[] {
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
  if (every)
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
  { model, facts, plan, from }: ModelPermutation,
  { proofs, failed }: PermutationResult,
  output: string | undefined,
): string[] {
  const lines: string[] = [];
  const [first] = proofs;
  if (first)
    lines.push(
      `  proof         scores q·k of ${first.qHeads} q and ${first.kHeads} k heads at positions ${first.positions.join(', ')}, in units of |q|·|k|, rotated as ${plan.to}`,
      `                against the old weights rotated as ${from}. Off by, where rounding explains ${short(first.bound)}:`,
    );
  for (const proof of proofs) {
    const { layer, difference, bound, unmoved } = proof;
    const verdict = isProved(proof) ? '' : Number.isFinite(difference) ? ', WRONG' : ' (too large to compare), WRONG';
    const doubt = unmoved > bound ? '' : ' (these cannot tell: zero, or all alike)';
    const left = `weights left as they were ${short(unmoved)}${doubt}`;
    lines.push(`                layer ${layer}: new weights ${short(difference)}${verdict}; ${left}`);
  }
  const opaque = new Set(proofs.flatMap((proof) => proof.opaque)).size;
  if (opaque > 0)
    lines.push(
      `                ${opaque} tensors are not decoded here, or hold NaN or infinity: a number made from its bytes stands for each row`,
    );
  if (proofs.length === 0) lines.push('  proof         none: no layer has both q and k weights here');
  if (failed) return [...lines, '  Nothing was written.'];
  if (model.leftOut.length > 0 && output !== undefined) lines.push(`  not copied    ${model.leftOut.join(', ')}`);
  lines.push(output === undefined ? '  Nothing was written: a dry run.' : `  wrote         ${output}`);
  return [...lines, ...tell(plan.to, from, facts)];
}

/** Notes for the user of the runtime, which the file cannot state. */
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
      `  Do not load it with ${runtime}: it reads ${file}, rotates as ${from}, and the model writes nonsense.`,
    );
    if (runtime === 'transformers')
      lines.push("  Do not convert it with llama.cpp's converter either: it expects them as transformers has them.");
  }
  return lines;
}

function toJson(
  { model, facts, plan, from }: ModelPermutation,
  { proofs, failed }: PermutationResult,
  output: string | undefined,
): unknown {
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
      rowBytes,
      qWindows: q.length,
      kWindows: k.length,
      heads: geometry.numHeads,
      kvHeads: geometry.numKvHeads,
      headDim: geometry.headDim,
      rotaryDim: geometry.rotaryDim,
    })),
    unchanged: model.tensors.length - plan.moves.length,
    notCopied: model.leftOut,
    notes: [...facts.notes, ...plan.notes],
    proof: proofs,
    proved: !failed && proofs.length > 0 && proofs.every(({ unmoved, bound }) => unmoved > bound),
  };
}
