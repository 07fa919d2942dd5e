/** The operators that go through tensors of one shape together: addition, the activations, scale, copies. @module */
import type { Layout } from '../../../core/shape.js';
import type { Tensor } from '../../../core/tensor.js';
import type { RearrangePlan } from '../../../ops/rearrange.js';
import { type ElementwisePlan, elementwiseTerms } from '../../elementwise.js';
import { joinDims, type Walk } from '../../walks.js';
import { asBits, type Call, elementOf, inFours, reads, walkEntries, writes } from '../call.js';
import type { Block } from '../memory.js';
import type { Element } from '../shader.js';
import { COPY } from '../shaders/copy.js';
import { ELEMENTWISE } from '../shaders/elementwise.js';

/** A part of a walk with loads of one width. */
interface Piece {
  readonly lanes: 1 | 4;
  /** The number of loads of one operand. */
  readonly n: number;
  readonly offsets: number[];
  readonly walk: number[][];
}

/** Cuts a walk into loads of four where strides allow, and single loads of the rest of the innermost dimension. */
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

/** Queues an operator that computes element by element. */
export function runElementwise(plan: ElementwisePlan, call: Call): void {
  const { out } = plan;
  const { activation, a, b, parameters } = elementwiseTerms(plan);
  const operands = b ? [a, out, b] : [a, out];
  call.stage(b ? [a, b] : [a], [out]);
  if (out.size === 0) return;
  const places = operands.map((tensor) => call.place(tensor));
  const { dims, strides } = joinDims([out, a, ...operands.slice(2)]);
  const order = [strides[1]!, strides[0]!, ...strides.slice(2)];
  const element = elementOf(out.dtype);
  const [first = 0, second = 0, third = 0] = parameters;
  const starts = places.map(({ offset }) => offset);
  for (const { lanes, n, offsets, walk } of pieces({ dims, strides: order }, starts)) {
    const uses = [reads('a', element, lanes, places[0]!.block), writes('out', element, lanes, places[1]!.block)];
    if (b) uses.push(reads('b', element, lanes, places[2]!.block));
    const [from, to, other = 0] = offsets as [number, number, number?];
    call.launch({
      kernel: ELEMENTWISE,
      variant: { activation, second: b !== undefined, lanes },
      uses,
      params: { n, rank: walk.length, a: from, b: other, out: to, first, second, third },
      walk,
      groups: Math.ceil(n / ELEMENTWISE.threads),
    });
  }
}

/** Queues a copy: of bits, or of floats that become floats of another dtype. */
export function runRearrange({ x, out }: RearrangePlan, call: Call): void {
  call.stage([x], [out]);
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
