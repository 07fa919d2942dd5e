/**
 * Which layer of a model a RoPE belongs to: the one whose KV cache holds its keys, or whose queries meet them.
 *
 * A graph does not say where a layer begins. But exporters give each layer's keys out as `present.N.key`
 * (huggingface/optimum exporters/onnx/base.py, microsoft/onnxruntime-genai@004a30a src/python/py/models/builders/base.py),
 * and what rotates lies between a projection and the attention that reads them.
 *
 * @module
 */
import type { OnnxModelFile, OnnxModelNode } from '../format/onnx-model.js';
import type { Found } from './find.js';
import { Scope } from './scope.js';

/** From a cache to its attention, and back to the projections, there are fewer values than this. */
const MAX_WALK = 512;
/** `present.0.key`, `present_key_values.0.key`, `present_key.0`; not those of a vision or an audio encoder. */
const KEYS = /^present(?!.*encoder)\D*?(\d{1,5})\D*key$|^present\D*key\D*?(\d{1,5})$/;
/** Products with a weight: what is behind them belongs to the hidden state. */
const PROJECTIONS =
  /^(?:MatMul|Gemm|FusedMatMul|FusedGemm|Conv|MatMulNBits|MatMulBnb4|MatMulInteger.*|.*QuantizeMatMul)$/;
/** Where queries meet keys. */
const SCORES = /^(?:MatMul|FusedMatMul|Einsum|.*Attention)$/;

/** What exporters put between a weight and its product. */
const WEIGHT_VIEWS: ReadonlySet<string> = /* @__PURE__ */ new Set([
  'Cast',
  'DequantizeLinear',
  'Identity',
  'Reshape',
  'Squeeze',
  'Transpose',
]);
/** A longer name is none that an exporter gave. */
const MAX_NAME = 256;

/** The layers of a graph. */
export interface FoundLayers {
  /** The numbers of the layers that have a cache of keys, ascending; empty where there are no such caches. */
  readonly layers: readonly number[];
  readonly layerOf: ReadonlyMap<Found, number>;
}

/** Finds the layer of each RoPE of a model's own graph. */
export function layersOf(model: OnnxModelFile, found: readonly Found[]): FoundLayers {
  const scope = new Scope(model.graph, '');
  const byNode = new Map(found.filter((one) => one.scope.name === '').map((one) => [one.node, one]));
  const layerOf = new Map<Found, number>();
  const layers = new Set<number>();
  for (const { name } of model.graph.outputs) {
    const match = name.length <= MAX_NAME ? KEYS.exec(name) : null;
    if (!match) continue;
    const layer = Number(match[1] ?? match[2]);
    layers.add(layer);
    const own = new Set<Found>();
    collect(scope, [name], byNode, own);
    // The queries that meet these keys.
    const keys = [name, ...Array.from(own).flatMap(({ node }) => node.outputs)];
    collect(
      scope,
      scoresOf(scope, keys).flatMap(({ inputs }) => inputs),
      byNode,
      own,
    );
    for (const one of own) if (!layerOf.has(one)) layerOf.set(one, layer);
  }
  return { layers: [...layers].sort((a, b) => a - b), layerOf };
}

/** Collects the RoPE behind values, back to the projections. */
function collect(
  scope: Scope,
  values: readonly string[],
  byNode: ReadonlyMap<OnnxModelNode, Found>,
  into: Set<Found>,
): void {
  const seen = new Set<string>();
  const queue = [...values];
  while (queue.length > 0 && seen.size < MAX_WALK) {
    const value = queue.shift()!;
    if (value === '' || seen.has(value)) continue;
    seen.add(value);
    const node = scope.maker(value);
    const one = node && byNode.get(node);
    if (one) into.add(one);
    else if (node && !isProjection(scope, node)) queue.push(...node.inputs);
  }
}

/** The nodes in which keys meet queries. */
function scoresOf(scope: Scope, keys: readonly string[]): OnnxModelNode[] {
  const found = new Set<OnnxModelNode>();
  const seen = new Set<string>();
  const queue = [...keys];
  while (queue.length > 0 && seen.size < MAX_WALK) {
    const value = queue.shift()!;
    if (value === '' || seen.has(value)) continue;
    seen.add(value);
    for (const node of scope.readersOf(value)) {
      if (SCORES.test(node.opType) && !isProjection(scope, node)) found.add(node);
      else if (!isProjection(scope, node)) queue.push(...node.outputs);
    }
  }
  return [...found];
}

function isProjection(scope: Scope, node: OnnxModelNode): boolean {
  return PROJECTIONS.test(node.opType) && node.inputs.some((input) => isWeight(scope, input));
}

/** A constant, perhaps transposed, cast or dequantised. */
function isWeight(scope: Scope, value: string): boolean {
  let at = value;
  for (let step = 0; step < 4 && at !== ''; step++) {
    if (scope.initializer(at)) return true;
    const node = scope.maker(at);
    if (node?.opType === 'Constant') return true;
    if (!node || !WEIGHT_VIEWS.has(node.opType)) return false;
    at = node.inputs[0] ?? '';
  }
  return false;
}
