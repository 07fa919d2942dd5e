/**
 * A cache on disk for weights in the form that ONNX Runtime maps into memory. The key of an entry is a digest of the
 * model's bytes and of the constants of its graph. For Node only.
 *
 * The files of an entry appear together under their name, or not at all, so two processes may build it at once.
 *
 * @module
 */
import { createHash } from 'node:crypto';
import type { Stats } from 'node:fs';
import { readdir, readFile, rm, stat, utimes } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { ByteSource } from '@ropewalk/formats';
import { makeFolder, openFile, readAt, refuseSystem, replaceFile, writeWhole } from '@ropewalk/formats/internal/node';
import type { LoadingOptions, PlannedModel } from '@ropewalk/model/internal';
import { RopewalkError } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { bytesOf, type HeldWeights } from './engine.js';
import { writeFiles } from './folder.node.js';
import type { WeightConstant } from './scope.js';
import { type WeightLayout, writeWeights } from './weights.js';

/** The version of the files' contents. Raise it when writeWeights makes other bytes of the same weights. */
const VERSION = 1;
/** The number of bytes that are read at a time for a digest. */
const PIECE_BYTES = 8 * 2 ** 20;
/** The file of an entry that holds {@link About}. Its mtime is the time of the last use. */
const ABOUT = 'about.json';
const [ENTRIES, DIGESTS] = ['onnx', 'digests'];
/** The next step if a cache cannot be written. */
const ANOTHER = 'Give another cache: --cache FOLDER, ROPEWALK_CACHE, or the option cache of openOnnxEngine.';

interface About {
  readonly model: string;
  /** The digest of each data file, and the file's version at that time. */
  readonly files: Readonly<Record<string, { readonly digest: string; readonly version: string }>>;
}

/** A new entry. */
export interface BuiltCache {
  readonly folder: string;
  readonly sizeBytes: number;
  readonly seconds: number;
}

/** One entry of a cache. */
export interface CacheEntry {
  readonly folder: string;
  /** The path of the model; undefined for an entry that is not complete. */
  readonly model: string | undefined;
  readonly sizeBytes: number;
  readonly usedAt: Date;
}

/**
 * Returns the cache folder: `ROPEWALK_CACHE`, or `ropewalk` in the system's folder for caches.
 *
 * @see https://specifications.freedesktop.org/basedir-spec/latest/
 */
export function cacheFolder(): string {
  const { env, platform } = process;
  if (env.ROPEWALK_CACHE) return env.ROPEWALK_CACHE;
  if (env.XDG_CACHE_HOME) return join(env.XDG_CACHE_HOME, 'ropewalk');
  if (platform === 'win32') return join(env.LOCALAPPDATA ?? join(homedir(), 'AppData', 'Local'), 'ropewalk', 'Cache');
  return join(homedir(), ...(platform === 'darwin' ? ['Library', 'Caches'] : ['.cache']), 'ropewalk');
}

/**
 * Finds a model's weights in the cache, or adds them to it.
 *
 * @param root - the cache folder, which is made if it is missing
 * @param onBuilt - called when they were not in the cache
 * @throws {RopewalkError} DEVICE if the folder cannot be written, or has no room; then no file remains
 */
