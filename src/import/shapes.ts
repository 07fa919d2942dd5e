/**
 * What a graph says of its shapes without being run: one pass in the order of the nodes.
 *
 * A dimension is a number or a name. Names that exporters give (`batch_size`) and names made here (`value#axis`) alike stand for one unknown
 * number each, so that a Reshape to `[…, -1, 2]` whose other dimensions came from the same tensor still has a known size.
 *
 * @module
 */
import { RopewalkError } from '../core/errors.js';
import type { OnnxModelNode, OnnxTensor } from '../formats/onnx-model.js';
import { constantOfNode, intsAttribute, numberAttribute, Scope } from './scope.js';

/** A dimension: its size, or the name of a size that is not known. */
export type Dim = number | string;

/** Integer vectors longer than this are data, not shapes. */
const MAX_CONTENT = 64;
/** More than numpy has; what is above is forged. */
export const MAX_RANK = 64;

/** Operators whose output has the shape of their first input. */
const SAME_SHAPE: ReadonlySet<string> = /* @__PURE__ */ new Set(
  (
    'Identity Cast CastLike Neg Cos Sin Exp Log Sqrt Reciprocal Abs Floor Ceil Round Not Sigmoid Relu Tanh Erf Gelu Softmax Dropout Clip CumSum ' +
    'LayerNormalization SimplifiedLayerNormalization RMSNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization RotaryEmbedding ' +
    'ScatterND ScatterElements Trilu QuickGelu FastGelu BiasGelu'
  ).split(' '),
);
/** Operators that broadcast all their inputs. */
const BROADCAST: ReadonlySet<string> = /* @__PURE__ */ new Set(
  'Add Sub Mul Div Pow Mod Min Max Where Equal Greater Less GreaterOrEqual LessOrEqual And Or Xor Sum PRelu'.split(' '),
);

/** Shapes of a scope's values, and the contents of its small integer vectors. */
export class Shapes {
  private readonly shapes = new Map<string, readonly Dim[]>();
  private readonly contents = new Map<string, readonly Dim[]>();

  /**
   * @param scope - the graph
   * @param around - of the graph around it
   */
  constructor(
    readonly scope: Scope,
    private readonly around?: Shapes,
  ) {
    for (const node of scope.graph.nodes) this.visit(node);
    this.hintLastDims();
  }

  /** The shape of a value; undefined when not even its rank is known. */
  shapeOf(value: string): readonly Dim[] | undefined {
    const known = this.shapes.get(value);
    if (known) return known;
    const constant = this.scope.graph.initializers.get(value);
    if (constant) return constant.shape;
    const declared = this.scope.declared(value)?.shape;
    if (declared) {
      const shape = declared.map((dim, axis) => dim ?? `${value}#${axis}`);
      this.shapes.set(value, shape);
      return shape;
    }
    return this.around?.shapeOf(value);
  }

  /** The entries of a small integer scalar or vector, as far as they are known; undefined when it is none. */
  contentOf(value: string): readonly Dim[] | undefined {
    const known = this.contents.get(value);
    if (known) return known;
    const constant = this.scope.graph.initializers.get(value);
    if (!constant) return this.around?.contentOf(value);
    const content = smallIntegers(constant);
    if (content) this.contents.set(value, content);
    return content;
  }

  /** The entries of an integer vector when all of them are numbers. */
  numbersOf(value: string | undefined): readonly number[] | undefined {
    const content = value ? this.contentOf(value) : undefined;
    return content?.every((entry) => typeof entry === 'number') ? (content as readonly number[]) : undefined;
  }

  private visit(node: OnnxModelNode): void {
    const inferred = this.infer(node);
    for (const [n, output] of node.outputs.entries()) {
      if (output === '') continue;
      const shape = inferred?.[n];
      const declared = this.scope.declared(output)?.shape;
      if (
        shape &&
        shape.length <= MAX_RANK &&
        shape.every((dim) => typeof dim === 'string' || (Number.isSafeInteger(dim) && dim >= 0))
      ) {
        this.shapes.set(
          output,
          shape.map((dim, axis) => {
            const said = declared?.length === shape.length ? declared[axis] : undefined;
            return typeof dim === 'number' ? dim : typeof said === 'number' ? said : dim;
          }),
        );
      }
    }
    const content = this.inferContent(node);
    if (content && content.length <= MAX_CONTENT) this.contents.set(node.outputs[0]!, content);
  }

