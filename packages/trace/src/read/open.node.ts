/** Opens a dump by its path: a file of tensors, a folder of such files, a state file of llama.cpp or a log of its eval callback (Node only). @module */
import { lstatSync } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { type DumpFile, dumpOf } from '@ropewalk/formats';
import { elementsAt } from '@ropewalk/formats/internal';
import { openFile, readAt, readFileBytes, readJsonFile, refuseSystem } from '@ropewalk/formats/internal/node';
import { isFolder, readSafetensorsHeader } from '@ropewalk/formats/node';
import { DTYPES, type Dtype, RopewalkError, type Tensor, tensorFrom, sizeBytes as unitBytes } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import type { Dump, DumpTensor, RunFacts } from '../dump.js';
import { isEvalCallback, readEvalCallback } from './eval-callback.js';
import { type NamedFile, readFileName } from './file-names.js';
import { isLlamaState } from './llama-state.js';
import { factsOf, INDEX_FILE } from './recorded.js';
import { openStateDump } from './state.node.js';

/** A file without an index is read whole, so it has a limit. safetensors are read tensor by tensor. */
const MAX_FILE_BYTES = 2 ** 30;
/** Files of successive passes, whose tensors are read in turn, are kept up to this much. */
const MAX_KEPT_BYTES = 2 ** 28;
/** JavaScript's texts end at 2^29 characters. */
const MAX_TEXT_BYTES = 2 ** 28;
const MAX_FILES = 100_000;
const FILES = /\.(?:safetensors|npz|npy|pt|pth)$/i;

/**
 * Opens one side of a trace.
 *
 * @param path - a .safetensors, .npz, .npy, .pt or .pth file, or a folder of them, such as those of our hooks, of SGLang's
 *   dumper and of msProbe; a state file of llama.cpp, or the text of its llama-eval-callback
 * @throws {RopewalkError} FORMAT when there is no tensor that it can read
 */
export async function openDump(path: string): Promise<Dump> {
  if (isFolder(path)) return openFolder(path);
  if (FILES.test(path)) {
    const [notes, last] = [[] as string[], new LastFiles()];
    const tensors = await tensorsIn(path, { rest: basename(path).replace(FILES, '') }, notes, last);
    if (tensors.length === 0) fail('FORMAT', path, notes[0] ?? 'it has no tensors.');
    return { label: path, tensors, notes, close: async () => last.drop() };
  }
  const { file, size } = await openFile(path);
  const start = await readAt(file, 0, Math.min(size, 4), path).finally(() => file.close());
  if (isLlamaState(start)) return openStateDump(path);
  const text = Buffer.from(readFileBytes(path, MAX_TEXT_BYTES)).toString('latin1');
  if (isEvalCallback(text)) return readEvalCallback(text, path);
  const next = 'A dump is .safetensors, .npz, .npy or .pt, a state file or the text of llama-eval-callback.';
  return fail('FORMAT', path, `it is no dump that can be read. ${next}`);
}

async function openFolder(folder: string): Promise<Dump> {
  const found: { tensor: DumpTensor; own: string; named: NamedFile }[] = [];
  const notes: string[] = [];
  const last = new LastFiles();
  const faults: unknown[] = [];
  let leftOut = 0;
  const files = await filesIn(folder);
  for (const file of files) {
    const own = relative(folder, file).replace(FILES, '').replaceAll('\\', '/');
    const named = readFileName(own);
    if (!named) leftOut++;
    else
      try {
        for (const tensor of await tensorsIn(file, named, notes, last)) found.push({ tensor, own, named });
      } catch (error) {
        if (!(error instanceof RopewalkError)) throw error;
        faults.push(error);
      }
  }
  if (found.length === 0 && faults.length > 0) throw faults[0];
  if (found.length === 0) fail('FORMAT', folder, 'it has no tensors: a dump is .safetensors, .npz, .npy or .pt files.');
  if (leftOut > 0) notes.push(`${leftOut} files of gradients or parameters were left out.`);
  if (faults.length > 0)
    notes.push(`${faults.length} of ${files.length} files cannot be read, such as ${(faults[0] as Error).message}`);
  found.sort((a, b) => at(a.tensor.step) - at(b.tensor.step) || at(a.named.order) - at(b.named.order));
  return { label: folder, tensors: apart(found), notes, facts: readFacts(folder), close: async () => last.drop() };
}

const at = (place: number | undefined): number => place ?? 0;

