/** aclnnRopeWithSinCosCache, V1 and V2, rotates query and key by rows of one cache `cos | sin`, with M-RoPE. @module */
import { bindRopeParts, planRopeWithTable, type Runner, type Tensor } from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import {
  checkApart,
  checkDims,
  checkDtype,
  checkInteger,
  checkRunner,
  checkTensor,
  type OptionNames,
  optionNames,
  type PairAxes,
  readIntegers,
  readList,
  readOptions,
  sharePairs,
  tableFromTensors,
  withFresh,
} from 'ropewalk/internal';
import { checkWritten, countUp, gatherTable, spanOf } from '../calls.js';
import { type AclnnFloat, checkAclnnFloat } from './tables.js';

/** The arguments of {@link aclnnRopeWithSinCosCache}, with aclnn's names. */
export interface AclnnRopeWithSinCosCacheArguments<D extends AclnnFloat> {
  /** The rows of the cache are i64 `[numTokens]`, with mropeSection `[3, numTokens]` or `[4, numTokens]`. */
  readonly positions: Tensor<'i64'>;
  /** `[numTokens, numQHeads · headSize]`, f32, f16 or bf16, any strides. */
  readonly queryIn: Tensor<D>;
  /** `[numTokens, numKHeads · headSize]`, queryIn's dtype. */
  readonly keyIn: Tensor<D>;
  /** `[maxSeqLen, rotaryDim]`, queryIn's dtype, in host memory: the cosines of all pairs, then the sines. */
  readonly cosSinCache: Tensor<D>;
  /** M-RoPE gives so many pairs to each position axis. The call takes only the lists that aclnn documents. */
  readonly mropeSection?: readonly number[] | null;
  readonly headSize: number;
  /** The value true rotates pairs (j, j + rotaryDim/2), false pairs (2j, 2j+1). */
  readonly isNeoxStyle: boolean;
  /** The output, with queryIn's shape and dtype; may be queryIn itself. Default: a fresh dense tensor. */
  readonly queryOut?: Tensor<D>;
  /** The output of the key, as queryOut. */
  readonly keyOut?: Tensor<D>;
}

const NAMES: OptionNames<AclnnRopeWithSinCosCacheArguments<AclnnFloat>> = /* @__PURE__ */ optionNames(
  'positions queryIn keyIn cosSinCache mropeSection headSize isNeoxStyle queryOut keyOut',
);

/** The arguments of {@link aclnnRopeWithSinCosCacheV2}, with aclnn's names. */
export interface AclnnRopeWithSinCosCacheV2Arguments<D extends AclnnFloat>
  extends AclnnRopeWithSinCosCacheArguments<D> {
  /** M-RoPE shares the pairs in runs `tt hh ww` (0), or in turn `t h w t h w` (1). */
  readonly cacheMode: number;
}

const V2_NAMES: OptionNames<AclnnRopeWithSinCosCacheV2Arguments<AclnnFloat>> = { ...NAMES, cacheMode: true };

/** The outputs of both calls. */
export interface RotatedQueryKey<D extends AclnnFloat> {
  readonly queryOut: Tensor<D>;
  readonly keyOut: Tensor<D>;
}

type Sections = readonly number[];

const SECTIONS: readonly Sections[] = [
  [16, 24, 24],
  [24, 20, 20],
  [8, 12, 12],
  [16, 16, 16, 16],
];

/**
 * `aclnnRopeWithSinCosCache(positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, isNeoxStyle, queryOut,
 * keyOut)`: rotates the first rotaryDim dimensions of each head by the cache's rows.
 *
 * @param rw - runs the plan
 * @param options - the arguments
 * @returns queryOut and keyOut
 * @throws {RopewalkError} UNSUPPORTED, SHAPE, DTYPE, RANGE or ALIAS, naming the argument; nothing is written then
 * @see hicann/ops-transformer@207543b8 posembedding/rope_with_sin_cos_cache
 */
