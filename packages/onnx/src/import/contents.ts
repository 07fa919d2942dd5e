/**
 * Lists the contents of a graph: its operators, the bytes of its weights by kind, their files, its KV caches.
 *
 * It reads headers only, and no weights.
 *
 * @module
 */
import { sizeBytes } from 'ropewalk';
import { countElements, reading, readOptions } from 'ropewalk/internal';
import type { OnnxModelFile, OnnxModelNode, OnnxTensor } from '../format/onnx-model.js';
import { numberAttribute } from '../operators/operator.js';
import { keyCaches } from './layers.js';
import { scopesOf } from './scope.js';

/** Weights of one kind. */
export interface WeightKind {
  /** For example `f32`, `u4`, `8-bit blocks of 32`, `f16 scales of blocks`. */
  readonly kind: string;
  readonly tensors: number;
  /** Bytes. Two tensors at the same place of a file are counted once. */
  readonly sizeBytes: number;
}

/** A file beside the graph. */
export interface WeightFile {
  /** The path that the graph states, relative to its folder and unchecked. */
  readonly location: string;
  readonly tensors: number;
  /** The least size of the file, in bytes. */
  readonly endByte: number;
  /** Tensors whose place in the file has another size than their shape needs, in full sentences. */
  readonly wrong: readonly string[];
}

/** The contents of a graph. */
export interface GraphContents {
  /** Whether it has operators of com.microsoft, ONNX's operators for transformers, or neither. */
  readonly form: 'contrib' | 'standard' | 'primitives';
  /** The number of nodes by operator, the most frequent first. Names include the domain if it is not ONNX's own. */
  readonly operators: ReadonlyMap<string, number>;
  /** Sorted by bytes, the largest first. */
  readonly weights: readonly WeightKind[];
  readonly files: readonly WeightFile[];
  /** The layers that have KV caches. The list is empty if each run computes all tokens. */
  readonly layers: readonly number[];
}

/** Name and bits of each TensorProto.DataType that has no dtype here. */
const OTHER_TYPES: ReadonlyMap<number, readonly [string, number]> = /* @__PURE__ */ new Map([
  [8, ['string', 0]],
  [9, ['bool', 8]],
  [14, ['complex64', 64]],
  [15, ['complex128', 128]],
  [17, ['f8e4m3fn', 8]],
  [18, ['f8e4m3fnuz', 8]],
  [19, ['f8e5m2', 8]],
  [20, ['f8e5m2fnuz', 8]],
  [21, ['u4', 4]],
  [22, ['i4', 4]],
  [23, ['f4e2m1', 4]],
]);
/** ONNX's operators for transformers, since opset 23. */
const FUSED: ReadonlySet<string> = /* @__PURE__ */ new Set(['Attention', 'RMSNormalization', 'RotaryEmbedding']);
/** The inputs of operators that are codes, scales and zero points of blocks. */
const BLOCK_INPUTS: ReadonlyMap<string, readonly [codes: number, scales: number, zeros: number]> =
  /* @__PURE__ */ new Map([
    ['com.microsoft.MatMulNBits', [1, 2, 3]],
    ['com.microsoft.GatherBlockQuantized', [0, 2, 3]],
    ['.DequantizeLinear', [0, 1, 2]],
  ]);
/** ONNX Runtime registers this operator without a domain. */
const UNOFFICIAL = 'SimplifiedLayerNormalization';

/**
 * Lists the contents of a graph, including the graphs inside its nodes and its functions.
 *
 * @param given - a model from parseOnnxModel or importOnnx
 * @returns counts and bytes
 * @throws {RopewalkError} RANGE for something that is no model
 */
export function graphContents(given: OnnxModelFile): GraphContents {
  return reading('contents: model', () => contentsOf(readOptions(given, 'contents: model')));
}

