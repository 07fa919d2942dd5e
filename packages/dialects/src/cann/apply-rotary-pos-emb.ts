/** aclnnApplyRotaryPosEmb, V1 and V2: query and key in place, by tables of full width; and their gradients. @module */
import type { Runner, Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  checkDims,
  checkRunner,
  checkTensor,
  type OptionNames,
  readName,
  readOptions,
  withFresh,
} from 'ropewalk/internal';
import {
  ACLNN_LAYOUT,
  ACLNN_ROTARY_MODE,
  type AclnnFloat,
  bindByTables,
  checkAclnnFloat,
  checkD,
  checkRef,
  inFour,
  tableGradients,
} from './tables.js';

type LayoutName = keyof typeof ACLNN_LAYOUT;

/** The dimension of the heads, after TND has got its batch. */
const HEAD_DIM: Readonly<Record<LayoutName, number>> = { BSND: 2, SBND: 2, BNSD: 1, TND: 2 };

/**
 * `aclnnApplyRotaryPosEmb(queryRef, keyRef, cos, sin, layout)`: rotates query and key in place, half pairing.
 *
 * @param rw - runs the plans
 * @param queryRef - `[B, S, N, D]`, or `[T, N, D]` in TND; f32, f16 or bf16, any strides; rotated in place
 * @param keyRef - as queryRef, with a number of heads of its own
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
  const where = `${op}: layout`;
  if (layout !== ACLNN_LAYOUT.BSND && layout !== ACLNN_LAYOUT.TND)
    refuse(
      'UNSUPPORTED',
      where,
      '1 (BSND) or 4 (TND)',
      layout,
      'aclnnApplyRotaryPosEmbV2 takes 2 (SBND) and 3 (BNSD).',
    );
  applyInPlace(rw, op, { queryRef, keyRef, cos, sin }, layout, ACLNN_ROTARY_MODE.half);
}

/**
 * `aclnnApplyRotaryPosEmbV2(queryRef, keyRef, cos, sin, layout, rotaryMode)`: rotates query and key in place.
 *
 * @param rw - runs the plans
 * @param queryRef - in the layout's order, D last; f32, f16 or bf16, any strides; rotated in place
 * @param keyRef - as queryRef, with a number of heads of its own
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

interface InPlace {
  readonly queryRef: Tensor;
  readonly keyRef: Tensor;
  readonly cos: Tensor;
  readonly sin: Tensor;
}

function applyInPlace(rw: Runner, op: string, tensors: InPlace, layout: number, mode: number): void {
  checkRunner(rw, `${op}: rw`);
  const { queryRef, keyRef, cos, sin } = tensors;
  const name = checkShapes(op, { query: 'queryRef', key: 'keyRef' }, [queryRef, keyRef, cos, sin], layout, mode);
  checkRef('queryRef', queryRef, { keyRef, cos, sin }, op);
  checkRef('keyRef', keyRef, { cos, sin }, op);
  const parts = [queryRef, keyRef].map(inFour).map((x) => ({ x, out: x }));
  const tables = { cos: inFour(cos), sin: inFour(sin) };
  for (const call of bindByTables(op, parts, tables, mode, 'forward', HEAD_DIM[name])) rw.run(call);
}

/** Checks query, key, cos and sin against the layout; returns its name. */
function checkShapes(
  op: string,
  names: { readonly query: string; readonly key: string },
  [query, key, cos, sin]: readonly [query: Tensor, key: Tensor, cos: Tensor, sin: Tensor],
  layout: number,
  mode: number,
): LayoutName {
  const named = { [names.query]: query, [names.key]: key, cos, sin };
  for (const [name, tensor] of Object.entries(named)) checkTensor(tensor, `${op}: ${name}`);
  const found = (Object.keys(ACLNN_LAYOUT) as LayoutName[]).find((name) => ACLNN_LAYOUT[name] === layout);
  const layouts = '1 (BSND), 2 (SBND), 3 (BNSD) or 4 (TND)';
  const name = found ?? refuse('UNSUPPORTED', `${op}: layout`, layouts, layout);
  checkAclnnFloat(query, `${op}: ${names.query}`);
  for (const [other, tensor] of Object.entries(named)) checkAclnnFloat(tensor, `${op}: ${other}`, [query.dtype]);
  const rank = name.length;
  if (query.rank !== rank || query.size === 0)
    refuse('SHAPE', `${op}: ${names.query}`, `${rank} dimensions, ${name}, none of them 0`, [...query.shape]);
  const heads = name.indexOf('N');
  if (key.rank !== rank || key.shape[heads] === 0) {
    const like = `${names.query}'s shape [${query.shape}] with any N but 0`;
    refuse('SHAPE', `${op}: ${names.key}`, like, [...key.shape]);
  }
  checkDims(key, `${op}: ${names.key}`, query.shape.with(heads, key.shape[heads]!));
  checkD(query.shape.at(-1)!, mode, `${op}: ${names.query}`);
  const batch = name.indexOf('B');
  const one = query.shape.with(heads, 1);
  if (batch < 0 || cos.rank !== rank || cos.shape[batch] !== 1) checkDims(cos, `${op}: cos`, one);
  else checkDims(cos, `${op}: cos`, one.with(batch, 1));
  checkDims(sin, `${op}: sin`, cos.shape);
  return name;
}

