/** Addition, the gated activation, and copies: what goes through tensors of one shape together. @module */
import type { Layout } from '../../../core/shape.js';
import type { Tensor } from '../../../core/tensor.js';
import type { AddPlan } from '../../../ops/add.js';
import type { RearrangePlan } from '../../../ops/rearrange.js';
import type { SwigluPlan } from '../../../ops/swiglu.js';
import { joinDims, type Walk } from '../../walks.js';
import { asBits, type Call, elementOf, inFours, reads, walkEntries, writes } from '../call.js';
import type { Block } from '../memory.js';
import type { Element } from '../shader.js';
import { COPY } from '../shaders/copy.js';
import { ELEMENTWISE } from '../shaders/elementwise.js';

/** Part of a walk that loads of one width can do. */
interface Piece {
  readonly lanes: 1 | 4;
  /** Loads of one operand. */
  readonly n: number;
  readonly offsets: number[];
  readonly walk: number[][];
}

/** A walk in loads of four where strides allow, and what is left of the innermost dimension one by one. */
function pieces({ dims, strides }: Walk, offsets: readonly number[]): Piece[] {
  const inner = dims.at(-1)!;
  const four = Math.floor(inner / 4) * 4;
  const aligned =
    inFours([four], dims.length === 1 ? strides.map(() => [1]) : strides, offsets) &&
    strides.every((list) => list.at(-1) === 1);
  const piece = (lanes: 1 | 4, from: number, to: number): Piece => {
    const sizes = dims.with(-1, (to - from) / lanes);
    return {
      lanes,
      n: sizes.reduce((n, size) => n * size, 1),
      offsets: offsets.map((offset, t) => offset + from * strides[t]!.at(-1)!),
      walk: walkEntries({ dims: sizes, strides: strides.map((list) => list.with(-1, list.at(-1)! * lanes)) }),
    };
  };
  if (!aligned) return [piece(1, 0, inner)];
  return [piece(4, 0, four), piece(1, four, inner)].filter(({ n }) => n > 0);
}

/** Queues `out = a + b`, or the gated activation. */
export function runElementwise(plan: AddPlan | SwigluPlan, call: Call): void {
  const { out } = plan;
  const [a, b] = plan.op === 'add' ? [plan.a, plan.b] : [plan.gate, plan.up];
  call.bring([a, b], [out]);
  if (out.size === 0) return;
  const [outs, as, bs] = [call.place(out), call.place(a), call.place(b)];
  const { dims, strides } = joinDims([out, a, b]);
  const order = [strides[1]!, strides[2]!, strides[0]!];
  const element = elementOf(out.dtype);
  for (const { lanes, n, offsets, walk } of pieces({ dims, strides: order }, [as.offset, bs.offset, outs.offset])) {
    call.launch({
      kernel: ELEMENTWISE,
      variant: { op: plan.op, lanes },
      uses: [
        reads('a', element, lanes, as.block),
        reads('b', element, lanes, bs.block),
        writes('out', element, lanes, outs.block),
      ],
      params: { n, rank: walk.length, a: offsets[0]!, b: offsets[1]!, out: offsets[2]! },
      walk,
      groups: Math.ceil(n / ELEMENTWISE.threads),
    });
  }
}

/** Queues a copy: of bits, or of floats that become floats of another dtype. */
export function runRearrange({ x, out }: RearrangePlan, call: Call): void {
  call.bring([x], [out]);
  if (out.size === 0) return;
  const converts = x.dtype !== out.dtype;
  const elements = (tensor: Tensor): { block: Block; element: Element; layout: Layout } => {
    const { block, offset } = call.place(tensor);
    const { dtype, shape, strides } = tensor;
    if (converts) return { block, element: elementOf(dtype), layout: { shape, strides, offset } };
    return { block, ...asBits(tensor, offset) };
  };
  const [from, to] = [elements(x), elements(out)];
  const { dims, strides } = joinDims([to.layout, from.layout]);
  const places = [from.layout.offset, to.layout.offset];
  for (const { lanes, n, offsets, walk } of pieces({ dims, strides: [strides[1]!, strides[0]!] }, places)) {
    call.launch({
      kernel: COPY,
      variant: { converts },
      uses: [reads('x', from.element, lanes, from.block), writes('out', to.element, lanes, to.block)],
      params: { n, rank: walk.length, x: offsets[0]!, out: offsets[1]! },
      walk,
      groups: Math.ceil(n / COPY.threads),
    });
  }
}
