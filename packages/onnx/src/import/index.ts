/**
 * The RoPE of an .onnx file: found, described, and bound to plans that every backend runs.
 *
 * @module
 */
import { type RopeCall, RopewalkError, type Runner, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import type { OptionNames } from 'ropewalk/internal';
import { checkRunner, checkTensor, reading, readList, readOptional, readOptions, withFresh } from 'ropewalk/internal';
import { type OnnxModelFile, type ParseOnnxOptions, parseOnnxModel } from '../format/onnx-model.js';
import { type BindOptions, bindFound } from './bind.js';
import { describe, type RopeDescription } from './describe.js';
import { SEARCHING, TooMuchWork, Work } from './evaluate.js';
import { type Found, findRope, type NearMiss } from './find.js';
import { layersOf } from './layers.js';

/** One RoPE of a model. */
export interface ImportedRope extends RopeDescription {
  /** The layer whose keys or queries it rotates; undefined if no cache of keys tells it. */
  readonly layer: number | undefined;
  /** For {@link bindImported}. */
  readonly found: Found;
}

/** The RoPE of an .onnx file. */
export interface ImportedModel {
  readonly model: OnnxModelFile;
  /** Sorted as in the file: the model's main graph, then graphs inside nodes, then functions. */
  readonly ropes: readonly ImportedRope[];
  /** The layers that have a cache of keys (`present.N.key`), ascending; empty if the graph has no such caches. */
  readonly layers: readonly number[];
  /** Arithmetic that resembles RoPE and is none, with the reasons. */
  readonly nearly: readonly NearMiss[];
}

/** The results of {@link importOnnx}. A rope is bound only if it is one of them. */
const FOUND = /* @__PURE__ */ new WeakSet<Found>();

function checkRope(rope: ImportedRope, where: string): ImportedRope {
  const copy = readOptions(rope, where);
  if (!FOUND.has(copy.found)) refuse('RANGE', where, 'a RoPE that importOnnx found', rope);
  return copy;
}

/**
 * Reads a model and finds its RoPE.
 *
 * @param bytes - an .onnx file; it is kept, because tensors are views of it
 * @param where - the name of the file in messages
 * @param options - the loader for tensors in other files
 * @throws {RopewalkError} FORMAT when the file is malformed; UNSUPPORTED when its graph takes more work than a file of
 *   its size may
 * @example const { ropes } = importOnnx(bytes); ropes[0].pairing // 'half'
 */
export function importOnnx(bytes: Uint8Array, where = 'onnx', options: ParseOnnxOptions = {}): ImportedModel {
  const model = parseOnnxModel(bytes, where, options);
  try {
    const { found, nearly } = findRope(model);
    const ropes: ImportedRope[] = [];
    const none: NearMiss[] = [...nearly];
    const { layers, layerOf } = layersOf(model, found, new Work(model.bytes, SEARCHING));
    for (const one of found) {
      const { description, because } = describe(one);
      FOUND.add(one);
      if (because === undefined) ropes.push({ ...description, layer: layerOf.get(one), found: one });
      else none.push({ name: one.name, scopeName: one.scope.name, because });
    }
    return { model, ropes, layers, nearly: none };
  } catch (cause) {
    if (cause instanceof RopewalkError) throw cause;
    // The file is not trusted, so unforeseen errors are caught here too.
    const why = cause instanceof TooMuchWork ? cause.message : `it ended in "${cause}"`;
    throw new RopewalkError('UNSUPPORTED', `${where}: this graph cannot be searched: ${why}`, { cause });
  }
}

/**
 * Binds a RoPE of a model to tensors. The graph's own arithmetic gives cos and sin, and the rotation is a plan. The
 * backend computes in f32 and rounds once, whatever casts the graph has between x and y.
 *
 * @param rope - from {@link importOnnx}
 * @param options - x, out, and the inputs of the angles
 * @returns a checked call for {@link Runner.run}
 * @throws {RopewalkError} UNSUPPORTED for a RoPE that cannot be run here, with the reason; SHAPE, DTYPE, RANGE or ALIAS
 *   for tensors that do not fit
 */
export function bindImported(rope: ImportedRope, options: BindOptions): RopeCall {
  return bind(checkRope(rope, 'import: rope'), readTensors(options));
}

const NAMES: OptionNames<BindOptions> = { x: true, out: true, positionIds: true, inputs: true };

/** Reads the options, and checks that their tensors are tensors. */
function readTensors<T extends Partial<BindOptions>>(options: T): T {
  const copy = readOptions(options as Partial<BindOptions>, 'import: options', NAMES);
  const inputs = readOptional(copy.inputs, 'import: inputs');
  for (const [name, tensor] of Object.entries({ ...inputs, x: copy.x, out: copy.out, position_ids: copy.positionIds }))
    if (tensor !== undefined || name === 'x') checkTensor(tensor, `import: ${name}`);
  return (inputs ? { ...copy, inputs } : copy) as T;
}

function bind(rope: ImportedRope, options: BindOptions): RopeCall {
  checkTensor(options.out, 'import: out');
  if (rope.whyNotRun !== undefined || rope.found.kind === 'attention')
    return fail('UNSUPPORTED', `import: ${rope.name}`, `this RoPE cannot be run: ${rope.whyNotRun}`);
  return bindFound(rope.found, options);
}

/**
 * Runs a RoPE of a model.
 *
 * @param rope - from {@link importOnnx}
 * @param runner - the reference, or the backend that holds x
 * @param options - x, and the inputs of the angles
 * @returns y, a fresh dense tensor of x's shape and dtype; reading it waits for the run
 * @throws {RopewalkError} as {@link bindImported}
 */
export function runImported<D extends Tensor>(
  rope: ImportedRope,
  runner: Runner,
  options: Omit<BindOptions, 'out'> & { readonly x: D },
): D {
  checkRunner(runner, 'import: runner');
  const known = checkRope(rope, 'import: rope');
  const given = readTensors(options);
  return withFresh(runner, given.x.dtype, given.x.shape, (out) => {
    runner.run(bind(known, { ...given, out }));
    return out as D;
  });
}

/**
 * Groups RoPE that differs only in the number of heads. 32 layers with q and k have 64 nodes, often with the same
 * description.
 *
 * @param ropes - from {@link importOnnx}
 * @returns groups in the order of their first members
 */
export function groupAlike(ropes: readonly ImportedRope[]): ImportedRope[][] {
  const groups = new Map<string, ImportedRope[]>();
  for (const rope of Array.from(readList(ropes, 'import: ropes'))) {
    const {
      found: _found,
      layer: _layer,
      name: _name,
      x: _x,
      y: _y,
      numHeads: _heads,
      ...alike
    } = checkRope(rope, 'import: ropes');
    // Exporters declare the dtype of some values only.
    const told = { ...alike, dtype: undefined, tables: { from: alike.tables.from, rows: alike.tables.rows } };
    const key = reading('import: ropes', () => JSON.stringify(told));
    const group = groups.get(key);
    if (group) group.push(rope);
    else groups.set(key, [rope]);
  }
  return [...groups.values()];
}