  /** x · cos says how wide x is where nothing else does. */
  private hintLastDims(): void {
    for (const node of this.scope.graph.nodes) {
      if (node.opType !== 'Mul') continue;
      const shapes = node.inputs.map((input) => this.shapeOf(input));
      const widths = shapes.map((shape) => shape?.at(-1));
      for (const [n, shape] of shapes.entries()) {
        const other = widths[1 - n];
        if (shape && typeof widths[n] === 'string' && typeof other === 'number' && other > 1) {
          const symbol = widths[n] as string;
          for (const [value, dims] of this.shapes) {
            if (dims.includes(symbol))
              this.shapes.set(
                value,
                dims.map((dim) => (dim === symbol ? other : dim)),
              );
          }
        }
      }
    }
  }

  private infer(node: OnnxModelNode): readonly (readonly Dim[] | undefined)[] | undefined {
    const first = node.inputs[0] === undefined || node.inputs[0] === '' ? undefined : this.shapeOf(node.inputs[0]);
    const op = node.opType;
    if (SAME_SHAPE.has(op)) return [first];
    if (BROADCAST.has(op)) {
      const shapes = node.inputs.filter((input) => input !== '').map((input) => this.shapeOf(input));
      // What is known of one side of a product or sum stands for both: tables are broadcast to x, not x to them. Who runs it checks.
      return [
        broadcastDims(
          shapes.some((shape) => shape && shape.length >= 3 && shape.at(-1) !== 1)
            ? shapes.filter((shape) => shape)
            : shapes,
        ),
      ];
    }
    const fresh = (axis: number): string => `${node.outputs[0]}#${axis}`;
    switch (op) {
      case 'Constant': {
        const constant = constantOfNode(node);
        return [constant?.shape];
      }
      case 'Shape':
        return [first && [this.sliceOfShape(node, first).length]];
      case 'Reshape': {
        const target = this.contentOf(node.inputs[1] ?? '');
        if (!target) {
          const rank = this.shapeOf(node.inputs[1] ?? '')?.[0];
          return [
            typeof rank === 'number' && rank <= MAX_RANK
              ? Array.from({ length: rank }, (_, axis) => fresh(axis))
              : undefined,
          ];
        }
        return [reshapeDims(first, target, numberAttribute(node, 'allowzero', 0) !== 0, fresh)];
      }
      case 'Transpose': {
        if (!first) return undefined;
        const order = intsAttribute(node, 'perm') ?? first.map((_, axis) => first.length - 1 - axis);
        return [order.every((axis) => first[axis] !== undefined) ? order.map((axis) => first[axis]!) : undefined];
      }
      case 'Unsqueeze':
      case 'Squeeze': {
        const axes = this.axesOf(node);
        if (!first) return undefined;
        if (op === 'Unsqueeze') return [axes && unsqueezeDims(first, axes)];
        if (!axes)
          return [
            node.inputs.length < 2 && first.every((dim) => typeof dim === 'number')
              ? first.filter((dim) => dim !== 1)
              : undefined,
          ];
        const gone = new Set(axes.map((axis) => (axis < 0 ? axis + first.length : axis)));
        return [first.filter((_, axis) => !gone.has(axis))];
      }
      case 'Concat': {
        const shapes = node.inputs.map((input) => this.shapeOf(input));
        const known = shapes.find((shape) => shape);
        if (!known) return undefined;
        const axis = axisAt(numberAttribute(node, 'axis', 0), known.length);
        if (axis === undefined) return undefined;
        const sizes = shapes.map((shape) => shape?.[axis]);
        const sum = sizes.every((size) => typeof size === 'number')
          ? (sizes as number[]).reduce((total, size) => total + size, 0)
          : fresh(axis);
        const best = known.map(
          (dim, d) => shapes.map((shape) => shape?.[d]).find((size) => typeof size === 'number') ?? dim,
        );
        return [best.with(axis, sum)];
      }
      case 'Slice':
        return [first && this.sliceDims(node, first, fresh)];
      case 'Split': {
        if (!first) return undefined;
        const sizes = this.splitSizes(node, first);
        const axis = axisAt(numberAttribute(node, 'axis', 0), first.length);
        return axis === undefined
          ? undefined
          : node.outputs.map((output, n) => first.with(axis, sizes?.[n] ?? `${output}#${axis}`));
      }
      case 'Gather': {
        const indices = this.shapeOf(node.inputs[1] ?? '');
        if (!first || !indices) return undefined;
        const axis = axisAt(numberAttribute(node, 'axis', 0), first.length);
        return axis === undefined ? undefined : [[...first.slice(0, axis), ...indices, ...first.slice(axis + 1)]];
      }
      case 'Expand': {
        const target = this.contentOf(node.inputs[1] ?? '') ?? this.unknownVector(node.inputs[1] ?? '');
        return [target && broadcastDims([first, target])];
      }
      case 'Tile': {
        const repeats = this.contentOf(node.inputs[1] ?? '');
        if (!first || repeats?.length !== first.length) return undefined;
        return [
          first.map((dim, axis) => {
            const times = repeats[axis]!;
            return times === 1 ? dim : typeof dim === 'number' && typeof times === 'number' ? dim * times : fresh(axis);
          }),
        ];
      }
      case 'MatMul': {
        const second = this.shapeOf(node.inputs[1] ?? '');
        if (!first || !second || first.length < 2 || second.length < 2) return undefined;
        const lead = broadcastDims([first.slice(0, -2), second.slice(0, -2)]);
        return [lead && [...lead, first.at(-2)!, second.at(-1)!]];
      }
      case 'MatMulNBits':
        return [
          first && first.length > 0
            ? first.with(-1, numberAttribute(node, 'N', 0) || fresh(first.length - 1))
            : undefined,
        ];
      case 'Range': {
        const ends = node.inputs.map((input) => this.numbersOf(input)?.[0]);
        const [start, limit, delta] = ends;
        const known = start !== undefined && limit !== undefined && delta !== undefined && delta !== 0;
        return [[known ? Math.max(0, Math.ceil((limit - start) / delta)) : fresh(0)]];
      }
      case 'If': {
        const branches = ['then_branch', 'else_branch'].map((name) => {
          const body = node.attributes.get(name);
          if (body?.kind !== 'graph') return undefined;
          const inner = new Shapes(new Scope(body.value, '', this.scope), this);
          return body.value.outputs.map((output) => inner.shapeOf(output.name));
        });
        return node.outputs.map((output, n) => {
          const [yes, no] = branches.map((shapes) => shapes?.[n]);
          if (!yes || yes.length !== no?.length) return undefined;
          return yes.map((dim, axis) => (dim === no[axis] ? dim : `${output}#${axis}`));
        });
      }
      case 'ReduceMax':
      case 'ReduceMin':
      case 'ReduceSum':
      case 'ReduceMean': {
        const axes = this.axesOf(node) ?? (node.inputs[1] ? undefined : first?.map((_, axis) => axis));
        if (!first || !axes) return undefined;
        const over = new Set(axes.map((axis) => (axis < 0 ? axis + first.length : axis)));
        if (numberAttribute(node, 'keepdims', 1) !== 0) return [first.map((dim, axis) => (over.has(axis) ? 1 : dim))];
        return [first.filter((_, axis) => !over.has(axis))];
      }
      case 'ConstantOfShape':
        return [this.contentOf(node.inputs[0] ?? '')];
      case 'Einsum': {
        const equation = node.attributes.get('equation');
        if (equation?.kind !== 'string') return undefined;
        const terms = equation.value.replaceAll(' ', '').split('->');
        const sizes = new Map<string, Dim>();
        for (const [n, letters] of terms[0]!.split(',').entries()) {
          const shape = this.shapeOf(node.inputs[n] ?? '');
          if (shape?.length === letters.length)
            for (const [axis, letter] of [...letters].entries()) sizes.set(letter, shape[axis]!);
        }
        return [
          terms[1] === undefined ? undefined : [...terms[1]].map((letter, axis) => sizes.get(letter) ?? fresh(axis)),
        ];
      }
      default:
        return undefined;
    }
  }

