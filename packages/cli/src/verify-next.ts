/** The next step after a wrong rotation: a `ropewalk diagnose` command that finds out more, and its files. @module */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { writeNpy } from '@ropewalk/formats';
import { makeFolder, refuseSystem, replaceFile } from '@ropewalk/formats/internal/node';
import type { GoldenCase, VerifyResult } from '@ropewalk/oracle';
import type { GoldenEntry } from '@ropewalk/oracle/internal';
import type { Tensor } from 'ropewalk';

/** The places of cases and outputs. */
export interface CasePlaces {
  /** The folder of vectors. */
  readonly vectors: string;
  /** The folder of outputs, if there is one. */
  readonly outputs: string | undefined;
  /** The program, if there is one, as the user typed it. */
  readonly program: string | undefined;
  /** The folder of --keep. */
  readonly keep: string | undefined;
}

/** The name of the file with the expected RoPE of a kept case. */
const EXPECT = 'expect.json';

/**
 * Writes a case's outputs as .npy into `<keep>/<case>`. For RoPE it writes the expected RoPE too, and inputs that are
 * in no file that diagnose reads.
 */
export function keepCase(
  keep: string,
  golden: GoldenCase,
  entry: GoldenEntry,
  outputs: ReadonlyMap<string, Tensor>,
): void {
  const own = join(keep, golden.id);
  const write = (name: string, content: string | Uint8Array): void => replaceFile(join(own, name), content);
  const npy = (name: string, tensor: Tensor): void => write(`${name}.npy`, writeNpy(tensor.read() as never, tensor));
  try {
    makeFolder(own);
    for (const [name, tensor] of outputs) npy(name, tensor);
    if (!golden.rope) return;
    write(EXPECT, `${JSON.stringify(golden.rope.spec, null, 2)}\n`);
    for (const { name, files } of entry.inputs)
      if (!files.npy && !files.safetensors) npy(name, golden.inputs.get(name)!);
  } catch (cause) {
    refuseSystem('DEVICE', `--keep: ${own}`, 'a folder that can be written', cause);
  }
}

/**
 * Makes the command that finds out what a wrong rotation does instead or, if its files are missing, the command that
 * keeps them.
 *
 * @returns undefined for other operators, and for caches, which diagnose does not read
 */
export function nextStep(
  result: VerifyResult,
  golden: GoldenCase,
  entry: GoldenEntry,
  places: CasePlaces,
): string | undefined {
  const failed = (result.tensors.find(({ wrong }) => wrong > 0) ?? result.tensors[0])?.name;
  const { rope } = golden;
  const part = rope?.parts.find(({ out }) => out === failed);
  if (!rope || !part || part.cache !== undefined) return undefined;
  const kept = (name: string): string | undefined => places.keep && join(places.keep, golden.id, name);
  const input = (name: string): string | undefined => {
    const { npy, safetensors } = entry.inputs.find((tensor) => tensor.name === name)?.files ?? {};
    if (npy) return join(places.vectors, npy);
    return safetensors ? `${join(places.vectors, safetensors)}:${name}` : kept(`${name}.npy`);
  };
  const [x, y, positions] = [
    input(part.x),
    kept(`${part.out}.npy`) ?? givenOutput(places.outputs, golden.id, part.out),
    input('positions'),
  ];
  const weight = part.weight === undefined ? undefined : input(part.weight);
  if (!x || !y || !positions || (part.weight !== undefined && !weight)) {
    const source = places.program === undefined ? ['--outputs', places.outputs ?? ''] : ['--program', places.program];
    return `ropewalk verify ${[places.vectors, ...source, '--case', golden.id, '--keep', 'kept'].map(quoted).join(' ')}\n(and then the command that this prints)`;
  }
  const words = ['--x', x, '--y', y, '--positions', positions];
  const expect = kept(EXPECT);
  if (expect) words.push('--expect', expect);
  if (rope.layout !== 'bsnh') words.push('--layout', rope.layout);
  if (expect && rope.direction !== 'forward') words.push('--direction', rope.direction);
  if (golden.inputs.get(part.x)!.dtype === 'bf16') words.push('--dtype', 'bf16');
  if (weight) words.push('--norm-weight', weight, '--norm-eps', String(part.eps ?? 0));
  const more = expect
    ? ''
    : '\n(--expect FILE says what was meant: a config.json, a .gguf, or the expect.json that ropewalk verify --keep DIR writes)';
  return `ropewalk diagnose ${words.map(quoted).join(' ')}${more}`;
}

/** Finds an output among the user's files that diagnose can read. */
function givenOutput(outputs: string | undefined, id: string, name: string): string | undefined {
  if (outputs === undefined) return undefined;
  const npy = join(outputs, id, `${name}.npy`);
  if (existsSync(npy)) return npy;
  const archive = join(outputs, `${id}.safetensors`);
  return existsSync(archive) ? `${archive}:${name}` : undefined;
}

/** Quotes a word for a shell. */
function quoted(word: string): string {
  return /^[\w./:=,+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