/** The arguments of {@link aclnnApplyRotaryPosEmbGrad}, with aclnn's names. */
export interface AclnnApplyRotaryPosEmbGradArguments<D extends AclnnFloat> {
  /** The gradient of the rotated query: the forward call's shape and dtype. */
  readonly gradQueryEmbed: Tensor<D>;
  /** The gradient of the rotated key. */
  readonly gradKeyEmbed: Tensor<D>;
  /** As in the forward call. */
  readonly cos: Tensor<D>;
  /** As cos. */
  readonly sin: Tensor<D>;
  /** The forward call's query, as it was before; without it and key, cos and sin get no gradients. */
  readonly queryOptional?: Tensor<D> | null;
  /** The forward call's key, as it was before; given with query or not at all. */
  readonly keyOptional?: Tensor<D> | null;
  /** `half`, which it is unless given. */
  readonly rotaryModeOptional?: 'half';
  /** 1 (BSND), 2 (SBND) or 4 (TND) of {@link ACLNN_LAYOUT}. */
  readonly layout: number;
}

const NAMES: OptionNames<AclnnApplyRotaryPosEmbGradArguments<AclnnFloat>> = {
  gradQueryEmbed: true,
  gradKeyEmbed: true,
  cos: true,
  sin: true,
  queryOptional: true,
  keyOptional: true,
  rotaryModeOptional: true,
  layout: true,
};

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
  const names = { query: 'gradQueryEmbed', key: 'gradKeyEmbed' };
  const mode = ACLNN_ROTARY_MODE.half;
  const name = checkShapes(op, names, [gradQueryEmbed, gradKeyEmbed, cos, sin], layout, mode);
  const given = [queryOptional ?? undefined, keyOptional ?? undefined];
  const [query, key] = given;
  if ((query === undefined) !== (key === undefined)) {
    const missing = query === undefined ? 'queryOptional' : 'keyOptional';
    refuse('SHAPE', `${op}: ${missing}`, 'query and key, or neither', undefined);
  }
  for (const [n, tensor] of given.entries()) {
    if (tensor === undefined) continue;
    const where = `${op}: ${n === 0 ? 'queryOptional' : 'keyOptional'}`;
    checkAclnnFloat(tensor, where, [gradQueryEmbed.dtype]);
    checkDims(tensor, where, (n === 0 ? gradQueryEmbed : gradKeyEmbed).shape);
  }
  const dtype = gradQueryEmbed.dtype;
  return withFresh(rw, dtype, gradQueryEmbed.shape, (gradQueryOut) =>
    withFresh(rw, dtype, gradKeyEmbed.shape, (gradKeyOut) => {
      const tables = { cos: inFour(cos), sin: inFour(sin) };
      const parts = [
        { x: inFour(gradQueryEmbed), out: inFour(gradQueryOut) },
        { x: inFour(gradKeyEmbed), out: inFour(gradKeyOut) },
      ];
      for (const call of bindByTables(op, parts, tables, mode, 'backward', HEAD_DIM[name])) rw.run(call);
      if (!query || !key) return { gradQueryOut, gradKeyOut, gradCosOut: undefined, gradSinOut: undefined };
      const derived = [
        { dy: inFour(gradQueryEmbed), x: inFour(query) },
        { dy: inFour(gradKeyEmbed), x: inFour(key) },
      ];
      const gradients = tableGradients(rw, op, derived, tables.cos.shape, mode);
      const [gradCosOut, gradSinOut] = gradients.map((tensor) => tensor.view(cos.shape) as Tensor<D>);
      return { gradQueryOut, gradKeyOut, gradCosOut, gradSinOut };
    }),
  );
}
