/** aclnnApplyRotaryPosEmb, V1 and V2, rotates query and key in place by tables of full width. Its gradients follow. @module */
import type { Runner, Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  checkDims,
  checkRunner,
  checkTensor,
  type OptionNames,
  optionNames,
  readName,
  readOptions,
  withFresh,
} from 'ropewalk/internal';
import { checkWritten } from '../calls.js';
import type { AclnnFloat } from './tables.js';
import {
  ACLNN_LAYOUT,
  ACLNN_ROTARY_MODE,
  checkAclnnFloat,
  checkD,
  checkLike,
  rotateByTables,
  tableGradients,
} from './tables.js';

type LayoutName = keyof typeof ACLNN_LAYOUT;

/**
 * `aclnnApplyRotaryPosEmb(queryRef, keyRef, cos, sin, layout)`: rotates query and key in place, half pairing.
 *
 * @param rw - runs the plans
 * @param queryRef - `[B, S, N, D]`, or `[T, N, D]` in TND; f32, f16 or bf16, any strides; rotated in place
 * @param keyRef - as queryRef; the number of heads may differ
 * @param cos - `[B, S, 1, D]`, or `[1, S, 1, D]` for all batches; `[T, 1, D]` in TND; queryRef's dtype, in host memory.
 *   Each pair's cosine is at both of its dimensions
 * @param sin - as cos
 * @param layout - 1 (BSND) or 4 (TND) of {@link ACLNN_LAYOUT}
 * @throws {RopewalkError} UNSUPPORTED, SHAPE, DTYPE or ALIAS, naming the argument; nothing is written then
 * @see hicann/ops-transformer@827a6040 posembedding/apply_rotary_pos_emb
 */
export function aclnnApplyRotaryPosEmb<D extends AclnnFloat>(
  rw: Runner,
  queryRef: Tensor<D>,
  keyRef: Tensor<D>,
  cos: Tensor<D>,
  sin: Tensor<D>,
  layout: number,
): void {
  const op = 'aclnnApplyRotaryPosEmb';
  const next = 'aclnnApplyRotaryPosEmbV2 takes 2 (SBND) and 3 (BNSD).';
  if (layout !== ACLNN_LAYOUT.BSND && layout !== ACLNN_LAYOUT.TND)
    refuse('UNSUPPORTED', `${op}: layout`, '1 (BSND) or 4 (TND)', layout, next);
  applyInPlace(rw, op, { queryRef, keyRef, cos, sin }, layout, ACLNN_ROTARY_MODE.half);
}

/**
 * `aclnnApplyRotaryPosEmbV2(queryRef, keyRef, cos, sin, layout, rotaryMode)`: rotates query and key in place.
 *
 * @param rw - runs the plans
 * @param queryRef - in the layout's order, D last; f32, f16 or bf16, any strides; rotated in place
 * @param keyRef - as queryRef; the number of heads may differ
 * @param cos - queryRef's shape with one head, and any B or 1; queryRef's dtype, in host memory. Each pair's cosine is
 *   at both of its dimensions
 * @param sin - as cos
 * @param layout - one of {@link ACLNN_LAYOUT}
 * @param rotaryMode - `half`, `interleave` or `quarter`
 * @throws {RopewalkError} UNSUPPORTED, SHAPE, DTYPE or ALIAS, naming the argument; nothing is written then
 * @see hicann/ops-transformer@827a6040 posembedding/apply_rotary_pos_emb
 */
export function aclnnApplyRotaryPosEmbV2<D extends AclnnFloat>(
  rw: Runner,
  queryRef: Tensor<D>,
  keyRef: Tensor<D>,
  cos: Tensor<D>,
  sin: Tensor<D>,
  layout: number,
  rotaryMode: 'half' | 'interleave' | 'quarter',
): void {
  const op = 'aclnnApplyRotaryPosEmbV2';
  const mode = readName(rotaryMode, ['half', 'interleave', 'quarter'], `${op}: rotaryMode`);
  applyInPlace(rw, op, { queryRef, keyRef, cos, sin }, layout, ACLNN_ROTARY_MODE[mode]);
}

