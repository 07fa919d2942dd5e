/** Opens a dump by its path: a file of tensors, or a folder of such files (Node only). @module */
import { lstatSync } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { type DumpFile, dumpOf, type SafetensorsFile } from '@ropewalk/formats';
import { elementsAt } from '@ropewalk/formats/internal';
import { openFile, readAt, readFileBytes, readJsonFile, refuseSystem } from '@ropewalk/formats/internal/node';
import { isFolder, readSafetensorsHeader } from '@ropewalk/formats/node';
import { DTYPES, type Dtype, type Tensor, tensorFrom, sizeBytes as unitBytes } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import type { Dump, DumpTensor, RunFacts } from '../dump.js';
import { factsOf, INDEX_FILE } from './recorded.js';

/** A file without an index is read whole, so it has a limit. safetensors are read tensor by tensor. */
const MAX_FILE_BYTES = 2 ** 30;
const MAX_FILES = 100_000;
const FILES = /\.(?:safetensors|npz|npy|pt|pth)$/i;

/**
 * Opens one side of a trace.
 *
 * @param path - a .safetensors, .npz, .npy, .pt or .pth file, or a folder of them
 * @throws {RopewalkError} FORMAT when there is no tensor that it can read
 */
export async function openDump(path: string): Promise<Dump> {
  const folder = isFolder(path);
  const files = folder ? await filesIn(path) : [path];
  const tensors: DumpTensor[] = [];
  for (const file of files) {
    const prefix = folder ? relative(path, file).replace(FILES, '').replaceAll('\\', '/') : '';
    tensors.push(...(/\.safetensors$/i.test(file) ? await safetensorsIn(file) : arraysIn(file, prefix)));
  }
  if (tensors.length === 0) fail('FORMAT', path, 'it has no tensors: a dump is .safetensors, .npz, .npy or .pt files.');
  return { label: path, tensors, notes: [], facts: folder ? readFacts(path) : undefined, close: async () => {} };
}

function readFacts(folder: string): RunFacts | undefined {
  const index = join(folder, INDEX_FILE);
  return lstatSync(index, { throwIfNoEntry: false })?.isFile() ? factsOf(readJsonFile(index), index) : undefined;
}

/** Lists the files of a folder and its folders, sorted. Links are left out: they may lead out of the folder. */
async function filesIn(folder: string): Promise<string[]> {
  const found: string[] = [];
  const look = async (at: string): Promise<void> => {
    const names = await readdir(at).catch((cause) => refuseSystem('FORMAT', at, 'a readable folder', cause));
    for (const name of names.sort()) {
      const path = join(at, name);
      const info = await lstat(path);
      if (info.isDirectory()) await look(path);
      else if (info.isFile() && FILES.test(name)) found.push(path);
      if (found.length > MAX_FILES) fail('FORMAT', folder, `it has more than ${MAX_FILES} files. Give a smaller dump.`);
    }
  };
  await look(folder);
  return found;
}

async function safetensorsIn(path: string): Promise<DumpTensor[]> {
  const header: SafetensorsFile = await readSafetensorsHeader(path);
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

function arraysIn(path: string, prefix: string): DumpTensor[] {
  const file: DumpFile = dumpOf(basename(path), readFileBytes(path, MAX_FILE_BYTES), path);
  return file.names.map((key) => {
    const { shape, dtype } = file.read(key);
    return {
      name: key || prefix || basename(path).replace(FILES, ''),
      shape,
      dtype,
      read: async () => dumpOf(basename(path), readFileBytes(path, MAX_FILE_BYTES), path).read(key),
    };
  });
}
