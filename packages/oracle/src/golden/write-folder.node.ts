/** Writes a folder of golden cases, completely or not at all (Node only). @module */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { refuseSystem, writeWhole } from '@ropewalk/formats/internal/node';
import { RopewalkError } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  checkInteger,
  type OptionNames,
  optionNames,
  reading,
  readList,
  readName,
  readOptions,
} from 'ropewalk/internal';
import { vectorFolder } from '../folder.node.js';
import { TABLE_PRECISIONS, type TablePrecision } from '../verify/rope-model.js';
import type { ChosenCase } from './choose.js';
import {
  formatManifest,
  GOLDEN_FORMS,
  type GoldenEntry,
  type GoldenForm,
  type GoldenManifest,
  isGoldenId,
} from './manifest.js';
import { goldenOf, type OnnxLoader } from './read.js';
import { answer, writeCase } from './write.js';

/** The options of {@link writeGoldenFolder}. */
export interface WriteGoldenOptions {
  /** The forms of each case's files. */
  readonly forms: readonly GoldenForm[];
  /** The seed that the cases were chosen with, for the manifest. */
  readonly seed: number;
  /** The program that writes and its version, for the manifest: `ropewalk 0.1.0`. */
  readonly generator: string;
  /** The precision of RoPE's angles that the files' bounds allow. Default: f32; float64 for f64 data. */
  readonly table?: TablePrecision;
  /** Allows to replace a folder of golden cases. */
  readonly force?: boolean;
  /** Stops the work, and leaves nothing. */
  readonly signal?: AbortSignal;
  /** Writes the form `onnx`, which needs it. */
  readonly onnx?: OnnxLoader;
  /** Is called after each case. */
  readonly onCase?: () => void;
}

const NAMES: OptionNames<WriteGoldenOptions> = /* @__PURE__ */ optionNames(
  'forms seed generator table force signal onnx onCase',
);

/**
 * Writes golden cases into a folder.
 *
 * @param out - a folder that does not exist, or is empty, or with `force` holds golden cases
 * @param cases - the result of chooseBuiltIn and the like
 * @returns the manifest, which lists the cases, and those that a form cannot express
 * @throws {RopewalkError} FORMAT when the folder is in use, DEVICE when it cannot be written, UNSUPPORTED when no
 *   form can express a case, or for the form `onnx` without `onnx`
 */
export async function writeGoldenFolder(
  out: string,
  cases: readonly ChosenCase[],
  options: WriteGoldenOptions,
): Promise<GoldenManifest> {
  const given = readOptions(options, 'vectors: options', NAMES);
  const { onCase, seed, generator, table } = given;
  const forms = Array.from(readList(given.forms, 'vectors: forms'), (form) =>
    readName(form, GOLDEN_FORMS, 'vectors: forms'),
  );
  if (onCase !== undefined && typeof onCase !== 'function') refuse('RANGE', 'vectors: onCase', 'a function', onCase);
  checkInteger(seed, 'vectors: seed', Number.MIN_SAFE_INTEGER);
  if (table !== undefined) readName(table, TABLE_PRECISIONS, 'vectors: table');
  if (typeof generator !== 'string') refuse('RANGE', 'vectors: generator', 'a text', generator);
  const all = Array.from(readList(cases, 'vectors: cases'), (one, n) => {
    const where = `vectors: cases[${n}]`;
    if (!reading(where, () => typeof one?.make === 'function' && isGoldenId(one.id)))
      refuse('RANGE', where, 'a case of chooseBuiltIn and the like', one);
    return one;
  });
  const ours = { command: 'ropewalk vectors', wrote: isGolden };
  const what = { sizeBytes: 0, inputs: [], kind: 'folder', force: given.force, ours } as const;
  return writeWhole(out, what, (temporary) => writeAll(temporary, out, all, { ...given, forms }));
}

/** A file for pytest, which judges a rotation by the manifest. It is in the package's folder, beside src and dist. */
const ASSERT_ROPE = fileURLToPath(new URL('../../assert_rope.py', import.meta.url));

function isGolden(folder: string): boolean {
  try {
    goldenOf(vectorFolder(folder));
    return true;
  } catch (error) {
    if (error instanceof RopewalkError) return false;
    throw error;
  }
}

async function writeAll(
  folder: string,
  out: string,
  chosen: readonly ChosenCase[],
  { forms, generator, seed, table, signal, onnx, onCase }: WriteGoldenOptions,
): Promise<GoldenManifest> {
  const cases: GoldenEntry[] = [];
  const skipped: GoldenManifest['skipped'][number][] = [];
  const write = (path: string, content: string | Uint8Array): void => {
    try {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, content);
    } catch (cause) {
      refuseSystem('DEVICE', out, 'to be able to write', cause, 'Nothing was left there.');
    }
  };
  for (const one of chosen) {
    signal?.throwIfAborted();
    const written = await writeCase(answer(one.make()), forms, { generator, seed, table, onnx });
    for (const { path, bytes } of written.files) write(join(folder, path), bytes);
    skipped.push(...written.skipped);
    if (written.files.length > 0) cases.push(written.entry);
    onCase?.();
    // A signal arrives between turns of the event loop only.
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (cases.length === 0)
    fail('UNSUPPORTED', 'format', `${forms.join(', ')} cannot express any of the cases: ${skipped[0]?.reason}`);
  const manifest = { generator, seed, cases, skipped };
  write(join(folder, 'manifest.json'), formatManifest(manifest));
  if (cases.some(({ op }) => op === 'rope')) write(join(folder, 'assert_rope.py'), readFileSync(ASSERT_ROPE));
  return manifest;
}
