/** Writes golden cases as files, in every form. Nothing here touches a file system. @module */
import { writeNpy, writeNpz, writeSafetensors } from '@ropewalk/formats';
import { type FloatDtype, isFloat, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { hostTensor } from '../host.js';
import { type ExpectedOutput, OVERFLOW } from '../judge.js';
import { expectationsOf } from '../verify/model.js';
import { defaultTable, type TablePrecision } from '../verify/rope-model.js';
import { exactWithBounds, roundUp, storedSlack, toleranceOf } from './bounds.js';
import { writeHeader } from './c-header.js';
import { bindGolden, floats, type GoldenCase, type GoldenQuestion } from './case.js';
import type { GoldenEntry, GoldenForm, GoldenManifest, GoldenTensor } from './manifest.js';
import { elementBytes, loadOnnx, type OnnxLoader, sha256 } from './read.js';

/** The most integers of a tensor that a manifest shows: positions, rows, indices. */
const SHOWN_VALUES = 64;

/** Computes the outputs of a case in float64, rounds them once, and states the tolerance. */
export function answer(question: GoldenQuestion): GoldenCase {
  const exact = exactWithBounds(question);
  const outputs = new Map([...exact].map(([name, output]): [string, Tensor] => [name, rounded(output)]));
  return { ...question, outputs, tolerance: toleranceOf(question, exact) };
}

/** Rounds an exact output once to its dtype. Copied elements stay as they are. */
function rounded({ dtype, shape, values, bounds }: ExpectedOutput): Tensor {
  if (!bounds) return tensorFrom(values, { dtype, shape });
  return hostTensor(dtype as FloatDtype, shape, (n) => values[n] as number);
}

/** The parameters of a folder that its cases' files depend on. */
interface WriteCaseOptions {
  /** The program that writes, and its version. */
  readonly generator: string;
  readonly seed: number;
  /** The precision of RoPE's angles that the bounds allow. Default: what verify allows. */
  readonly table?: TablePrecision;
  readonly onnx?: OnnxLoader;
}

/** Writes a case. Returns its files, and its entry of the manifest, which is left out where there is no file. */
export async function writeCase(c: GoldenCase, forms: readonly GoldenForm[], options: WriteCaseOptions) {
  const files: { path: string; bytes: Uint8Array }[] = [];
  const skipped: GoldenManifest['skipped'][number][] = [];
  const table = options.table ?? defaultTable(c);
  const bounds = boundsOf(c, table);
  const hashes = new Map<string, string>();
  for (const [name, tensor] of [...c.inputs, ...c.outputs, ...bounds])
    hashes.set(name, await sha256(elementBytes(tensor)));
  /** The file of each tensor, by form. */
  const places = new Map<string, Partial<Record<GoldenForm, string>>>([...hashes.keys()].map((name) => [name, {}]));
  for (const form of forms) {
    const written = await writeForm(c, form, bounds, hashes, { ...options, table });
    if (typeof written === 'string') skipped.push({ id: c.id, form, reason: written });
    else
      for (const { path, bytes, tensors } of written) {
        files.push({ path, bytes });
        for (const name of tensors) places.get(name)![form] = path;
      }
  }
  const describe = (tensors: ReadonlyMap<string, Tensor>): GoldenTensor[] =>
    [...tensors].map(([name, tensor]) => {
      const [sha256, files] = [hashes.get(name)!, places.get(name)!];
      const ofBounds = places.get(boundName(name)) ?? {};
      const bounds = Object.keys(ofBounds).length > 0 ? { table: c.rope && table, files: ofBounds } : undefined;
      return { name, dtype: tensor.dtype, shape: tensor.shape, sha256, files, bounds, values: shown(tensor) };
    });
  const { id, op, about, separates, attributes, tolerance, rope, call } = c;
  const [inputs, outputs] = [describe(c.inputs), describe(c.outputs)];
  const entry: GoldenEntry = { id, op, about, separates, attributes, inputs, outputs, tolerance, rope, call };
  return { entry, files, skipped };
}

const boundName = (output: string): string => `${output}_bound`;

/**
 * Computes how far a right kernel's elements may be from the stored ones, in f32: what verify allows, and the rounding
 * of the stored ones. It is infinite where both a finite number and an infinity are right. Copied outputs have no
 * bounds.
 */
function boundsOf(c: GoldenCase, table: TablePrecision): Map<string, Tensor> {
  const found = new Map<string, Tensor>();
  for (const [name, { allowed }] of expectationsOf(c, {})) {
    const { dtype, shape, values, bounds } = allowed(table);
    if (!bounds || !isFloat(dtype)) continue;
    const data = Float32Array.from(bounds, (bound, n) => {
      const size = Math.abs(values[n] as number);
      if (bound === 0) return 0;
      return size + bound >= OVERFLOW[dtype] ? Number.POSITIVE_INFINITY : roundUp(bound + storedSlack(dtype, size));
    });
    found.set(boundName(name), tensorFrom(data, { shape }));
  }
  return found;
}

/** Returns the values of a small tensor of integers. */
function shown(tensor: Tensor): number[] | undefined {
  if (!/^[iu]/.test(tensor.dtype) || tensor.size > SHOWN_VALUES) return undefined;
  const values = [...floats(tensor)];
  return values.every(Number.isSafeInteger) ? values : undefined;
}

/** A file, and the names of the tensors in it. */
interface CaseFile {
  readonly path: string;
  readonly bytes: Uint8Array;
  readonly tensors: readonly string[];
}

/** Writes a case in one form. Returns the files, or the reason why the form cannot express the case. */
async function writeForm(
  c: GoldenCase,
  form: GoldenForm,
  bounds: ReadonlyMap<string, Tensor>,
  hashes: ReadonlyMap<string, string>,
  { generator, seed, table, onnx }: WriteCaseOptions,
): Promise<readonly CaseFile[] | string> {
  const tensors = [...c.inputs, ...c.outputs, ...bounds];
  const whole = (suffix: string, bytes: Uint8Array): CaseFile[] => [
    { path: `${c.id}${suffix}`, bytes, tensors: tensors.map(([name]) => name) },
  ];
  switch (form) {
    case 'npy':
      return tensors.map(([name, tensor]) => {
        const bytes = writeNpy(tensor.read() as never, tensor);
        return { path: `${c.id}/${name}.npy`, bytes, tensors: [name] };
      });
    case 'npz':
      return whole('.npz', writeNpz(new Map(tensors)));
    case 'safetensors': {
      const { atol, rtol, formula } = c.tolerance;
      const metadata = {
        op: c.op,
        about: c.about,
        attributes: JSON.stringify(c.attributes),
        inputs: [...c.inputs.keys()].join(','),
        outputs: [...c.outputs.keys()].join(','),
        tolerance: JSON.stringify({ formula, atol, rtol }),
        seed: String(seed),
        generator,
      };
      // Wider elements come first, so that every tensor is aligned.
      const sorted = tensors.toSorted(([, a], [, b]) => sizeBytes(b.dtype) - sizeBytes(a.dtype));
      return whole('.safetensors', writeSafetensors(new Map(sorted), metadata));
    }
    case 'bin':
      return tensors.flatMap(([name, tensor]) => {
        const output = c.outputs.has(name);
        // The sidecar has all that a reader without the manifest needs.
        const sidecar = {
          case: c.id,
          tensor: name,
          role: output ? 'output' : bounds.has(name) ? 'bound' : 'input',
          dtype: tensor.dtype,
          shape: tensor.shape,
          byte_order: 'little',
          sha256: hashes.get(name),
          seed,
          generator,
          tolerance: output ? c.tolerance : undefined,
        };
        return [
          { path: `${c.id}/${name}.bin`, bytes: elementBytes(tensor), tensors: [name] },
          { path: `${c.id}/${name}.json`, bytes: utf8(`${JSON.stringify(sidecar, null, 2)}\n`), tensors: [] },
        ];
      });
    case 'c': {
      const allowed = `what ropewalk verify allows${c.rope ? ` with angles in ${table}` : ''}`;
      return whole('.h', utf8(writeHeader(c, bounds, allowed, generator)));
    }
    case 'onnx': {
      const { writeOnnxTest } = await loadOnnx(onnx, 'vectors: format');
      const test = writeOnnxTest(c, bindGolden(c, referenceRunner()).plan, generator);
      if (typeof test === 'string') return test;
      return test.map(({ path, bytes, tensor }) => {
        return { path: `${c.id}/${path}`, bytes, tensors: tensor === undefined ? [] : [tensor] };
      });
    }
  }
}

function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