/** Puts the path of its file before a tensor's name where several files have that name, such as `layers.0.npz`: q. */
function apart(found: readonly { tensor: DumpTensor; own: string; named: NamedFile }[]): DumpTensor[] {
  const files = new Map<string, string>();
  const clashes = new Set<string>();
  const key = ({ name, step, rank }: DumpTensor): string => `${step} ${rank} ${name}`;
  for (const { tensor, own } of found)
    if ((files.get(key(tensor)) ?? own) !== own) clashes.add(key(tensor));
    else files.set(key(tensor), own);
  return found.map(({ tensor, named }) =>
    named.name === undefined && clashes.has(key(tensor)) ? { ...tensor, name: `${named.rest}.${tensor.name}` } : tensor,
  );
}

function readFacts(folder: string): RunFacts | undefined {
  const index = join(folder, INDEX_FILE);
  return lstatSync(index, { throwIfNoEntry: false })?.isFile() ? factsOf(readJsonFile(index), index) : undefined;
}

/** Lists the files of a folder and its folders, sorted. Links are left out: they may lead out of the folder. */
async function filesIn(folder: string): Promise<string[]> {
  const found: string[] = [];
  const look = async (inside: string): Promise<void> => {
    const names = await readdir(inside).catch((cause) => refuseSystem('FORMAT', inside, 'a readable folder', cause));
    for (const name of names.sort()) {
      const path = join(inside, name);
      const info = await lstat(path);
      if (info.isDirectory()) await look(path);
      else if (info.isFile() && FILES.test(name)) found.push(path);
      if (found.length > MAX_FILES) fail('FORMAT', folder, `it has more than ${MAX_FILES} files. Give a smaller dump.`);
    }
  };
  await look(folder);
  return found;
}

/** Lists the tensors of a file. Those that it cannot read become notes. */
async function tensorsIn(path: string, named: NamedFile, notes: string[], last: LastFiles): Promise<DumpTensor[]> {
  const { step, rank, rest } = named;
  const place = { ...(step === undefined ? {} : { step }), ...(rank === undefined ? {} : { rank }) };
  if (/\.safetensors$/i.test(path)) return (await safetensorsIn(path)).map((tensor) => ({ ...tensor, ...place }));
  const entries = entriesOf(last.at(path));
  return entries.flatMap(({ key, error, ...sizes }) => {
    const inFile = key === 'value' && named.name !== undefined ? '' : key;
    const name = named.name === undefined ? inFile || rest : [named.name, ...(inFile ? [inFile] : [])].join('.');
    if (!error) return [{ name, ...sizes, ...place, read: async () => last.at(path).read(key) }];
    if (entries.length === 1) throw error;
    notes.push(`${name} cannot be read: ${error.message}`);
    return [];
  });
}

/** Lists what a file has, apart from the tensors that are read later: what holds one would hold the whole file. */
function entriesOf(file: DumpFile) {
  return file.names.map((key) => {
    try {
      const { shape, dtype } = file.read(key);
      return { key, shape, dtype: dtype as string };
    } catch (error) {
      if (!(error instanceof RopewalkError)) throw error;
      return { key, shape: [], dtype: '', error };
    }
  });
}

/** The files that were read last: the tensors of an .npz or .pt are read in turn, and each needs its file whole. */
class LastFiles {
  readonly #files = new Map<string, { readonly dump: DumpFile; readonly bytes: number }>();

  at(path: string): DumpFile {
    const found = this.#files.get(path);
    if (found) return found.dump;
    const content = readFileBytes(path, MAX_FILE_BYTES);
    let room = MAX_KEPT_BYTES - content.length;
    for (const { bytes } of this.#files.values()) room -= bytes;
    for (const [oldest, { bytes }] of this.#files) {
      if (room >= 0) break;
      this.#files.delete(oldest);
      room += bytes;
    }
    const dump = dumpOf(basename(path), content, path);
    this.#files.set(path, { dump, bytes: content.length });
    return dump;
  }

  drop(): void {
    this.#files.clear();
  }
}

async function safetensorsIn(path: string): Promise<DumpTensor[]> {
  const header = await readSafetensorsHeader(path);
  return [...header.tensors].map(([name, { type, shape, byteOffset, sizeBytes }]) => {
    const dtype = type.toLowerCase() as Dtype;
    return {
      name,
      shape,
      dtype,
      async read(): Promise<Tensor> {
        if (!DTYPES.includes(dtype)) fail('UNSUPPORTED', `${path}: ${name}`, `its type ${type} cannot be read.`);
        const { file } = await openFile(path);
        try {
          const bytes = await readAt(file, byteOffset, sizeBytes, path);
          return tensorFrom(elementsAt(bytes, 0, dtype, bytes.length / unitBytes(dtype)), { dtype, shape });
        } finally {
          await file.close();
        }
      },
    };
  });
}