export async function holdInCache(
  root: string,
  [description, constants, layout]: readonly [PlannedModel, readonly WeightConstant[], WeightLayout],
  options: LoadingOptions,
  onBuilt: ((built: BuiltCache) => void) | undefined,
): Promise<HeldWeights> {
  const started = performance.now();
  try {
    makeFolder(join(root, ENTRIES));
    makeFolder(join(root, DIGESTS));
  } catch (cause) {
    refuseSystem('DEVICE', `cache: ${root}`, 'to be able to write', cause, ANOTHER);
  }
  const notes = new Map<string, string>();
  const folder = join(root, ENTRIES, await keyOf(root, description, constants, notes, options.signal));
  if (!(await isWhole(folder, layout, options.signal))) {
    const sizeBytes = bytesOf(layout);
    await rm(folder, { recursive: true, force: true }); // a folder that is there is damaged
    try {
      await writeWhole(folder, { sizeBytes, inputs: [], kind: 'folder' }, (temporary) =>
        write(temporary, [description, constants, layout], options),
      );
      onBuilt?.({ folder, sizeBytes, seconds: (performance.now() - started) / 1000 });
    } catch (error) {
      options.signal?.throwIfAborted();
      // Perhaps another process was faster.
      if (!(await isWhole(folder, layout, options.signal))) {
        if (!(error instanceof RopewalkError && error.code === 'DEVICE')) throw error;
        throw new RopewalkError('DEVICE', `${error.message.replace(/\.?$/, '.')} ${ANOTHER}`, { cause: error });
      }
    }
  }
  for (const [path, digest] of notes) noteQuietly(path, digest); // only now, because a failure above must leave no file
  const now = new Date();
  await utimes(join(folder, ABOUT), now, now).catch(() => {}); // a cache that cannot be written is still read
  return { extra: { session: { model_external_initializers_file_folder_path: folder } } };
}

/**
 * Lists the entries of a cache, the last used first.
 *
 * @param root - the cache folder; a missing folder is an empty cache
 */
export async function listCache(root: string): Promise<CacheEntry[]> {
  checkRoot(root);
  const names = await readdir(join(root, ENTRIES)).catch(() => []);
  const entries = await Promise.all(names.map((name) => entryAt(join(root, ENTRIES, name))));
  return entries.flatMap((entry) => entry ?? []).sort((a, b) => b.usedAt.getTime() - a.usedAt.getTime());
}

/** Removes a cache, and nothing else in its folder. @throws {RopewalkError} DEVICE when it cannot be written */
export async function removeCache(root: string): Promise<void> {
  checkRoot(root);
  for (const name of [ENTRIES, DIGESTS])
    await rm(join(root, name), { recursive: true, force: true }).catch((cause) =>
      refuseSystem('DEVICE', `cache: ${root}`, 'to be able to write', cause),
    );
}

async function entryAt(folder: string): Promise<CacheEntry | undefined> {
  const info = await stat(folder).catch(() => undefined);
  if (!info?.isDirectory()) return undefined;
  const names = await readdir(folder).catch((): string[] => []);
  const files = await Promise.all(names.map((name) => stat(join(folder, name)).catch(() => undefined)));
  const sizeBytes = files.reduce((sum, file) => sum + (file?.size ?? 0), 0);
  const isBuilt = names.includes(ABOUT) && !folder.endsWith('.tmp');
  const model: unknown = isBuilt ? (await readAbout(folder))?.model : undefined;
  const usedAt = files[names.indexOf(ABOUT)]?.mtime ?? info.mtime;
  return { folder, model: typeof model === 'string' ? model : undefined, sizeBytes, usedAt };
}

/** True if an entry has the bytes that were written. Only files that have changed are read again. */
async function isWhole(folder: string, layout: WeightLayout, signal: AbortSignal | undefined): Promise<boolean> {
  const about = await readAbout(folder);
  const now: Record<string, About['files'][string]> = {};
  let changed = false;
  for (const { name, sizeBytes } of layout.files) {
    const path = join(folder, name);
    const known = about?.files?.[name];
    const info = await stat(path).catch(() => undefined);
    if (!known || info?.size !== sizeBytes) return false;
    const version = versionOf(info);
    // A file that cannot be read is written again.
    const digest = version === known.version ? known.digest : await digestOfFile(path, signal).catch(() => '');
    signal?.throwIfAborted();
    if (digest !== known.digest) return false;
    changed ||= version !== known.version;
    now[name] = { digest: known.digest, version };
  }
  if (changed) noteQuietly(join(folder, ABOUT), JSON.stringify({ ...about, files: now }));
  return about !== undefined;
}

