/** The inputs of a diagnosis as users give them: a kernel's arrays, and the RoPE that it should have computed. @module */
import { checkStored, type Expected, type Observation, splitHeads } from '@ropewalk/diagnose';
import { groupLayers, longestOf, shortContextOf } from '@ropewalk/dialects/internal/models';
import type { FloatDtype, RopeLayout, RopeSpec, Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import type { RopeSource } from './rope/model-source.js';

/** The arrays of a kernel's run, and what they do not say themselves. */
export interface KernelRun {
  /** The input, `[batch, seq, head, head_dim]` or without batch; with `heads` `[tokens, hidden]` or with a batch. */
  readonly x: Tensor;
  /** The output, in the same shape. */
  readonly y: Tensor;
  /** The positions, `[seq]`, `[batch, seq]`, or with axes in front. */
  readonly positions: Tensor;
  /** The weight of an RMS norm before the rotation, `[head_dim]`. */
  readonly normWeight?: Tensor;
  /** The epsilon of that norm. Default: 1e-6. */
  readonly normEps?: number;
  /** `sbnh` is Megatron's: tokens, batch, heads, head_dim. */
  readonly layout?: RopeLayout | 'sbnh';
  /** The number of heads, if the last dimension holds all of them. */
  readonly heads?: number;
  /** The dtype that the kernel stores, if y is wider. */
  readonly dtype?: FloatDtype;
}

/**
 * Makes an observation for `diagnose` of `@ropewalk/diagnose`.
 *
 * @param run - the arrays
 * @param expected - the RoPE that the kernel should have computed
 * @param nameOf - names a field of `run`, or `expected`, in messages. Default: the field itself
 * @throws {RopewalkError} FORMAT, RANGE or SHAPE when fields contradict each other; DTYPE for a value of y that `dtype`
 *   cannot hold
 */
export function observationOf(
  run: KernelRun,
  expected?: Expected,
  nameOf: (field: keyof KernelRun | 'expected') => string = (field) => field,
): Observation {
  const { normWeight, normEps = 1e-6, heads, dtype, positions, ...rest } = run;
  const layout = rest.layout === 'sbnh' ? 'bsnh' : (rest.layout ?? (heads === undefined ? undefined : 'bsnh'));
  if (heads !== undefined && layout !== 'bsnh')
    fail(
      'FORMAT',
      nameOf('layout'),
      `with ${nameOf('heads')}, x and y are [batch, token, hidden], or [token, batch, hidden] in sbnh. Leave it out.`,
    );
  const read = (field: 'x' | 'y'): Tensor =>
    batchFirst(splitHeads(rest[field], heads, nameOf(field)), rest.layout, nameOf(field));
  const [x, y] = [read('x'), read('y')];
  checkStored(y, dtype, nameOf('dtype'));
  if (!(normEps >= 0)) refuse('RANGE', nameOf('normEps'), 'a number >= 0', normEps);
  const [given, meant] = [x.shape.at(-1), expected?.spec.headDim];
  if (meant !== undefined && given !== meant)
    fail(
      'SHAPE',
      nameOf('x'),
      `its heads have ${given} dimensions, those of ${nameOf('expected')} have ${meant}. ` +
        (heads === undefined && x.shape.length < 4 && given! % meant === 0
          ? `If the last dimension is ${given! / meant} heads side by side, give ${nameOf('heads')} ${given! / meant}.`
          : 'Give the model that the kernel ran, or dump whole heads in the last dimension.'),
    );
  const norm = normWeight && { weight: normWeight as Tensor<FloatDtype>, eps: normEps };
  return { x, y, positions, layout, norm };
}

/**
 * Views a tensor in sbnh as bsnh; one of another layout stays as it is.
 *
 * @throws {RopewalkError} SHAPE for one in sbnh without four dimensions
 */
export function batchFirst(tensor: Tensor, layout: KernelRun['layout'], where: string): Tensor {
  if (layout !== 'sbnh') return tensor;
  if (tensor.rank !== 4)
    refuse('SHAPE', where, 'four dimensions in sbnh', [...tensor.shape], 'Without a batch the layout is bsnh.');
  return tensor.permute([1, 0, 2, 3]);
}

/**
 * The tokens in use that positions show, where they choose the frequencies: a text is longer than its last position.
 *
 * @returns undefined where the frequencies are those of short texts
 */
export function contextSeen(spec: RopeSpec, positions: KernelRun['positions']): number | undefined {
  const short = shortContextOf(spec);
  if (short === undefined) return undefined;
  const values = 'readNumbers' in positions ? (positions.readNumbers() as Float64Array) : positions;
  let last = 0;
  for (const position of values) last = Math.max(last, position);
  return Number.isSafeInteger(last) && last >= short ? last + 1 : undefined;
}

/** Options with which a kernel may be right that is wrong with those that were given. */
export interface LeftOut {
  readonly layer?: number;
  readonly context?: number;
  readonly dtype?: 'f16' | 'bf16';
}

/**
 * Lists what a user may have left out, one at a time: other kinds of layers, contexts that choose other frequencies, the
 * other 16-bit dtype.
 *
 * @param layer - the layer that was given, or 0
 */
export function optionsLeftOut(source: RopeSource | undefined, layer: number, dtype: string | undefined): LeftOut[] {
  const model = source?.kind === 'model' ? source.model : undefined;
  const layers = groupLayers(model?.layers ?? []).filter((group) => group.rope && !group.layers.includes(layer));
  const { short, context } = (model && longestOf(model)) ?? {};
  return [
    ...layers.map((group) => ({ layer: group.layers[0]! })),
    ...[short, context].flatMap((tokens) => (tokens === undefined ? [] : [{ context: tokens }])),
    ...(dtype === 'bf16' ? [{ dtype: 'f16' as const }] : dtype === 'f16' ? [{ dtype: 'bf16' as const }] : []),
  ];
}

/**
 * Makes an expectation for `diagnose`.
 *
 * @param rope - the RoPE and its source in words, such as a `LayerSource`
 * @param direction - the direction of the kernel. Default: that of `rope`, else forward
 * @returns the expectation, and its source for the report: `config.json, layer 0, backward`
 */
export function expectationOf(
  rope: Expected & { readonly from: string },
  direction: 'forward' | 'backward' = rope.direction ?? 'forward',
): { readonly expected: Expected; readonly from: string } {
  const { spec, from } = rope;
  return { expected: { spec, direction }, from: direction === 'forward' ? from : `${from}, backward` };
}
