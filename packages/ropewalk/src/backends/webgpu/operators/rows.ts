/** Operators that go row by row: embedding, the norms, argmax, route. @module */
import { isBlocks } from '../../../core/blocks.js';
import { countElements } from '../../../core/shape.js';
import type { Tensor } from '../../../core/tensor.js';
import type { ArgmaxPlan } from '../../../ops/argmax.js';
import type { EmbeddingPlan } from '../../../ops/embedding.js';
import type { LayerNormPlan } from '../../../ops/layer-norm.js';
import type { RmsNormPlan } from '../../../ops/rms-norm.js';
import { LEAST_SUM, type RoutePlan } from '../../../ops/route.js';
import { rowsOf } from '../../walks.js';
import {
  asBits,
  type Call,
  elementOf,
  inFours,
  type Place,
  reads,
  usefulStrides,
  walkEntries,
  writes,
} from '../call.js';
import { argmaxKernel } from '../shaders/argmax.js';
import { epsParams } from '../shaders/common.js';
import { GATHER, GATHER_WIDE } from '../shaders/copy.js';
import { normKernel } from '../shaders/norm.js';
import { routeKernel } from '../shaders/route.js';
import { weightAt } from './linear.js';

/** Queues a look-up of rows. */
export function runEmbedding(plan: EmbeddingPlan, call: Call): void {
  const { rows, weight, out } = plan;
  if (isBlocks(weight) || weight.dtype !== out.dtype) {
    runWideEmbedding(plan, call);
    return;
  }
  call.stage([weight], [out]);
  if (out.size === 0) return;
  const [from, to] = [call.place(weight), call.place(out)];
  const { element, layout: table } = asBits(weight, from.offset);
  const { layout: target } = asBits(out, to.offset);
  // A column of 64-bit elements is two words.
  const columns = table.shape.slice(1);
  const width = countElements(columns);
  const dense = [table, target].every(
    ({ strides }) => strides.at(-1) === 1 && (columns.length === 1 || strides[1] === 2),
  );
  const rowStrides = [table, target].map((layout) => usefulStrides(layout)[0]!);
  const rowsOfFour = rowStrides.map((stride) => [stride, 1]);
  const lanes = dense && inFours([width], rowsOfFour, [table.offset, target.offset]) ? 4 : 1;
  const walk = dense
    ? [[width / lanes, lanes, lanes]]
    : walkEntries({ dims: columns, strides: [table.strides.slice(1), target.strides.slice(1)] });
  const [weightRow, outRow] = [table.strides[0]!, target.strides[0]!];
  const places = { weight: table.offset, weightRow, out: target.offset, outRow };
  const n = (rows.length * width) / lanes;
  call.launch({
    kernel: GATHER,
    variant: undefined,
    uses: [
      reads('rows', 'u32', 1, call.temporary(Uint32Array.from(rows))),
      reads('weight', element, lanes, from.block),
      writes('out', element, lanes, to.block),
    ],
    params: { n, rank: walk.length, width: width / lanes, rows: 0, ...places },
    walk,
    groups: Math.ceil(n / GATHER.threads),
  });
}

/** Queues a look-up that widens rows to f32. */
function runWideEmbedding({ rows, weight, out }: EmbeddingPlan, call: Call): void {
  const matrix = isBlocks(weight) ? weight.bytes : weight;
  call.stage([matrix], [out]);
  if (out.size === 0) return;
  const [from, to] = [call.place(matrix), call.place(out)];
  const width = out.shape[1]!;
  const table = weightAt(weight, from, call);
  const lanes = inFours([width], [usefulStrides(out)], [to.offset]) ? 4 : 1;
  const target = { out: to.offset, outRow: out.strides[0]!, outStep: out.strides[1]! };
  const fours = Math.ceil(width / 4);
  const n = rows.length * fours;
  call.launch({
    kernel: GATHER_WIDE,
    variant: { weight: table.load, out: lanes },
    uses: [
      reads('rows', 'u32', 1, call.temporary(Uint32Array.from(rows))),
      ...table.uses,
      writes('out', 'f32', lanes, to.block),
    ],
    params: { units: n, fours, k: width, ...table.params, ...target },
    groups: Math.ceil(n / GATHER_WIDE.threads),
  });
}