export function aclnnRopeWithSinCosCache<D extends AclnnFloat>(
  rw: Runner,
  options: AclnnRopeWithSinCosCacheArguments<D>,
): RotatedQueryKey<D> {
  const op = 'aclnnRopeWithSinCosCache';
  checkRunner(rw, `${op}: rw`);
  return rotateByCache(rw, op, readOptions(options, `${op}: arguments`, NAMES), 0, SECTIONS);
}

/**
 * `aclnnRopeWithSinCosCacheV2`: {@link aclnnRopeWithSinCosCache} with cacheMode.
 *
 * @param rw - runs the plan
 * @param options - the arguments
 * @returns queryOut and keyOut
 * @throws {RopewalkError} as {@link aclnnRopeWithSinCosCache}
 * @see hicann/ops-transformer@0dd10d2d posembedding/rope_with_sin_cos_cache
 */
export function aclnnRopeWithSinCosCacheV2<D extends AclnnFloat>(
  rw: Runner,
  options: AclnnRopeWithSinCosCacheV2Arguments<D>,
): RotatedQueryKey<D> {
  const op = 'aclnnRopeWithSinCosCacheV2';
  checkRunner(rw, `${op}: rw`);
  const { cacheMode, ...given } = readOptions(options, `${op}: arguments`, V2_NAMES);
  if (cacheMode !== 0 && cacheMode !== 1)
    refuse('UNSUPPORTED', `${op}: cacheMode`, '0 (in runs) or 1 (in turn)', cacheMode);
  return rotateByCache(rw, op, given, cacheMode, [[11, 11, 10], ...SECTIONS]);
}

