/** RoPE: it rotates q and k, normalises them and writes into KV caches, in one dispatch. @module */
import type { RopeCall, RopePart } from '../../../ops/rope/call.js';
import type { PairGeometry, RopePlan } from '../../../ops/rope/plan.js';
import {
  type Call,
  cacheElementOf,
  elementOf,
  inFours,
  layoutRun,
  type Place,
  reads,
  type Use,
  usefulStrides,
  writes,
} from '../call.js';
import type { Block } from '../memory.js';
import type { ParamRun } from '../shader.js';
import { epsParams } from '../shaders/common.js';
import {
  MAX_PARTS,
  type PairOrder,
  type RopeParam,
  type RopePartVariant,
  type RopeVariant,
  ropeKernel,
} from '../shaders/rope.js';

/** A part and the places of its tensors. */
interface Placed extends RopePart {
  readonly xAt: Place;
  readonly outAt: Place;
  readonly weightAt: Place | undefined;
  readonly ownAt: Place | undefined;
  /** Says whether out is x itself, so that the dimensions outside the window stay as they are. */
  readonly stays: boolean;
}

/** Queues a rotation. */
export function runRope({ plan, parts }: RopeCall, call: Call): void {
  call.stage(
    parts.flatMap(({ x, norm }) => (norm ? [x, norm.weight] : [x])),
    parts.flatMap(({ out, rowScales }) => (rowScales ? [out, rowScales] : [out])),
  );
  const placed = parts
    .filter(({ x }) => x.size > 0)
    .map((part): Placed => {
      const { x, out, norm, rows, rowScales } = part;
      const [xAt, outAt] = [call.place(x), call.place(out)];
      // The plan has checked that x and out are the same view if they share memory at all.
      const stays = !norm && !rows && x.dtype === out.dtype && xAt.block === outAt.block && xAt.offset === outAt.offset;
      const [weightAt, ownAt] = [norm && call.place(norm.weight), rowScales && call.place(rowScales)];
      return { ...part, xAt, outAt, weightAt, ownAt, stays };
    });
  // A dispatch has as many parts as the device has buffers for: cosines, sines and their rows where they are listed, and
  // x, out, rows and weight of each part.
  const tableFirst = countedFrom(plan.tableRows, plan.tableRows.length);
  const limit = call.shared.maxBuffers - (tableFirst === undefined ? 3 : 2);
  let group: Placed[] = [];
  const blocks = (list: readonly Placed[]): number =>
    new Set(
      list
        .flatMap(({ xAt, outAt, weightAt, ownAt }) => [xAt.block, outAt.block, weightAt?.block, ownAt?.block])
        .filter(Boolean),
    ).size +
    list.filter(({ rows }) => rows && countedFrom(rows, plan.seqLen) === undefined).length +
    list.filter(({ scale }) => scale).length;
  for (const part of placed) {
    if (group.length > 0 && (group.length === MAX_PARTS || blocks([...group, part]) > limit)) {
      rotate(plan, tableFirst, group, call);
      group = [];
    }
    group.push(part);
  }
  if (group.length > 0) rotate(plan, tableFirst, group, call);
}