/** Queues an RMS norm or a layer norm. */
export function runNorm(plan: RmsNormPlan | LayerNormPlan, call: Call): void {
  const { x, weight, eps, out } = plan;
  const centered = plan.op === 'layer_norm';
  const bias = centered ? plan.bias : undefined;
  const vectors = bias ? [weight, bias] : [weight];
  call.stage([x, ...vectors], [out]);
  if (out.size === 0) return;
  const [xs, outs] = [call.place(x), call.place(out)];
  const [ws, bs] = vectors.map((vector) => call.place(vector)) as [Place, Place?];
  const d = weight.shape[0]!;
  const walk = rowsOf([x, out]);
  const element = elementOf(out.dtype);
  const strides = [usefulStrides(x), usefulStrides(out), ...vectors.map((vector) => vector.strides)];
  const lanes = inFours([d], strides, [xs.offset, outs.offset, ws.offset, bs?.offset ?? 0]) ? 4 : 1;
  const rows = countElements(walk.dims);
  const firsts = { x: xs.offset, weight: ws.offset, bias: bs?.offset ?? 0, out: outs.offset };
  const stepOf = ({ strides }: Tensor): number => strides.at(-1)! * lanes;
  const steps = {
    xStep: stepOf(x),
    weightStep: stepOf(weight),
    biasStep: bias ? stepOf(bias) : 0,
    outStep: stepOf(out),
  };
  const uses = [
    reads('x', element, lanes, xs.block),
    reads('weight', elementOf(weight.dtype), lanes, ws.block),
    writes('out', element, lanes, outs.block),
  ];
  if (bias) uses.push(reads('bias', elementOf(bias.dtype), lanes, bs!.block));
  call.launch({
    kernel: normKernel(d / lanes),
    variant: { lanes, centered, biased: bias !== undefined },
    uses,
    params: { rows, rank: walk.dims.length, width: d / lanes, d, ...epsParams(eps), ...firsts, ...steps },
    walk: walkEntries(walk),
    groups: rows,
  });
}

/** Queues an argmax. */
export function runArgmax({ values, outIndex, outValue }: ArgmaxPlan, call: Call): void {
  call.stage([values], [outIndex, outValue]);
  if (outIndex.size === 0) return;
  const [from, index, value] = [call.place(values), call.place(outIndex), call.place(outValue)];
  const { dims, strides } = rowsOf([values, outIndex, outValue]);
  const dtype = elementOf(values.dtype);
  const words = outIndex.dtype === 'i64' ? 2 : 1;
  const indexStrides = strides[1]!.map((stride) => stride * words);
  const firsts = { values: from.offset, index: index.offset * words, value: value.offset };
  const n = values.shape.at(-1)!;
  const rows = countElements(dims);
  call.launch({
    kernel: argmaxKernel(n),
    variant: { dtype, words },
    uses: [
      reads('values', dtype, 1, from.block),
      writes('index', 'u32', 1, index.block),
      writes('value', dtype, 1, value.block),
    ],
    params: { rows, rank: dims.length, n, step: values.strides.at(-1)!, ...firsts },
    walk: walkEntries({ dims, strides: strides.with(1, indexStrides) }),
    groups: rows,
  });
}

/** Queues a choice of experts. */
export function runRoute(plan: RoutePlan, call: Call): void {
  const { logits, gate, jitter, bias, groups, normalize, scale, indices, weights } = plan;
  call.stage(bias ? [logits, bias] : [logits], [indices, weights]);
  if (indices.size === 0) return;
  const [tokens, experts] = logits.shape as [number, number];
  const chosen = indices.shape[1]!;
  const [from, ids, to, biasAt] = [
    call.place(logits),
    call.place(indices),
    call.place(weights),
    bias && call.place(bias),
  ];
  const { count = 0, used = 0, best = 0 } = groups ?? {};
  const element = elementOf(logits.dtype);
  const uses = [
    reads('logits', element, 1, from.block),
    writes('indices', 'u32', 1, ids.block),
    writes('weights', element, 1, to.block),
    writes('work', 'f32', 1, call.scratch(tokens * (experts + count + chosen) * 4)),
  ];
  if (biasAt) uses.push(reads('bias', elementOf(bias!.dtype), 1, biasAt.block));
  const firsts = { logits: from.offset, bias: biasAt?.offset ?? 0, indices: ids.offset, weights: to.offset };
  call.launch({
    kernel: routeKernel(experts),
    variant: { gate, bias: bias !== undefined, groups: groups !== undefined, normalize },
    uses,
    params: {
      ...{ tokens, experts, chosen, groups: count, used, best, scale, leastSum: LEAST_SUM, ...firsts },
      twiceJitter: 2 * jitter,
      ...{ logitsRow: logits.strides[0]!, logitsStep: logits.strides[1]!, biasStep: bias?.strides[0] ?? 0 },
      ...{ indexRow: indices.strides[0]!, indexStep: indices.strides[1]! },
      ...{ weightRow: weights.strides[0]!, weightStep: weights.strides[1]! },
    },
    groups: tokens,
  });
}