type InPlace = Readonly<Record<'queryRef' | 'keyRef' | 'cos' | 'sin', Tensor>>;

function applyInPlace(rw: Runner, op: string, tensors: InPlace, layout: number, mode: number): void {
  checkRunner(rw, `${op}: rw`);
  const { queryRef, keyRef, cos, sin } = tensors;
  const head = checkShapes(op, ['queryRef', 'keyRef'], [queryRef, keyRef, cos, sin], layout, mode);
  checkWritten(op, 'queryRef', queryRef, { keyRef, cos, sin });
  checkWritten(op, 'keyRef', keyRef, { cos, sin });
  const parts = [queryRef, keyRef].map((x) => ({ x, out: x }));
  rotateByTables(rw, op, parts, { cos, sin }, mode, 'forward', head);
}

/** Checks query, key, cos and sin against the layout. Returns the dimension of the heads, of four dimensions. */
function checkShapes(
  op: string,
  [queryName, keyName]: readonly [string, string],
  [query, key, cos, sin]: readonly [query: Tensor, key: Tensor, cos: Tensor, sin: Tensor],
  layout: number,
  mode: number,
): number {
  const named = { [queryName]: query, [keyName]: key, cos, sin };
  for (const [name, tensor] of Object.entries(named)) checkTensor(tensor, `${op}: ${name}`);
  const found = (Object.keys(ACLNN_LAYOUT) as LayoutName[]).find((name) => ACLNN_LAYOUT[name] === layout);
  const layouts = '1 (BSND), 2 (SBND), 3 (BNSD) or 4 (TND)';
  const name = found ?? refuse('UNSUPPORTED', `${op}: layout`, layouts, layout);
  checkAclnnFloat(query, `${op}: ${queryName}`);
  for (const [other, tensor] of Object.entries(named)) checkAclnnFloat(tensor, `${op}: ${other}`, [query.dtype]);
  const rank = name.length;
  if (query.rank !== rank || query.size === 0)
    refuse('SHAPE', `${op}: ${queryName}`, `${rank} dimensions, ${name}, none of them 0`, [...query.shape]);
  const heads = name.indexOf('N');
  if (key.rank !== rank || key.shape[heads] === 0) {
    const like = `${queryName}'s shape [${query.shape}] with any N but 0`;
    refuse('SHAPE', `${op}: ${keyName}`, like, [...key.shape]);
  }
  checkDims(key, `${op}: ${keyName}`, query.shape.with(heads, key.shape[heads]!));
  checkD(query.shape.at(-1)!, mode, `${op}: ${queryName}`);
  const batch = name.indexOf('B');
  const one = query.shape.with(heads, 1);
  const forAll = batch >= 0 && cos.rank === rank && cos.shape[batch] === 1;
  checkDims(cos, `${op}: cos`, forAll ? one.with(batch, 1) : one);
  checkDims(sin, `${op}: sin`, cos.shape);
  return heads + 4 - rank; // TND gets a batch in front.
}

/** The arguments of {@link aclnnApplyRotaryPosEmbGrad}, with aclnn's names. */
export interface AclnnApplyRotaryPosEmbGradArguments<D extends AclnnFloat> {
  /** The gradient of the rotated query, with the forward call's shape and dtype. */
  readonly gradQueryEmbed: Tensor<D>;
  /** The gradient of the rotated key. */
  readonly gradKeyEmbed: Tensor<D>;
  /** The forward call's table. */
  readonly cos: Tensor<D>;
  /** The forward call's table. */
  readonly sin: Tensor<D>;
  /** The forward call's query as it was before. Without query and key, cos and sin get no gradients. */
  readonly queryOptional?: Tensor<D> | null;
  /** The forward call's key as it was before. Query and key come together. */
  readonly keyOptional?: Tensor<D> | null;
  /** The call has one mode. Default: `half`. */
  readonly rotaryModeOptional?: 'half';
  /** It is 1 (BSND), 2 (SBND) or 4 (TND) of {@link ACLNN_LAYOUT}. */
  readonly layout: number;
}

