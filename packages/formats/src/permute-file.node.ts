/**
 * Files written whole or not at all, and the permutation of rows on the way from one file to another, a few megabytes at a
 * time (Node only).
 *
 * @module
 */
import { constants } from 'node:fs';
import { access, type FileHandle, link, lstat, mkdir, open, rename, stat, statfs, unlink } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { refuse } from 'ropewalk/backend';
import { permutedRows, type TensorMove, type WeightPairing } from './permute-plan.js';
import { refuseSystem } from './read-file.node.js';
import { withTemporary } from './temporary.node.js';

/** Read and written at a time. */
const CHUNK_BYTES = 4 * 2 ** 20;

/** How a copy reports, and how it is stopped. */
export interface CopyOptions {
  /** Stops the copy; what was written is removed. */
  readonly signal?: AbortSignal;
  /** Told the bytes written since the last call. */
  readonly onBytes?: (count: number) => void;
}

/**
 * Copies a file, moving rows on the way. All other bytes stay what and where they are. Memory: some megabytes, whatever the size.
 *
 * @param from - the file to read
 * @param to - the file to write; it must not exist
 * @param moves - tensors of this file whose rows move, from planPermutation; they do not overlap
 * @param pairing - what the rows are put in
 * @param options - signal, onBytes
 * @throws {RopewalkError} FORMAT when it cannot be read or ends early; DEVICE when it cannot be written; whatever the signal's reason is
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
    // A file that grew or shrank while it was read is not the file that was planned.
    if ((await source.stat()).size !== size)
      refuse('FORMAT', from, `${size} bytes, as when it was opened`, 'another size');
    await target.sync().catch((cause) => unwritable(to, cause));
  } finally {
    await source.close();
    await target?.close();
  }
}

/** Reads one file and writes another, forward. */
class Copy {
  private at = 0;
  private readonly buffer = new Uint8Array(CHUNK_BYTES);
  private readonly scratch = new Uint8Array(CHUNK_BYTES);

  constructor(
    private readonly source: FileHandle,
    private readonly target: FileHandle,
    private readonly from: string,
    private readonly to: string,
    private readonly options: CopyOptions,
  ) {}

  /** Copies what lies before a byte. */
  async upTo(end: number): Promise<void> {
    while (this.at < end) {
      const part = this.buffer.subarray(0, Math.min(CHUNK_BYTES, end - this.at));
      await this.read(part, this.at);
      await this.write(part);
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
        await this.rowByRow(starts[n++]!, rowBytes, source);
        continue;
      }
      // As many windows as fit, with what lies between them.
      let end = n + 1;
      while (end < starts.length && starts[end]! + windowBytes - this.at <= CHUNK_BYTES) end++;
      const part = this.buffer.subarray(0, starts[end - 1]! + windowBytes - this.at);
      await this.read(part, this.at);
      for (; n < end; n++) {
        const window = part.subarray(starts[n]! - this.at, starts[n]! - this.at + windowBytes);
        const old = this.scratch.subarray(0, windowBytes);
        old.set(window);
        for (const [row, was] of source.entries())
          window.set(old.subarray(was * rowBytes, (was + 1) * rowBytes), row * rowBytes);
      }
      await this.write(part);
    }
  }

  /** A window too large for memory's sake: its rows one after the other, each in parts. */
  private async rowByRow(start: number, rowBytes: number, source: Uint32Array): Promise<void> {
    for (const was of source) {
      for (let done = 0; done < rowBytes; ) {
        const part = this.buffer.subarray(0, Math.min(CHUNK_BYTES, rowBytes - done));
        await this.read(part, start + was * rowBytes + done);
        await this.write(part);
        done += part.length;
      }
    }
  }

  private async read(part: Uint8Array, position: number): Promise<void> {
    this.options.signal?.throwIfAborted();
    for (let at = 0; at < part.length; ) {
      const { bytesRead } = await this.source
        .read(part, at, part.length - at, position + at)
        .catch((cause) => unreadable(this.from, cause));
      if (bytesRead === 0)
        refuse('FORMAT', this.from, `${part.length} bytes from ${position}`, at, 'The file was cut while it was read.');
      at += bytesRead;
    }
  }

  private async write(part: Uint8Array): Promise<void> {
    for (let at = 0; at < part.length; ) {
      const { bytesWritten } = await this.target
        .write(part, at, part.length - at, this.at + at)
        .catch((cause) => unwritable(this.to, cause));
      at += bytesWritten;
    }
    this.at += part.length;
    this.options.onBytes?.(part.length);
  }
}