/** @param tableFirst - the first token's table row, if the rows count up from it */
function rotate(plan: RopePlan, tableFirst: number | undefined, parts: readonly Placed[], call: Call): void {
  const { rotaryDim, rotaryOffset, table, tableRows } = plan;
  const [batch, seq] = parts[0]!.x.shape as [number, number];
  const fours = parts.every(({ x, out, rotate, stays, xAt, outAt, norm, weightAt }) =>
    inFours(
      [...(rotate ? [table.pairs, rotaryOffset] : []), ...(stays ? [] : [x.shape[3]!])],
      [usefulStrides(x), usefulStrides(out), ...(norm ? [norm.weight.strides] : [])],
      [xAt.offset, outAt.offset, weightAt?.offset ?? 0],
    ),
  );
  const byHeads = parts.some(({ norm, rowScales }) => norm || rowScales);
  const lanes = fours && parts.every(({ x, norm }) => !norm || x.shape[3]! % 4 === 0) ? 4 : 1;
  const uses: Use[] = [
    reads('cos', 'f32', lanes, uploadTable(table.cos, call)),
    reads('sin', 'f32', lanes, uploadTable(table.sin, call)),
  ];
  if (tableFirst === undefined) {
    const listed = call.upload(tableRows, tableRows.byteLength, () => tableRows);
    uses.push(reads('table_rows', 'u32', 1, listed));
  }
  const params: Partial<Record<RopeParam, number>> = {};
  const runs: ParamRun<RopeParam>[] = [];
  let total = 0;
  const variants = parts.map((part, p): RopePartVariant => {
    const { x, out, xAt, outAt, rows, blockSize, rotate, scale, rowScales, norm, weightAt, ownAt, stays } = part;
    const [heads, headDim] = [x.shape[2]!, x.shape[3]!];
    const [pairs, rest] = rotate ? [table.pairs, headDim - rotaryDim] : [0, headDim];
    const units = (pairs + (stays ? 0 : rest)) / lanes;
    const first = rows ? countedFrom(rows, seq) : 0;
    uses.push(reads(`x${p}`, elementOf(x.dtype), lanes, xAt.block));
    uses.push(writes(`out${p}`, cacheElementOf(out.dtype), lanes, outAt.block));
    if (norm) uses.push(reads(`weight${p}`, elementOf(norm.weight.dtype), lanes, weightAt!.block));
    if (rows && first === undefined) uses.push(reads(`rows${p}`, 'u32', 1, call.temporary(rows)));
    if (scale) uses.push(reads(`scale${p}`, 'f32', lanes, call.temporary(scale)));
    if (rowScales) {
      uses.push(writes(`own${p}`, 'f32', 1, ownAt!.block));
      runs.push(layoutRun(`own${p}`, ownAt!, rowScales));
    }
    const sizes = [heads, headDim, units, first ?? 0, blockSize ?? 0]; // in the order of the kernel's parameters
    const weights = [weightAt?.offset ?? 0, norm?.weight.strides[0] ?? 0];
    runs.push(layoutRun(`x${p}`, xAt, x), layoutRun(`out${p}`, outAt, out));
    runs.push({ from: `heads${p}`, values: [...sizes, ...weights] });
    if (norm) {
      const { eps, smallEps } = epsParams(norm.eps);
      params[`eps${p}`] = eps;
      params[`smallEps${p}`] = smallEps;
    }
    total += byHeads ? heads : heads * units;
    return {
      rotate,
      rest: stays ? 'stays' : norm || x.dtype !== out.dtype ? 'values' : 'bits',
      rows: first === undefined ? 'listed' : 'counted',
      blocks: blockSize !== undefined,
      norm: norm !== undefined,
      scale: scale !== undefined,
      own: rowScales !== undefined,
    };
  });
  params.tokens = batch * seq;
  params.seq = seq;
  params.total = total;
  params.pairs = table.pairs;
  params.offset = rotaryOffset;
  params.rotaryDim = rotaryDim;
  params.gap = rotaryDim / 2;
  params.perBatch = plan.batch === undefined ? 0 : 1;
  params.tableRows = tableFirst ?? 0;
  const orderOf = ({ step }: PairGeometry): PairOrder => (step === 2 ? 'interleaved' : 'half');
  const variant: RopeVariant = {
    lanes,
    read: orderOf(plan.read),
    write: orderOf(plan.write),
    tableRows: tableFirst === undefined ? 'listed' : 'counted',
    parts: variants,
  };
  const kernel = ropeKernel(parts.length);
  const work = batch * seq * total;
  const groups = byHeads ? work : Math.ceil(work / kernel.threads);
  call.launch({ kernel, variant, uses, params, runs, groups });
}

/**
 * Finds the first number of a list that counts up by one, in each run of `length`, from the same number >= 0; undefined
 * for any other list.
 */
function countedFrom(list: Int32Array, length: number): number | undefined {
  const first = list[0] ?? 0;
  if (first < 0) return undefined; // The first token is skipped.
  for (let n = 0; n < list.length; n++) if (list[n] !== first + (n % length)) return undefined;
  return first;
}

/** Uploads cosines or sines, which are found again by their array. */
function uploadTable(values: RopePlan['table']['cos'], call: Call): Block {
  return call.upload(values, values.length * 4, () => Float32Array.from(values));
}