function rotateByCache<D extends AclnnFloat>(
  rw: Runner,
  op: string,
  given: AclnnRopeWithSinCosCacheArguments<D>,
  cacheMode: 0 | 1,
  legal: readonly Sections[],
): RotatedQueryKey<D> {
  const { positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, isNeoxStyle, queryOut, keyOut } = given;
  const inputs = { positions, queryIn, keyIn, cosSinCache };
  for (const [name, tensor] of Object.entries(inputs)) checkTensor(tensor, `${op}: ${name}`);
  checkDtype(positions, `${op}: positions`, 'i64');
  checkAclnnFloat(queryIn, `${op}: queryIn`);
  checkAclnnFloat(keyIn, `${op}: keyIn`, [queryIn.dtype]);
  checkAclnnFloat(cosSinCache, `${op}: cosSinCache`, [queryIn.dtype]);
  if (typeof isNeoxStyle !== 'boolean') refuse('RANGE', `${op}: isNeoxStyle`, 'true or false', isNeoxStyle);
  checkInteger(headSize, `${op}: headSize`, 2);
  if (headSize % 2 !== 0) refuse('SHAPE', `${op}: headSize`, 'an even headSize', headSize);
  if (cosSinCache.rank !== 2)
    refuse('SHAPE', `${op}: cosSinCache`, 'two dimensions [maxSeqLen, rotaryDim]', [...cosSinCache.shape]);
  const [maxSeqLen, rotaryDim] = cosSinCache.shape as [number, number];
  if (rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headSize)
    refuse('SHAPE', `${op}: cosSinCache`, `an even rotaryDim in [2, headSize=${headSize}]`, [...cosSinCache.shape]);
  const axes = readSections(op, mropeSection, rotaryDim / 2, cacheMode, legal);
  const numTokens = queryIn.shape[0] ?? 0;
  const perAxis = 'a list of pairs for each axis beside positions of two dimensions';
  if (axes.numAxes === 1 && positions.rank === 2) refuse('SHAPE', `${op}: mropeSection`, perAxis, undefined);
  checkDims(positions, `${op}: positions`, axes.numAxes === 1 ? [numTokens] : [axes.numAxes, numTokens]);
  for (const [name, tensor] of Object.entries({ queryIn, keyIn })) {
    const ok =
      tensor.rank === 2 && tensor.shape[0] === numTokens && tensor.size > 0 && tensor.shape[1]! % headSize === 0;
    const expected = `[numTokens, heads · headSize] with numTokens=${numTokens} and headSize=${headSize}, not empty`;
    if (!ok) refuse('SHAPE', `${op}: ${name}`, expected, [...tensor.shape]);
  }
  const rows = readIntegers(positions, `${op}: positions`);
  const { first, end } = spanOf(rows, maxSeqLen, (n, row) =>
    refuse('RANGE', `${op}: positions[${n}]`, `a row of cosSinCache, in [0, ${maxSeqLen - 1}]`, row),
  );
  hostOf(cosSinCache, `${op}: cosSinCache`);
  const pairs = rotaryDim / 2;
  const used = cosSinCache.slice(0, first, end);
  const table = tableFromTensors(used.slice(1, 0, pairs), used.slice(1, pairs, rotaryDim), op);
  const usedRows = rows.map((row) => row - first);
  const plan = planRopeWithTable({
    headDim: headSize,
    rotaryDim,
    pairing: isNeoxStyle ? 'half' : 'interleaved',
    table: gatherTable(table, usedRows, axes.axisOfPair, numTokens),
    seqLen: numTokens,
    tableRows: countUp(numTokens),
  });
  const outputs = { queryOut, keyOut };
  for (const [name, out] of Object.entries(outputs)) {
    if (out === undefined) continue;
    const own = name === 'queryOut' ? 'queryIn' : 'keyIn';
    checkDtype(out, `${op}: ${name}`, queryIn.dtype);
    checkDims(out, `${op}: ${name}`, inputs[own].shape);
    checkWritten(op, name, out, inputs, own);
  }
  if (queryOut !== undefined && keyOut !== undefined) checkApart(keyOut, `${op}: keyOut`, 'queryOut', queryOut);
  const heads = (tensor: Tensor<D>): Tensor<D> => tensor.view([numTokens, tensor.shape[1]! / headSize, headSize]);
  const into = (out: Tensor<D> | undefined, like: Tensor<D>, use: (out: Tensor<D>) => RotatedQueryKey<D>) =>
    out === undefined ? withFresh(rw, like.dtype, like.shape, use) : use(out);
  return into(queryOut, queryIn, (query) =>
    into(keyOut, keyIn, (key) => {
      const parts = [
        { x: heads(queryIn), out: heads(query) },
        { x: heads(keyIn), out: heads(key) },
      ];
      rw.run(bindRopeParts(plan, parts));
      return { queryOut: query, keyOut: key };
    }),
  );
}

function readSections(
  op: string,
  given: readonly number[] | undefined | null,
  pairs: number,
  cacheMode: 0 | 1,
  legal: readonly Sections[],
): PairAxes {
  if (given === undefined || given === null) return sharePairs(undefined, pairs);
  const where = `${op}: mropeSection`;
  const sections = Array.from(readList(given, where, 'a list of pairs for each axis'));
  const lists = legal.map((list) => `[${list}]`);
  if (!legal.some((list) => list.length === sections.length && list.every((n, axis) => n === sections[axis])))
    refuse('UNSUPPORTED', where, `${lists.slice(0, -1).join(', ')} or ${lists.at(-1)}`, sections);
  if (cacheMode === 1 && sections.length === 4)
    refuse('UNSUPPORTED', where, 'three axes with cacheMode 1', sections, 'Give cacheMode 0.');
  const sum = sections.reduce((total, n) => total + n, 0);
  if (sum !== pairs) refuse('SHAPE', where, `rotaryDim / 2 = ${pairs} pairs in all`, sections);
  if (cacheMode === 0) return sharePairs({ rule: 'sections', sections }, pairs, op);
  // The document lets h and w take turns up to 3 · mropeSection[1] alike.
  return sharePairs({ rule: 'interleaved', sections: [sections[0]!, sections[1]!, sections[1]!] }, pairs, op);
}
