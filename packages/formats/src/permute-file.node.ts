/**
 * Writes files whole or not at all, and permutes rows while copying a file, a few megabytes at a time (Node only).
 *
 * @module
 */
import { constants } from 'node:fs';
import { access, type FileHandle, link, lstat, mkdir, open, rename, stat, statfs, unlink } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { fail, readList, readName, readOptions, refuse } from 'ropewalk/backend';
import { permutedRows, type TensorMove, type WeightPairing } from './permute-plan.js';
import { checkPath, refuseSystem } from './read-file.node.js';
import { withTemporary } from './temporary.node.js';

/** Read and written at a time. */
const CHUNK_BYTES = 4 * 2 ** 20;

/** How a copy reports, and how it is stopped. */
export interface CopyOptions {
  /** Stops the copy; what was written is removed. */
  readonly signal?: AbortSignal;
  /** Called with the number of bytes written since the last call. */
  readonly onBytes?: (count: number) => void;
}

/**
 * Copies a file to a new one and permutes rows of it; all other bytes stay as they are. `moves` are the tensors of this
 * file whose rows move; they do not overlap.
 */
export async function copyPermuted(
  from: string,
  to: string,
  moves: readonly TensorMove[],
  pairing: WeightPairing,
  options: CopyOptions = {},
): Promise<void> {
  const source = await open(from).catch((cause) => unreadable(from, cause));
  let target: FileHandle | undefined;
  try {
    const { size } = await source.stat();
    target = await open(to, 'wx').catch((cause) => unwritable(to, cause));
    const copy = new Copy(source, target, from, to, options);
    for (const move of [...moves].sort((a, b) => a.byteOffset - b.byteOffset)) {
      await copy.upTo(move.byteOffset);
      await copy.permuted(move, pairing);
    }
    await copy.upTo(size);
    // A file that grew or shrank is not the one that was planned.
    if ((await source.stat()).size !== size)
      fail('FORMAT', from, `its size has changed since it was opened: it was ${size} bytes`);
    await target.sync().catch((cause) => unwritable(to, cause));
  } finally {
    await source.close();
    await target?.close();
  }
}

/** Reads one file and writes another, forward. */
class Copy {
  #at = 0;
  readonly #buffer = new Uint8Array(CHUNK_BYTES);
  readonly #scratch = new Uint8Array(CHUNK_BYTES);

  constructor(
    private readonly source: FileHandle,
    private readonly target: FileHandle,
    private readonly from: string,
    private readonly to: string,
    private readonly options: CopyOptions,
  ) {}

  /** Copies everything before a byte. */
  async upTo(end: number): Promise<void> {
    while (this.#at < end) {
      const part = this.#buffer.subarray(0, Math.min(CHUNK_BYTES, end - this.#at));
      await this.#read(part, this.#at);
      await this.#write(part);
    }
  }

  async permuted(move: TensorMove, pairing: WeightPairing): Promise<void> {
    const { byteOffset, rowBytes, geometry } = move;
    const source = permutedRows(geometry.rotaryDim, pairing);
    const windowBytes = geometry.rotaryDim * rowBytes;
    const starts = [...move.q, ...move.k].sort((a, b) => a - b).map((row) => byteOffset + row * rowBytes);
    for (let n = 0; n < starts.length; ) {
      await this.upTo(starts[n]!);
      if (windowBytes > CHUNK_BYTES) {
        await this.#rowByRow(starts[n++]!, rowBytes, source);
        continue;
      }
      // As many windows as fit, with the bytes between them.
      let end = n + 1;
      while (end < starts.length && starts[end]! + windowBytes - this.#at <= CHUNK_BYTES) end++;
      const part = this.#buffer.subarray(0, starts[end - 1]! + windowBytes - this.#at);
      await this.#read(part, this.#at);
      for (; n < end; n++) {
        const window = part.subarray(starts[n]! - this.#at, starts[n]! - this.#at + windowBytes);
        const old = this.#scratch.subarray(0, windowBytes);
        old.set(window);
        for (const [row, was] of source.entries())
          window.set(old.subarray(was * rowBytes, (was + 1) * rowBytes), row * rowBytes);
      }
      await this.#write(part);
    }
  }

  /** For windows larger than the buffer: one row after the other, in parts. */
  async #rowByRow(start: number, rowBytes: number, source: Uint32Array): Promise<void> {
    for (const was of source) {
      for (let done = 0; done < rowBytes; ) {
        const part = this.#buffer.subarray(0, Math.min(CHUNK_BYTES, rowBytes - done));
        await this.#read(part, start + was * rowBytes + done);
        await this.#write(part);
        done += part.length;
      }
    }
  }

  async #read(part: Uint8Array, position: number): Promise<void> {
    this.options.signal?.throwIfAborted();
    for (let at = 0; at < part.length; ) {
      const { bytesRead } = await this.source
        .read(part, at, part.length - at, position + at)
        .catch((cause) => unreadable(this.from, cause));
      const expected = `${part.length} bytes from ${position}`;
      if (bytesRead === 0) refuse('FORMAT', this.from, expected, at, 'The file was cut while it was read.');
      at += bytesRead;
    }
  }

