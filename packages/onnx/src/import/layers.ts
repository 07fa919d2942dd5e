/**
 * Finds the layer of each RoPE: the layer whose KV cache holds its keys, or whose queries meet these keys.
 *
 * A graph does not tell where a layer begins. But exporters name the keys of each layer `present.N.key`
 * (huggingface/optimum exporters/onnx/base.py, microsoft/onnxruntime-genai@004a30a
 * src/python/py/models/builders/base.py), and a rotation lies between a projection and the attention that reads it.
 *
 * @module
 */
import type { OnnxModelFile, OnnxModelNode } from '../format/onnx-model.js';
import type { Work } from './evaluate.js';
import type { Found } from './find.js';
import { Scope } from './scope.js';

/** There are fewer values than this between a cache, its attention and the projections. */
const MAX_WALK = 512;
/**
 * Matches `present.0.key`, `present_key_values.0.key` and `present_key.0`, but not caches of a vision or audio encoder.
 */
const KEYS = /^present(?!.*encoder)\D*?(\d{1,4})\D*key$|^present\D*key\D*?(\d{1,4})$/;
/** Products with a weight. Everything before them belongs to the hidden state. */
const PROJECTIONS =
  /^(?:MatMul|Gemm|FusedMatMul|FusedGemm|Conv|MatMulNBits|MatMulBnb4|MatMulInteger.*|.*QuantizeMatMul)$/;
/** The operators in which queries meet keys. */
const SCORES = /^(?:MatMul|FusedMatMul|Einsum|.*Attention)$/;

/** The operators that exporters put between a weight and its product. */
const WEIGHT_VIEWS: ReadonlySet<string> = /* @__PURE__ */ new Set([
  'Cast',
  'DequantizeLinear',
  'Identity',
  'Reshape',
  'Squeeze',
  'Transpose',
]);
/** No exporter makes a longer name. */
const MAX_NAME = 256;

export interface FoundLayers {
  /** The layers that have a cache of keys, ascending; empty if there are no such caches. */
  readonly layers: readonly number[];
  readonly layerOf: ReadonlyMap<Found, number>;
}

/** Returns the outputs that hold keys, and the layers in their names. */
export function keyCaches(model: OnnxModelFile): ReadonlyMap<string, number> {
  const caches = new Map<string, number>();
  for (const { name } of model.graph.outputs) {
    const match = name.length <= MAX_NAME ? KEYS.exec(name) : null;
    if (match) caches.set(name, Number(match[1] ?? match[2]));
  }
  return caches;
}

/**
 * Finds the layer of each RoPE in a model's main graph.
 *
 * @throws {TooMuchWork} when the graph takes more work than its bytes allow
 */
export function layersOf(model: OnnxModelFile, found: readonly Found[], work: Work): FoundLayers {
  const walk = new Walk(new Scope(model.graph, ''), found, work);
  const layerOf = new Map<Found, number>();
  const caches = keyCaches(model);
  for (const [name, layer] of caches) {
    const own = walk.behind([name]);
    // The queries that meet these keys belong to the same layer.
    const keys = [name, ...[...own].flatMap(({ node }) => node.outputs)];
    const scores = walk.scoresOf(keys).flatMap(({ inputs }) => inputs);
    for (const one of [...own, ...walk.behind(scores)]) if (!layerOf.has(one)) layerOf.set(one, layer);
  }
  return { layers: [...new Set(caches.values())].sort((a, b) => a - b), layerOf };
}

class Walk {
  readonly #byNode: ReadonlyMap<OnnxModelNode, Found>;

  constructor(
    readonly scope: Scope,
    found: readonly Found[],
    readonly work: Work,
  ) {
    this.#byNode = new Map(found.filter((one) => one.scope.name === '').map((one) => [one.node, one]));
  }

  /** Returns the RoPE before some values, back to the projections. */
  behind(values: readonly string[]): Set<Found> {
    const into = new Set<Found>();
    this.#visit(values, (value) => {
      const node = this.scope.maker(value);
      const one = node && this.#byNode.get(node);
      if (one) into.add(one);
      return one || !node || isProjection(this.scope, node) ? [] : node.inputs;
    });
    return into;
  }

  scoresOf(keys: readonly string[]): OnnxModelNode[] {
    const into = new Set<OnnxModelNode>();
    this.#visit(keys, (value) => {
      const readers = this.scope.readersOf(value).filter((node) => !isProjection(this.scope, node));
      const scores = new Set(readers.filter(({ opType }) => SCORES.test(opType)));
      for (const node of scores) into.add(node);
      return readers.filter((node) => !scores.has(node)).flatMap(({ outputs }) => outputs);
    });
    return [...into];
  }

  #visit(values: readonly string[], next: (value: string) => readonly string[]): void {
    const seen = new Set<string>();
    const queue = [...values];
    for (let value = queue.shift(); value !== undefined && seen.size < MAX_WALK; value = queue.shift()) {
      if (value === '' || seen.has(value)) continue;
      seen.add(value);
      const more = next(value);
      this.work.spend(1 + this.scope.readersOf(value).length + more.length);
      queue.push(...more);
    }
  }
}

function isProjection(scope: Scope, node: OnnxModelNode): boolean {
  return PROJECTIONS.test(node.opType) && node.inputs.some((input) => isWeight(scope, input));
}

/** True for a constant, even if it is transposed, cast or dequantised. */
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