/** Returns undefined if there is no such file, or it cannot be read. */
function readAbout(folder: string): Promise<Partial<About> | undefined> {
  return readFile(join(folder, ABOUT), 'utf8')
    .then((text) => JSON.parse(text) ?? undefined)
    .catch(() => undefined);
}

/** No program can set ctime. A file that was written to has another one, even if size and mtime are the old ones. */
function versionOf({ ino, size, mtimeMs, ctimeMs }: Stats): string {
  return [ino, size, mtimeMs, ctimeMs].join(' ');
}

async function digestOfFile(path: string, signal: AbortSignal | undefined): Promise<string> {
  const { file, size } = await openFile(path);
  try {
    return await hashed({ size, read: (start, length) => readAt(file, start, length, path) }, signal);
  } finally {
    await file.close();
  }
}

async function write(
  folder: string,
  [description, constants, layout]: readonly [PlannedModel, readonly WeightConstant[], WeightLayout],
  options: LoadingOptions,
): Promise<void> {
  const unwritable = (cause: unknown): never =>
    refuseSystem('DEVICE', `cache: ${folder}`, 'to be able to write', cause);
  await writeFiles(folder, (put) => writeWeights(description, constants, layout, put, options), unwritable);
  const about: Record<string, About['files'][string]> = {};
  for (const { name } of layout.files) {
    const path = join(folder, name);
    about[name] = { digest: await digestOfFile(path, options.signal), version: versionOf(await stat(path)) };
  }
  try {
    replaceFile(join(folder, ABOUT), `${JSON.stringify({ model: description.where, files: about } satisfies About)}\n`);
  } catch (cause) {
    unwritable(cause);
  }
}

/** Returns the key of a model's entry, which depends on everything that its bytes depend on. */
async function keyOf(
  root: string,
  description: PlannedModel,
  constants: readonly WeightConstant[],
  notes: Map<string, string>,
  signal: AbortSignal | undefined,
): Promise<string> {
  const digests = new Map<string, string>();
  for (const { weights } of constants)
    for (const { spans } of weights)
      for (const { file } of spans)
        if (!digests.has(file)) {
          const source = description.files.get(file)!;
          digests.set(file, await digestOf(root, source, notes, signal));
        }
  // The bytes of a file count, and not its name.
  const content = JSON.stringify([VERSION, constants], (key, value) => (key === 'file' ? digests.get(value) : value));
  return sha256(content).slice(0, 32);
}

/** Returns the digest of a file, from a note if the file's version is the same. A new note is added to `notes`. */
async function digestOf(
  root: string,
  source: ByteSource,
  notes: Map<string, string>,
  signal: AbortSignal | undefined,
): Promise<string> {
  const note = source.version === undefined ? undefined : join(root, DIGESTS, sha256(source.version).slice(0, 32));
  const known = note && (await readFile(note, 'utf8').catch(() => ''));
  if (known && /^[0-9a-f]{64}$/.test(known)) return known;
  const digest = await hashed(source, signal);
  if (note) notes.set(note, digest);
  return digest;
}

async function hashed(source: Pick<ByteSource, 'size' | 'read'>, signal: AbortSignal | undefined): Promise<string> {
  const hash = createHash('sha256');
  for (let at = 0; at < source.size; at += PIECE_BYTES) {
    signal?.throwIfAborted();
    hash.update(await source.read(at, Math.min(PIECE_BYTES, source.size - at)));
  }
  return hash.digest('hex');
}

/** Writes a note. If it cannot be written, its contents are computed again next time. */
function noteQuietly(path: string, text: string): void {
  try {
    replaceFile(path, text);
  } catch {
    // The note is only missing then.
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function checkRoot(root: string): void {
  if (typeof root !== 'string' || root === '' || root.includes('\0')) refuse('RANGE', 'cache: folder', 'a path', root);
}