  async #write(part: Uint8Array): Promise<void> {
    for (let at = 0; at < part.length; ) {
      const { bytesWritten } = await this.target
        .write(part, at, part.length - at, this.#at + at)
        .catch((cause) => unwritable(this.to, cause));
      at += bytesWritten;
    }
    this.#at += part.length;
    this.options.onBytes?.(part.length);
  }
}

/** Options of {@link writeWhole}. */
export interface WriteOptions {
  /** Bytes that will be written, to check the free space first. */
  readonly sizeBytes: number;
  /** Files that are read, and must not be overwritten. */
  readonly inputs: readonly string[];
  /** An existing file may be replaced; a folder never is. */
  readonly force?: boolean;
  readonly kind: 'file' | 'folder';
}

/**
 * Writes a file or a folder whole or not at all: under a temporary name in the same folder, which is then renamed.
 *
 * @param output - the final name
 * @param given - size, inputs, force, kind
 * @param work - writes under the temporary name it is given (a folder exists already, a file does not)
 * @returns what work returned
 * @throws {RopewalkError} FORMAT when output exists or is an input; DEVICE when it cannot be written; what work throws
 */
export async function writeWhole<T>(
  output: string,
  given: WriteOptions,
  work: (temporary: string) => Promise<T>,
): Promise<T> {
  checkPath(output);
  const options = { ...readOptions(given, output), inputs: Array.from(readList(given.inputs, `${output}: inputs`)) };
  for (const input of options.inputs) checkPath(input);
  readName(options.kind, ['file', 'folder'], `${output}: kind`);
  if (typeof work !== 'function') refuse('RANGE', `${output}: work`, 'a function', work);
  const folder = dirname(resolve(output));
  return withTemporary(output, async (temporary) => {
    await checkOutput(output, folder, options);
    if (options.kind === 'folder') await mkdir(temporary).catch((cause) => unwritable(output, cause));
    const result = await work(temporary);
    await putInPlace(temporary, output, options).catch((cause) => {
      if ((cause as NodeJS.ErrnoException).code === 'EEXIST') exists(output, options);
      unwritable(output, cause);
    });
    await syncFolder(folder);
    return result;
  });
}

async function checkOutput(output: string, folder: string, options: WriteOptions): Promise<void> {
  const { inputs, kind, force, sizeBytes } = options;
  const there = await lstat(output).catch(() => undefined);
  const same = there && (await stat(output).catch(() => undefined));
  for (const input of inputs) {
    const info = await stat(input).catch((cause) => unreadable(input, cause));
    if (same && info.ino === same.ino && info.dev === same.dev)
      fail('FORMAT', output, 'it is the file that is read. Write to a new name.');
    if (info.isDirectory() && `${folder}/`.startsWith(`${resolve(input)}/`))
      fail('FORMAT', output, `it lies inside the input, ${input}. Write to a new folder beside it.`);
  }
  if (there && !(force && kind === 'file' && there.isFile())) exists(output, options);
  const info = await stat(folder).catch((cause) => unwritable(folder, cause));
  if (!info.isDirectory()) fail('FORMAT', folder, 'it is a file, not a folder to write in');
  await access(folder, constants.W_OK).catch((cause) => unwritable(folder, cause));
  await checkRoom(output, sizeBytes);
}

/**
 * Refuses an output that does not fit on its disk.
 *
 * @param output - need not exist
 * @param sizeBytes - what it takes
 * @throws {RopewalkError} DEVICE
 */
export async function checkRoom(output: string, sizeBytes: number): Promise<void> {
  checkPath(output);
  if (typeof sizeBytes !== 'number' || !(sizeBytes >= 0))
    refuse('RANGE', `${output}: sizeBytes`, 'a number >= 0', sizeBytes);
  const room = await statfs(dirname(resolve(output))).catch(() => undefined);
  // Some file systems report 0 blocks.
  const free = room && room.blocks > 0 ? room.bavail * room.bsize : Infinity;
  const sizes = `the output takes ${sizeBytes} bytes, and ${free} bytes are free`;
  if (free < sizeBytes) fail('DEVICE', output, `${sizes}. Free some, or write elsewhere.`);
}

function exists(output: string, { kind, force }: Pick<WriteOptions, 'kind' | 'force'>): never {
  const next =
    kind === 'folder' || force ? 'Remove it first, or write to another.' : 'Give another, or --force to replace it.';
  return fail('FORMAT', output, `it already exists. ${next}`);
}

async function putInPlace(temporary: string, output: string, { kind, force }: WriteOptions): Promise<void> {
  if (kind === 'folder' || force) return rename(temporary, output);
  try {
    // Unlike rename, link does not replace a file that appeared in the meantime.
    await link(temporary, output);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') throw cause;
    // Some file systems have no links.
    if (await lstat(output).catch(() => undefined)) throw Object.assign(new Error('exists'), { code: 'EEXIST' });
    return rename(temporary, output);
  }
  await unlink(temporary);
}

/** Without this, a power cut may lose the new name although the bytes are on the disk. */
async function syncFolder(folder: string): Promise<void> {
  // Not every system can open a folder.
  const handle = await open(folder).catch(() => undefined);
  await handle?.sync().catch(() => undefined);
  await handle?.close();
}

function unreadable(path: string, cause: unknown): never {
  return refuseSystem('FORMAT', path, 'a readable file', cause);
}

function unwritable(path: string, cause: unknown): never {
  return refuseSystem('DEVICE', path, 'to be able to write', cause);
}