  private inferContent(node: OnnxModelNode): readonly Dim[] | undefined {
    const from = (n: number): readonly Dim[] | undefined =>
      node.inputs[n] ? this.contentOf(node.inputs[n]) : undefined;
    const fresh = (length: number): string[] => Array.from({ length }, (_, n) => `${node.outputs[0]}[${n}]`);
    switch (node.opType) {
      case 'Constant': {
        const constant = constantOfNode(node);
        if (constant && 'read' in constant) return smallIntegers(constant);
        return constant?.dtype === 'i64' ? constant.values : undefined;
      }
      case 'Shape': {
        const shape = this.shapeOf(node.inputs[0] ?? '');
        return shape && this.sliceOfShape(node, shape);
      }
      case 'Identity':
      case 'Unsqueeze':
      case 'Squeeze':
      case 'Reshape':
        return from(0);
      case 'Cast': {
        const to = numberAttribute(node, 'to', 0);
        return to === 7 || to === 6 ? from(0) : undefined;
      }
      case 'Concat': {
        const parts = node.inputs.map((_, n) => from(n) ?? this.unknownVector(node.inputs[n]!));
        return parts.every((part) => part) ? (parts as (readonly Dim[])[]).flat() : undefined;
      }
      case 'Gather': {
        const [data, at] = [from(0), this.numbersOf(node.inputs[1])];
        if (!data || !at) return undefined;
        const taken = at.map((index) => data[index < 0 ? index + data.length : index]);
        return taken.every((entry) => entry !== undefined) ? (taken as Dim[]) : undefined;
      }
      case 'Slice': {
        const data = from(0);
        const [start, end, step] = [
          this.sliceInput(node, 1),
          this.sliceInput(node, 2),
          this.sliceInput(node, 4)?.[0] ?? 1,
        ];
        if (!data || start?.length !== 1 || end?.length !== 1 || step !== 1) return undefined;
        return data.slice(clampIndex(start[0]!, data.length), clampIndex(end[0]!, data.length));
      }
      case 'Equal': {
        // Expand's -1 is looked for so; a dimension is never negative.
        const [a, b] = [from(0), from(1)];
        if (!a || !b || a.length !== b.length) return undefined;
        return fresh(a.length).map((name, n) => {
          const [x, y] = [a[n]!, b[n]!];
          if (typeof x === 'number' && typeof y === 'number') return Number(x === y);
          return (typeof x === 'number' && x < 0) || (typeof y === 'number' && y < 0) ? 0 : name;
        });
      }
      case 'Where': {
        const [test, yes, no] = [from(0), from(1), from(2)];
        if (!test || yes?.length !== test.length || no?.length !== test.length) return undefined;
        return fresh(test.length).map((name, n) => (test[n] === 1 ? yes[n]! : test[n] === 0 ? no[n]! : name));
      }
      case 'ConstantOfShape': {
        const length = from(0);
        const value = node.attributes.get('value');
        if (
          length?.length !== 1 ||
          typeof length[0] !== 'number' ||
          length[0] > MAX_CONTENT ||
          value?.kind !== 'tensor'
        )
          return undefined;
        const fill = smallIntegers(value.value)?.[0];
        return fill === undefined || !(length[0] >= 0) ? undefined : new Array<number>(length[0]).fill(fill);
      }
      case 'Add':
      case 'Sub':
      case 'Mul':
      case 'Div': {
        const [a, b] = [from(0), from(1)];
        if (!a || !b || (a.length !== b.length && a.length !== 1 && b.length !== 1)) return undefined;
        const length = Math.max(a.length, b.length);
        const unknown = fresh(length);
        return unknown.map(
          (name, n) => integerOp(node.opType, a[a.length === 1 ? 0 : n]!, b[b.length === 1 ? 0 : n]!) ?? name,
        );
      }
      default:
        return undefined;
    }
  }

