/**
 * Permutes rows while copying a file, a few megabytes at a time (Node only).
 *
 * @module
 */
import { type FileHandle, open } from 'node:fs/promises';
import { permutedRows, type WeightPairing } from '@ropewalk/dialects/internal/models';
import { unreadable, unwritable } from '@ropewalk/formats/internal/node';
import { fail, refuse } from 'ropewalk/backend';
import type { TensorMove } from './plan.js';

/** The bytes that are read and written at a time. */
const CHUNK_BYTES = 4 * 2 ** 20;

/** Options of a copy. */
export interface CopyOptions {
  /** Stops the copy and removes what was written. */
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

/** Reads one file and writes another, both from the start to the end. */
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
      // The buffer takes as many windows as fit, with the bytes between them.
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

  /** Moves a window that is larger than the buffer, one row after the other and in parts. */
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
