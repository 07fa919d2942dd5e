/**
 * Golden folders, written: cases → files, in every form. Nothing here touches a file system. What writes npz and ONNX
 * is loaded when it is asked for.
 *
 * @module
 */
import { writeNpy, writeSafetensors } from '@ropewalk/formats';
import { type FloatDtype, isFloat, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { referenceRunner } from 'ropewalk/reference';
import { type ExpectedOutput, OVERFLOW } from '../judge.js';
import { expectationsOf } from '../verify/model.js';
import { defaultTable, type TablePrecision } from '../verify/rope-model.js';
import { exactWithBounds, roundUp, storedSlack, toleranceOf } from './bounds.js';
import { writeHeader } from './c-header.js';
import { bindGolden, floats, type GoldenCase, type GoldenQuestion } from './case.js';
import type { GoldenEntry, GoldenForm, GoldenManifest, GoldenTensor } from './manifest.js';
import { elementBytes, loadOnnx, type OnnxLoader, sha256 } from './read.js';

/** Integers that a manifest shows: positions, rows, indices; more would hide the rest. */
const SHOWN_VALUES = 64;

/** Answers a question: computes the outputs in float64, rounds them once, and states the tolerance. */
export function answer(question: GoldenQuestion): GoldenCase {
  const exact = exactWithBounds(question);
  const outputs = new Map([...exact].map(([name, output]): [string, Tensor] => [name, rounded(output)]));
  return { ...question, outputs, tolerance: toleranceOf(question, exact) };
}

/** An exact output rounded once to its dtype; what was copied stays as it is. */
function rounded({ dtype, shape, values, bounds }: ExpectedOutput): Tensor {
  if (!bounds) return tensorFrom(values, { dtype, shape });
  const data = newArray(dtype, values.length);
  for (let n = 0; n < data.length; n++) storeNumber(data, dtype as FloatDtype, n, values[n] as number);
  return tensorFrom(data, { dtype, shape });
}

/** Who writes a case, and what its bounds allow. */
export interface WriteCaseOptions {
  readonly generator: string;
  /** Of the folder; for sidecars. */
  readonly seed: number;
  /** Of RoPE's angles; what verify allows unless given. */
  readonly table?: TablePrecision;
  readonly onnx?: OnnxLoader;
}

/** A case's files and its entry of the manifest, to which it belongs only if there are files. */
export async function writeCase(c: GoldenCase, forms: readonly GoldenForm[], options: WriteCaseOptions) {
  const { generator, seed, table = defaultTable(c), onnx } = options;
  const files: { path: string; bytes: Uint8Array }[] = [];
  const skipped: GoldenManifest['skipped'][number][] = [];
  const hashes = new Map<string, string>();
  const bounds = boundsOf(c, table);
  const allowed = `what ropewalk verify allows${c.rope ? ` with angles in ${table}` : ''}`;
  const tensors = [...c.inputs, ...c.outputs, ...bounds];
  for (const [name, tensor] of tensors) hashes.set(name, await sha256(elementBytes(tensor)));
  const places = new Map<string, Partial<Record<GoldenForm, string>>>([...hashes.keys()].map((name) => [name, {}]));
  const add = (path: string, bytes: Uint8Array): void => void files.push({ path, bytes });
  for (const form of forms) {
    const reason = await writeForm(c, form, { generator, seed, hashes, add, places, tensors, bounds, allowed, onnx });
    if (reason !== undefined) skipped.push({ id: c.id, form, reason });
  }
  const describe = (tensors: ReadonlyMap<string, Tensor>): GoldenTensor[] =>
    [...tensors].map(([name, tensor]) => {
      const [sha256, files] = [hashes.get(name)!, places.get(name)!];
      const ofBounds = places.get(boundName(name)) ?? {};
      const bounds = Object.keys(ofBounds).length > 0 ? { table: c.rope && table, files: ofBounds } : undefined;
      return { name, dtype: tensor.dtype, shape: tensor.shape, sha256, files, bounds, values: shown(tensor) };
    });
  const { id, op, about, separates, attributes, tolerance, rope } = c;
  const [inputs, outputs] = [describe(c.inputs), describe(c.outputs)];
  const entry: GoldenEntry = { id, op, about, separates, attributes, inputs, outputs, tolerance, rope };
  return { entry, files, skipped };
}

const boundName = (output: string): string => `${output}_bound`;

/**
 * How far a right kernel's elements may be from the stored ones, f32: what verify allows, and that the stored ones were
 * rounded. Of outputs that are copied, none. Infinite where both a finite number and an infinity are right.
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

/** The values of a small tensor of integers. */
function shown(tensor: Tensor): number[] | undefined {
  if (!/^[iu]/.test(tensor.dtype) || tensor.size > SHOWN_VALUES) return undefined;
  const values = [...floats(tensor)];
  return values.every(Number.isSafeInteger) ? values : undefined;
}

/** What writing one form of a case needs. */
interface Sink {
  readonly generator: string;
  readonly seed: number;
  readonly hashes: ReadonlyMap<string, string>;
  readonly add: (path: string, bytes: Uint8Array) => void;
  readonly places: ReadonlyMap<string, Partial<Record<GoldenForm, string>>>;
  /** Inputs, outputs and bounds. */
  readonly tensors: readonly (readonly [string, Tensor])[];
  readonly bounds: ReadonlyMap<string, Tensor>;
  /** What bounds allow, in words. */
  readonly allowed: string;
  readonly onnx: OnnxLoader | undefined;
}

async function writeForm(c: GoldenCase, form: GoldenForm, sink: Sink): Promise<string | undefined> {
  const { add, places, generator, seed, tensors } = sink;
  const place = (name: string, path: string): string => {
    places.get(name)![form] = path;
    return path;
  };
  const together = (path: string): void => {
    for (const [name] of tensors) place(name, path);
  };
  switch (form) {
    case 'npy':
      for (const [name, tensor] of tensors)
        add(place(name, `${c.id}/${name}.npy`), writeNpy(tensor.read() as never, tensor));
      return undefined;
    case 'npz': {
      const { writeNpz } = await import('@ropewalk/formats');
      together(`${c.id}.npz`);
      add(`${c.id}.npz`, writeNpz(new Map(tensors)));
      return undefined;
    }
    case 'safetensors': {
      together(`${c.id}.safetensors`);
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
      // Wider elements first, so that every tensor is aligned.
      const sorted = tensors.toSorted(([, a], [, b]) => sizeBytes(b.dtype) - sizeBytes(a.dtype));
      add(`${c.id}.safetensors`, writeSafetensors(new Map(sorted), metadata));
      return undefined;
    }
    case 'bin':
      for (const [name, tensor] of tensors) {
        add(place(name, `${c.id}/${name}.bin`), elementBytes(tensor));
        add(`${c.id}/${name}.json`, text(`${JSON.stringify(sidecar(c, name, tensor, sink), null, 2)}\n`));
      }
      return undefined;
    case 'c':
      together(`${c.id}.h`);
      add(`${c.id}.h`, text(writeHeader(c, sink.bounds, sink.allowed, generator)));
      return undefined;
    case 'onnx': {
      const { writeOnnxTest } = await loadOnnx(sink.onnx, 'vectors: format');
      const test = writeOnnxTest(c, bindGolden(c, referenceRunner()).plan, generator);
      if (typeof test === 'string') return test;
      for (const { path, bytes, tensor } of test) {
        add(`${c.id}/${path}`, bytes);
        if (tensor !== undefined) place(tensor, `${c.id}/${path}`);
      }
      return undefined;
    }
  }
}

/** The file beside a .bin: all that a reader without the manifest needs. */
function sidecar(c: GoldenCase, name: string, tensor: Tensor, sink: Sink): unknown {
  const { generator, seed, hashes, bounds } = sink;
  const output = c.outputs.has(name);
  return {
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
}

function text(content: string): Uint8Array {
  return new TextEncoder().encode(content);
}