  private unknownVector(value: string): readonly Dim[] | undefined {
    const shape = this.shapeOf(value);
    const length = shape?.length === 1 ? shape[0] : undefined;
    return typeof length === 'number' && length <= MAX_CONTENT
      ? Array.from({ length }, (_, n) => `${value}[${n}]`)
      : undefined;
  }

  private sliceOfShape(node: OnnxModelNode, shape: readonly Dim[]): readonly Dim[] {
    const end = numberAttribute(node, 'end', undefined);
    return shape.slice(numberAttribute(node, 'start', 0), end);
  }

  /** The axes of Squeeze and Unsqueeze: an attribute up to opset 12, an input since. */
  axesOf(node: OnnxModelNode): readonly number[] | undefined {
    return intsAttribute(node, 'axes') ?? this.numbersOf(node.inputs[1]);
  }

  /** An argument of Slice: an attribute up to opset 9, an input since. 1 starts, 2 ends, 3 axes, 4 steps. */
  sliceInput(node: OnnxModelNode, which: 1 | 2 | 3 | 4): readonly number[] | undefined {
    const name = ['', 'starts', 'ends', 'axes', 'steps'][which]!;
    return intsAttribute(node, name) ?? this.numbersOf(node.inputs[which]);
  }

  /** The sizes that Split gives: an attribute, an input, or equal parts. */
  splitSizes(node: OnnxModelNode, shape: readonly Dim[]): readonly number[] | undefined {
    const given = intsAttribute(node, 'split') ?? this.numbersOf(node.inputs[1]);
    if (given) return given;
    const axis = numberAttribute(node, 'axis', 0);
    const size = shape.at(axis);
    if (typeof size !== 'number' || node.inputs[1]) return undefined;
    const part = Math.ceil(size / node.outputs.length);
    return node.outputs.map((_, n) => Math.max(0, Math.min(part, size - n * part)));
  }