const NAMES: OptionNames<AclnnApplyRotaryPosEmbGradArguments<AclnnFloat>> = /* @__PURE__ */ optionNames(
  'gradQueryEmbed gradKeyEmbed cos sin queryOptional keyOptional rotaryModeOptional layout',
);

/**
 * `aclnnApplyRotaryPosEmbGrad`: the gradients of {@link aclnnApplyRotaryPosEmb}.
 *
 * The gradients of cos and sin are sums over heads, of query and key together, and over batches where the tables have
 * one: products and sums in f32 (float64 on the reference), rounded once.
 *
 * @param rw - runs the plans
 * @param options - the arguments
 * @returns fresh dense tensors in gradQueryEmbed's dtype; gradCosOut and gradSinOut only where query and key are given
 * @throws {RopewalkError} UNSUPPORTED, SHAPE or DTYPE, naming the argument
 * @see hicann/ops-transformer@37b9e45d posembedding/apply_rotary_pos_emb_grad
 */
export function aclnnApplyRotaryPosEmbGrad<D extends AclnnFloat>(
  rw: Runner,
  options: AclnnApplyRotaryPosEmbGradArguments<D>,
): {
  readonly gradQueryOut: Tensor<D>;
  readonly gradKeyOut: Tensor<D>;
  readonly gradCosOut: Tensor<D> | undefined;
  readonly gradSinOut: Tensor<D> | undefined;
} {
  const op = 'aclnnApplyRotaryPosEmbGrad';
  checkRunner(rw, `${op}: rw`);
  const { gradQueryEmbed, gradKeyEmbed, cos, sin, layout, ...rest } = readOptions(options, `${op}: arguments`, NAMES);
  const { queryOptional, keyOptional, rotaryModeOptional = 'half' } = rest;
  if (rotaryModeOptional !== 'half') refuse('UNSUPPORTED', `${op}: rotaryModeOptional`, 'half', rotaryModeOptional);
  if (layout === ACLNN_LAYOUT.BNSD) refuse('UNSUPPORTED', `${op}: layout`, '1 (BSND), 2 (SBND) or 4 (TND)', layout);
  const mode = ACLNN_ROTARY_MODE.half;
  const names = ['gradQueryEmbed', 'gradKeyEmbed'] as const;
  const head = checkShapes(op, names, [gradQueryEmbed, gradKeyEmbed, cos, sin], layout, mode);
  const [query, key] = [queryOptional ?? undefined, keyOptional ?? undefined];
  if ((query === undefined) !== (key === undefined)) {
    const missing = query === undefined ? 'queryOptional' : 'keyOptional';
    refuse('SHAPE', `${op}: ${missing}`, 'query and key, or neither', undefined);
  }
  if (query !== undefined) checkLike(query, `${op}: queryOptional`, gradQueryEmbed);
  if (key !== undefined) checkLike(key, `${op}: keyOptional`, gradKeyEmbed);
  const dtype = gradQueryEmbed.dtype;
  return withFresh(rw, dtype, gradQueryEmbed.shape, (gradQueryOut) =>
    withFresh(rw, dtype, gradKeyEmbed.shape, (gradKeyOut) => {
      const parts = [
        { x: gradQueryEmbed, out: gradQueryOut },
        { x: gradKeyEmbed, out: gradKeyOut },
      ];
      rotateByTables(rw, op, parts, { cos, sin }, mode, 'backward', head);
      if (query === undefined || key === undefined)
        return { gradQueryOut, gradKeyOut, gradCosOut: undefined, gradSinOut: undefined };
      const derived = [
        { dy: gradQueryEmbed, x: query },
        { dy: gradKeyEmbed, x: key },
      ];
      const [gradCosOut, gradSinOut] = tableGradients(rw, op, derived, cos, mode);
      return { gradQueryOut, gradKeyOut, gradCosOut, gradSinOut };
    }),
  );
}