/** What is to be written, and over what. */
export interface WriteOptions {
  /** Bytes that will be written, to find out beforehand whether there is room. */
  readonly sizeBytes: number;
  /** Files that are read, and must not be written over. */
  readonly inputs: readonly string[];
  /** A file of that name may be replaced; a folder never is. */
  readonly force?: boolean;
  readonly kind: 'file' | 'folder';
}

/**
 * Writes a file or a folder whole or not at all: under a temporary name in the same folder, then renamed. What a run that was killed left
 * there is removed.
 *
 * @param output - its final name
 * @param options - size, inputs, force, kind
 * @param work - writes what it is given the temporary name of (a folder is there already, a file is not); if it fails, nothing is left
 * @returns what work returned
 * @throws {RopewalkError} FORMAT when output exists or is an input; DEVICE when there is no room or it cannot be written; what work throws
 */
export async function writeWhole<T>(
  output: string,
  options: WriteOptions,
  work: (temporary: string) => Promise<T>,
): Promise<T> {
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

async function checkOutput(
  output: string,
  folder: string,
  { inputs, kind, force, sizeBytes }: WriteOptions,
): Promise<void> {
  const there = await lstat(output).catch(() => undefined);
  const same = there && (await stat(output).catch(() => undefined));
  for (const input of inputs) {
    const info = await stat(input).catch((cause) => unreadable(input, cause));
    if (same && info.ino === same.ino && info.dev === same.dev)
      refuse('FORMAT', output, 'another file than the one that is read', input, 'Write to a new name.');
    if (info.isDirectory() && `${folder}/`.startsWith(`${resolve(input)}/`))
      refuse('FORMAT', output, `a place outside ${input}`, 'one in it', 'Write to a new folder beside it.');
  }
  if (there && !(force && kind === 'file' && there.isFile())) exists(output, { kind, force });
  const info = await stat(folder).catch((cause) => unwritable(folder, cause));
  if (!info.isDirectory()) refuse('FORMAT', folder, 'a folder to write in', 'a file');
  await access(folder, constants.W_OK).catch((cause) => unwritable(folder, cause));
  const room = await statfs(folder).catch(() => undefined);
  // A file system that counts nothing says 0 blocks.
  if (room && room.blocks > 0 && room.bavail * room.bsize < sizeBytes)
    refuse(
      'DEVICE',
      output,
      `${sizeBytes} bytes of room`,
      `${room.bavail * room.bsize} bytes`,
      'Free some, or write elsewhere.',
    );
}

function exists(output: string, { kind, force }: Pick<WriteOptions, 'kind' | 'force'>): never {
  const next =
    kind === 'folder' || force ? 'Remove it first, or write to another.' : 'Give another, or --force to replace it.';
  return refuse('FORMAT', output, 'a name that is free', 'one that exists', next);
}

async function putInPlace(temporary: string, output: string, { kind, force }: WriteOptions): Promise<void> {
  if (kind === 'folder' || force) return rename(temporary, output);
  try {
    // rename would silently replace what came there in the meantime; a link does not.
    await link(temporary, output);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') throw cause;
    // Some file systems have no links.
    if (await lstat(output).catch(() => undefined)) throw Object.assign(new Error('exists'), { code: 'EEXIST' });
    return rename(temporary, output);
  }
  await unlink(temporary);
}

/** Makes the new name last: without it a power cut may lose the file although its bytes are on the disk. */
async function syncFolder(folder: string): Promise<void> {
  // Not every system lets a folder be opened; the file's own bytes are safe in any case.
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
