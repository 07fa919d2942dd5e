/** aclnnRopeWithSinCosCache, V1 and V2: query and key by rows of one cache `cos | sin`, with M-RoPE. @module */
import { bindRopeParts, planRopeWithTable, type RopeTable, type Runner, type Tensor } from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import {
  checkApart,
  checkDims,
  checkDtype,
  checkInteger,
  checkOutput,
  checkRunner,
  checkTensor,
  type OptionNames,
  type PairAxes,
  readIntegers,
  readList,
  readOptions,
  sharePairs,
  withFresh,
} from 'ropewalk/internal';
import { type AclnnFloat, checkAclnnFloat } from './tables.js';

/** The arguments of {@link aclnnRopeWithSinCosCache}, with aclnn's names. */
export interface AclnnRopeWithSinCosCacheArguments<D extends AclnnFloat> {
  /** i64 `[numTokens]`: rows of the cache; `[3, numTokens]` or `[4, numTokens]` with mropeSection. */
  readonly positions: Tensor<'i64'>;
  /** `[numTokens, numQHeads · headSize]`, f32, f16 or bf16, any strides. */
  readonly queryIn: Tensor<D>;
  /** `[numTokens, numKHeads · headSize]`, queryIn's dtype. */
  readonly keyIn: Tensor<D>;
  /** `[maxSeqLen, rotaryDim]`, queryIn's dtype, in host memory: the cosines of all pairs, then the sines. */
  readonly cosSinCache: Tensor<D>;
  /** Pairs of each position axis: M-RoPE. Only the lists that the call documents are taken. */
  readonly mropeSection?: readonly number[] | null;
  readonly headSize: number;
  /** true pairs (j, j + rotaryDim/2), false (2j, 2j+1). */
  readonly isNeoxStyle: boolean;
  /** queryIn's shape and dtype; may be queryIn itself. A fresh dense tensor unless given. */
  readonly queryOut?: Tensor<D>;
  /** As queryOut, for the key. */
  readonly keyOut?: Tensor<D>;
}

const NAMES: OptionNames<AclnnRopeWithSinCosCacheArguments<AclnnFloat>> = {
  positions: true,
  queryIn: true,
  keyIn: true,
  cosSinCache: true,
  mropeSection: true,
  headSize: true,
  isNeoxStyle: true,
  queryOut: true,
  keyOut: true,
};

/** The arguments of {@link aclnnRopeWithSinCosCacheV2}, with aclnn's names. */
export interface AclnnRopeWithSinCosCacheV2Arguments<D extends AclnnFloat>
  extends AclnnRopeWithSinCosCacheArguments<D> {
  /** How M-RoPE shares the pairs: 0 in runs `tt hh ww`, 1 in turn `t h w t h w`. */
  readonly cacheMode: number;
}

const V2_NAMES: OptionNames<AclnnRopeWithSinCosCacheV2Arguments<AclnnFloat>> = { ...NAMES, cacheMode: true };

/** What both calls return. */
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
  if (cosSinCache.rank !== 2)
    refuse('SHAPE', `${op}: cosSinCache`, 'two dimensions [maxSeqLen, rotaryDim]', [...cosSinCache.shape]);
  const [maxSeqLen, rotaryDim] = cosSinCache.shape as [number, number];
  if (rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headSize)
    refuse('SHAPE', `${op}: cosSinCache`, `an even rotaryDim in [2, headSize=${headSize}]`, [...cosSinCache.shape]);
  const axes = readSections(op, mropeSection, rotaryDim / 2, cacheMode, legal);
  const numTokens = queryIn.shape[0] ?? 0;
  if (axes.numAxes === 1 && positions.rank === 2)
    refuse(
      'SHAPE',
      `${op}: mropeSection`,
      'a list of pairs for each axis beside positions of two dimensions',
      undefined,
    );
  checkDims(positions, `${op}: positions`, axes.numAxes === 1 ? [numTokens] : [axes.numAxes, numTokens]);
  for (const [name, tensor] of Object.entries({ queryIn, keyIn })) {
    const ok =
      tensor.rank === 2 && tensor.shape[0] === numTokens && tensor.size > 0 && tensor.shape[1]! % headSize === 0;
    const expected = `[numTokens, heads · headSize] with numTokens=${numTokens} and headSize=${headSize}, not empty`;
    if (!ok) refuse('SHAPE', `${op}: ${name}`, expected, [...tensor.shape]);
  }
  const table = gather(op, cosSinCache, readRows(op, positions, maxSeqLen), axes);
  const plan = planRopeWithTable({
    headDim: headSize,
    rotaryDim,
    pairing: isNeoxStyle ? 'half' : 'interleaved',
    table,
    seqLen: numTokens,
    tableRows: Int32Array.from({ length: numTokens }, (_item, token) => token),
  });
  const outputs = { queryOut, keyOut };
  for (const [name, out] of Object.entries(outputs)) {
    if (out === undefined) continue;
    const own = name === 'queryOut' ? 'queryIn' : 'keyIn';
    checkDtype(out, `${op}: ${name}`, queryIn.dtype);
    checkDims(out, `${op}: ${name}`, inputs[own].shape);
    checkOutput(out, `${op}: ${name}`);
    for (const [input, tensor] of Object.entries(inputs))
      checkApart(out, `${op}: ${name}`, input, tensor, input === own);
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

/** The positions `[axes, numTokens]`, each a row of the cache. */
function readRows(op: string, positions: Tensor<'i64'>, maxSeqLen: number): Float64Array {
  const rows = readIntegers(positions, `${op}: positions`);
  for (const [n, row] of rows.entries())
    if (row < 0 || row >= maxSeqLen)
      refuse('RANGE', `${op}: positions[${n}]`, `a row of cosSinCache, in [0, ${maxSeqLen - 1}]`, row);
  return rows;
}

/** A table row for each token: each pair's cosine and sine from the row of its axis. */
function gather(op: string, cache: Tensor, rows: Float64Array, { numAxes, axisOfPair }: PairAxes): RopeTable {
  hostOf(cache, `${op}: cosSinCache`);
  const pairs = axisOfPair.length;
  const values = cache.readNumbers() as Float64Array;
  const numTokens = rows.length / numAxes;
  const cos = new Float32Array(numTokens * pairs);
  const sin = new Float32Array(numTokens * pairs);
  for (let token = 0; token < numTokens; token++) {
    for (let j = 0; j < pairs; j++) {
      const at = rows[axisOfPair[j]! * numTokens + token]! * 2 * pairs + j;
      cos[token * pairs + j] = values[at]!;
      sin[token * pairs + j] = values[at + pairs]!;
    }
  }
  return { rows: numTokens, pairs, cos, sin };
}