function contentsOf(model: OnnxModelFile): GraphContents {
  const scopes = scopesOf(model);
  const nodes = scopes.flatMap(({ graph }) => graph.nodes);
  const operators = new Map<string, number>();
  for (const { opType, domain } of nodes) {
    const name = domain === '' ? opType : `${opType} (${domain})`;
    operators.set(name, (operators.get(name) ?? 0) + 1);
  }
  const kinds = kindsOf(nodes);
  const weights = new Map<string, { tensors: number; sizeBytes: number }>();
  const files = new Map<string, { tensors: number; endByte: number; wrong: string[] }>();
  const places = new Set<string>();
  for (const tensor of scopes.flatMap(({ graph }) => [...graph.initializers.values()])) {
    const [type, bits] = typeOf(tensor);
    const size = bytesOf(tensor.shape, bits) ?? 0;
    const { external } = tensor;
    if (external) {
      const file = files.get(external.location) ?? { tensors: 0, endByte: 0, wrong: [] };
      file.tensors++;
      file.endByte = Math.max(file.endByte, external.offset + external.length);
      if (bits > 0 && external.length !== size)
        file.wrong.push(`${tensor.name} has ${external.length} bytes there, and its shape takes ${size}.`);
      files.set(external.location, file);
    }
    const kind = kinds.get(tensor.name)?.(type) ?? type;
    const known = weights.get(kind) ?? { tensors: 0, sizeBytes: 0 };
    known.tensors++;
    const place = external && `${external.offset} ${external.length} ${external.location}`;
    if (place === undefined || !places.has(place)) known.sizeBytes += external ? external.length : size;
    if (place !== undefined) places.add(place);
    weights.set(kind, known);
  }
  const has = (test: (node: OnnxModelNode) => boolean): boolean => nodes.some(test);
  const contrib = has(({ domain, opType }) => domain === 'com.microsoft' || opType === UNOFFICIAL);
  const standard = has(({ domain, opType }) => domain === '' && FUSED.has(opType));
  return {
    form: contrib ? 'contrib' : standard ? 'standard' : 'primitives',
    operators: new Map([...operators].sort((a, b) => b[1] - a[1])),
    weights: Array.from(weights, ([kind, rest]) => ({ kind, ...rest })).sort((a, b) => b.sizeBytes - a.sizeBytes),
    files: Array.from(files, ([location, rest]) => ({ location, ...rest })),
    layers: [...new Set(keyCaches(model).values())].sort((a, b) => a - b),
  };
}

/** A constant of a graph. */
export interface GraphTensor {
  readonly name: string;
  /** A name as in {@link GraphContents.weights}, without blocks: `f32`, `u4`. */
  readonly type: string;
  readonly shape: readonly number[];
  /** Undefined for texts and unknown types. */
  readonly sizeBytes: number | undefined;
  /** The file that the graph states, unchecked; undefined for the model's own file. */
  readonly file: string | undefined;
}

/**
 * Lists the constants of a graph, and of the graphs inside its nodes.
 *
 * @param given - a model from parseOnnxModel
 * @throws {RopewalkError} RANGE for something that is no model
 */
export function graphTensors(given: OnnxModelFile): GraphTensor[] {
  return reading('contents: model', () =>
    scopesOf(readOptions(given, 'contents: model')).flatMap(({ graph }) =>
      Array.from(graph.initializers.values(), (tensor) => {
        const { name, shape, external } = tensor;
        const [type, bits] = typeOf(tensor);
        return { name, type, shape, sizeBytes: bytesOf(shape, bits), file: external?.location };
      }),
    ),
  );
}

function bytesOf(shape: readonly number[], bits: number): number | undefined {
  return bits === 0 ? undefined : Math.ceil((countElements(shape) * bits) / 8);
}

/** Finds the constants that operators read as blocks. For each name it returns a function from type to kind. */
function kindsOf(nodes: readonly OnnxModelNode[]): ReadonlyMap<string, (type: string) => string> {
  const kinds = new Map<string, (type: string) => string>();
  for (const node of nodes) {
    const [codes, scales, zeros] = BLOCK_INPUTS.get(`${node.domain}.${node.opType}`) ?? [];
    const size = numberAttribute(node, 'block_size', node.domain === '' ? 0 : 128);
    if (codes === undefined || size === 0) continue;
    const bits = numberAttribute(node, 'bits', 4);
    const blocks = `blocks of ${size}`;
    kinds.set(node.inputs[codes] ?? '', (type) => (node.domain === '' ? `${type} ${blocks}` : `${bits}-bit ${blocks}`));
    kinds.set(node.inputs[scales!] ?? '', (type) => `${type} scales of blocks`);
    kinds.set(node.inputs[zeros!] ?? '', (type) => `${type} zero points of blocks`);
  }
  kinds.delete('');
  return kinds;
}

function typeOf({ dtype, dataType }: OnnxTensor): readonly [name: string, bits: number] {
  const other = OTHER_TYPES.get(dataType);
  return other ?? (dtype ? [dtype, 8 * sizeBytes(dtype)] : [`data type ${dataType}`, 0]);
}
