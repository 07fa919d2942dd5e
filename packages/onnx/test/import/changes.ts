/**
 * Changes ONNX models at random for fuzz tests: wires, operators, attributes, constants, declared sizes, and the order
 * of nodes.
 */
import fc from 'fast-check';
import { decodeFile, encodeFile } from '../../src/format/onnx-messages.js';

interface ValueInfo {
  name: string;
  type?: { tensorType?: { elemType: number; shape?: { dim: { dimValue?: bigint | number; dimParam?: string }[] } } };
}
interface Node {
  input: string[];
  output: string[];
  opType: string;
  attribute: { i?: bigint | number; ints?: (bigint | number)[]; type?: number; g?: unknown }[];
}
interface Graph {
  node: Node[];
  initializer: { name: string; dims: (bigint | number)[]; rawData: Uint8Array; dataType: number }[];
  input: ValueInfo[];
  output: ValueInfo[];
  valueInfo: ValueInfo[];
}

const KINDS = [
  'wire',
  'operator',
  'attribute',
  'dims',
  'output',
  'integers',
  'declared',
  'declared',
  'every size',
  'rank',
  'type',
  'drop',
  'repeat',
  'swap',
  'inside',
  'float',
] as const;

/** The changes that a model may get. */
export const change = fc.record({
  kind: fc.constantFrom(...KINDS),
  a: fc.nat(),
  b: fc.nat(),
  n: fc.constantFrom(
    -(2 ** 40),
    -9,
    -2,
    -1,
    0,
    1,
    2,
    3,
    7,
    64,
    1000,
    4096,
    10 ** 6,
    10 ** 7,
    2 ** 27,
    2 ** 31,
    2 ** 40,
    2 ** 52,
  ),
});

/** A change as a function of the graph. */
export type Change = Readonly<{ kind: string; a: number; b: number; n: number }>;

/** Applies changes to a copy. */
export function changed(bytes: Uint8Array, changes: readonly Change[]): Uint8Array {
  // A copy is needed because decoded bytes are views, and changes in them must not reach other tests.
  const message = plain(decodeFile('ModelProto', Uint8Array.from(bytes), 'a sample')) as { graph: Graph };
  for (const one of changes) apply(message.graph, one);
  return encodeFile('ModelProto', message as never);
}

/** Removes the names of the messages' types, so that other parts may replace them. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, part]) => (key === '$typeName' ? [] : [[key, plain(part)]])),
  );
}

function apply(graph: Graph, { kind, a, b, n }: Change): void {
  const at = <T>(list: readonly T[], index: number): T => list[index % list.length]!;
  const values = [...graph.node.flatMap((node) => node.output), ...graph.input.map((input) => input.name), ''];
  const declared = [...graph.input, ...graph.output, ...graph.valueInfo];
  const type = declared.length > 0 ? at(declared, a).type?.tensorType : undefined;
  const constant = graph.initializer.length > 0 ? at(graph.initializer, a) : undefined;
  if (kind === 'declared' && type?.shape && type.shape.dim.length > 0)
    type.shape.dim[b % type.shape.dim.length] = { dimValue: n };
  if (kind === 'every size')
    for (const value of declared) for (const dim of value.type?.tensorType?.shape?.dim ?? []) dim.dimValue = n;
  if (kind === 'rank' && type?.shape) {
    if (n > 0) type.shape.dim.splice(b % (type.shape.dim.length + 1), 0, { dimValue: n });
    else type.shape.dim.splice(b % (type.shape.dim.length + 1), 1);
  }
  if (kind === 'type' && type) type.elemType = b % 17;
  if (kind === 'dims' && constant)
    constant.dims = n < 0 ? [...constant.dims, 1] : b % 2 === 0 ? [n] : [n, ...constant.dims.slice(1)];
  if (kind === 'integers' && constant && constant.rawData.length >= 8)
    constant.rawData.set(new Uint8Array(BigInt64Array.of(BigInt(n)).buffer), (b % (constant.rawData.length >> 3)) * 8);
  if (kind === 'float' && constant && constant.rawData.length >= 4)
    constant.rawData.set(
      new Uint8Array(Float32Array.of([NaN, Infinity, 0, -1, n][b % 5]!).buffer),
      (b % (constant.rawData.length >> 2)) * 4,
    );
  if (graph.node.length === 0) return;
  const node = at(graph.node, a);
  if (kind === 'wire' && node.input.length > 0) node.input[b % node.input.length] = at(values, a + b);
  if (kind === 'operator') node.opType = at([...graph.node.map((one) => one.opType), ...OPERATORS], b);
  if (kind === 'output') node.output[0] = at(values, b);
  if (kind === 'attribute' && node.attribute.length > 0) {
    const attribute = at(node.attribute, b);
    if (attribute.ints && attribute.ints.length > 0) attribute.ints[b % attribute.ints.length] = n;
    else attribute.i = n;
  }
  if (kind === 'drop') graph.node.splice(a % graph.node.length, 1);
  if (kind === 'repeat')
    graph.node.splice(b % graph.node.length, 0, { ...node, output: node.output.map((name) => `${name}'`) });
  if (kind === 'swap')
    [graph.node[a % graph.node.length], graph.node[b % graph.node.length]] = [at(graph.node, b), node];
  if (kind === 'inside') {
    // The graph becomes a branch of one of its nodes.
    const branch = { name: b % 2 === 0 ? 'then_branch' : 'else_branch', type: 5, g: plain(graph) };
    node.attribute.push(branch);
  }
}

/** Operators with outputs that are much larger than their inputs, or that read sizes out of values. */
const OPERATORS =
  'Expand Tile Range ConstantOfShape Reshape Concat MatMul Einsum CumSum ReduceSum ScatterND If Gather Where Split Slice'.split(
    ' ',
  );