  private sliceDims(
    node: OnnxModelNode,
    shape: readonly Dim[],
    fresh: (axis: number) => string,
  ): readonly Dim[] | undefined {
    const [starts, ends, steps] = [this.sliceInput(node, 1), this.sliceInput(node, 2), this.sliceInput(node, 4)];
    const axes = this.sliceInput(node, 3) ?? starts?.map((_, n) => n);
    if (!axes) return undefined;
    let result = shape;
    for (const [n, given] of axes.entries()) {
      const axis = axisAt(given, shape.length);
      if (axis === undefined) return undefined;
      const dim = shape[axis]!;
      const [start, end, step] = [starts?.[n], ends?.[n], steps?.[n] ?? (node.inputs[4] ? undefined : 1)];
      result = result.with(axis, sliceLength(dim, start, end, step) ?? fresh(axis));
    }
    return result;
  }
}

/** An axis counted from the front; undefined when there is no such one. */
function axisAt(given: number, rank: number): number | undefined {
  const axis = given < 0 ? given + rank : given;
  return Number.isInteger(axis) && axis >= 0 && axis < rank ? axis : undefined;
}

/** The integers of a small constant; undefined when it is large, lies in another file, or is malformed. */
function smallIntegers(constant: OnnxTensor): readonly number[] | undefined {
  if (constant.shape.length > 1 || (constant.shape[0] ?? 1) > MAX_CONTENT || constant.external) return undefined;
  if (constant.dtype !== 'i64' && constant.dtype !== 'i32') return undefined;
  try {
    return [...(constant.read().readNumbers() as Float64Array)];
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}

/** Entries that a Slice takes from a dimension; the dimension itself when it takes all of it. */
function sliceLength(dim: Dim, start?: number, end?: number, step?: number): Dim | undefined {
  if (start === undefined || end === undefined || step === undefined || step === 0) return undefined;
  if (typeof dim === 'number') return sliceIndices(dim, start, end, step).length;
  if (step === 1 && start === 0 && end >= 2 ** 31 - 1) return dim;
  return undefined;
}

/**
 * The indices that a Slice takes.
 *
 * @param size - of the dimension
 * @param start - as Slice takes it: negative counts from the end, past the end is clamped
 * @param end - likewise
 * @param step - not 0; negative walks down
 */
export function sliceIndices(
  size: number,
  start: number,
  end: number,
  step: number,
): { first: number; step: number; length: number } {
  if (step > 0) {
    const [first, last] = [clampIndex(start, size), clampIndex(end, size)];
    return { first, step, length: Math.max(0, Math.ceil((last - first) / step)) };
  }
  const first = Math.min(size - 1, Math.max(-1, start < 0 ? start + size : start));
  const last = Math.min(size - 1, Math.max(-1, end < 0 ? end + size : end));
  return { first, step, length: Math.max(0, Math.ceil((last - first) / step)) };
}

function clampIndex(index: number, size: number): number {
  return Math.min(size, Math.max(0, index < 0 ? index + size : index));
}

function integerOp(op: string, a: Dim, b: Dim): Dim | undefined {
  if (typeof a !== 'number' || typeof b !== 'number') {
    if ((op === 'Mul' || op === 'Div') && b === 1) return a;
    if (op === 'Mul' && a === 1) return b;
    return (op === 'Add' || op === 'Sub') && b === 0 ? a : undefined;
  }
  if (op === 'Add') return a + b;
  if (op === 'Sub') return a - b;
  if (op === 'Mul') return a * b;
  return b === 0 ? undefined : Math.trunc(a / b);
}

function unsqueezeDims(shape: readonly Dim[], axes: readonly number[]): readonly Dim[] {
  const rank = shape.length + axes.length;
  const fresh = new Set(axes.map((axis) => (axis < 0 ? axis + rank : axis)));
  let at = 0;
  return Array.from({ length: rank }, (_, axis) => (fresh.has(axis) ? 1 : (shape[at++] ?? 1)));
}

/** Shapes broadcast as numpy does; a name gives way to a number above 1. */
function broadcastDims(shapes: readonly (readonly Dim[] | undefined)[]): readonly Dim[] | undefined {
  if (shapes.length === 0 || shapes.some((shape) => shape === undefined)) return undefined;
  const rank = Math.max(...shapes.map((shape) => shape!.length));
  return Array.from({ length: rank }, (_, axis) => {
    let best: Dim = 1;
    for (const shape of shapes) {
      const dim = shape![axis - rank + shape!.length];
      if (dim === undefined || dim === 1) continue;
      if (best === 1 || (typeof best === 'string' && typeof dim === 'number')) best = dim;
    }
    return best;
  });
}

function reshapeDims(
  shape: readonly Dim[] | undefined,
  target: readonly Dim[],
  allowZero: boolean,
  fresh: (axis: number) => string,
): readonly Dim[] {
  const copied = target.map((dim, axis) => (dim === 0 && !allowZero ? (shape?.[axis] ?? fresh(axis)) : dim));
  const at = copied.indexOf(-1);
  if (at < 0) return copied;
  // What -1 stands for is known when every name on one side has its like on the other.
  const rest = copied.filter((_, axis) => axis !== at);
  let value: Dim = fresh(at);
  if (shape) {
    const names = shape.filter((dim) => typeof dim === 'string');
    let numbers = shape.reduce<number>((product, dim) => (typeof dim === 'number' ? product * dim : product), 1);
    let fits = true;
    for (const dim of rest) {
      if (typeof dim === 'number') numbers /= dim;
      else if (names.includes(dim)) names.splice(names.indexOf(dim), 1);
      else fits = false;
    }
    if (fits && names.length === 0 && Number.isInteger(numbers) && numbers > 0) value = numbers;
    else if (fits && names.length === 1 && numbers === 1) value = names[0]!;
  }
  return copied.with(at, value);
}
