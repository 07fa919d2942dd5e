/**
 * Finds every RoPE of a model: RotaryEmbedding nodes, attention that rotates inside, and rotations in primitive
 * operators.
 *
 * Rotations are recognised by what they compute, not by names or by the order of nodes. The tested forms are those of
 * torch.onnx and optimum on HuggingFace's modeling files (huggingface/transformers@5dd4a63); those that the fusions of
 * ONNX Runtime and onnxscript look for (microsoft/onnxruntime@0d528d7 fusion_rotary_attention.py,
 * microsoft/onnxscript@0b9afd9 rules/fusion/_rotary_embedding.py); and OpenVINO's (openvinotoolkit/openvino@16f3e84
 * fuse_rotary_positional_embeddings.cpp).
 *
 * @module
 */
import { countElements } from 'ropewalk/internal';
import type { OnnxModelFile, OnnxModelNode } from '../format/onnx-model.js';
import type { Forms, Term } from '../operators/forms.js';
import { operatorOf } from '../operators/index.js';
import { numberAttribute } from '../operators/operator.js';
import { Algebra, MAX_CHANNELS } from './algebra.js';
import { Evaluation, SEARCHING, Work } from './evaluate.js';
import { judgeRotation, type Rotation } from './rotation.js';
import { nodeName, type Scope, Shapes, scopesOf } from './scope.js';
import { isTable } from './sources.js';

interface Place {
  /** The name of the node; for arithmetic, of the node that makes y. */
  readonly name: string;
  readonly scope: Scope;
  readonly shapes: Shapes;
  readonly node: OnnxModelNode;
  /** The limit for the computations of its import. */
  readonly work: Work;
}

export interface FoundNode extends Place {
  readonly kind: 'node';
  readonly dialect: 'onnx' | 'onnxruntime';
}

export interface FoundAttention extends Place {
  readonly kind: 'attention';
}

export interface FoundArithmetic extends Place {
  readonly kind: 'arithmetic';
  readonly x: string;
  readonly y: string;
  readonly rotation: Rotation;
  /** The last dimensions of each table that the factors of the rotation count. */
  readonly trails: ReadonlyMap<string, readonly number[]>;
}

export type Found = FoundNode | FoundAttention | FoundArithmetic;

/** Arithmetic that resembles RoPE and is none. */
export interface NearMiss {
  /** The name of the node that makes its last value. */
  readonly name: string;
  /** '' for the model's main graph. */
  readonly scopeName: string;
  readonly because: string;
}

interface Findings {
  readonly found: readonly Found[];
  readonly nearly: readonly NearMiss[];
}

/** A rotation has fewer steps after its products than this: Add, Concat, Reshape, Cast, Concat. */
const MAX_STEPS = 10;
/** The most values that are considered after a product. */
const MAX_VALUES = 48;

/** Finds every RoPE in the model's main graph, its functions, and the graphs inside its nodes. */
export function findRope(model: OnnxModelFile, work = new Work(model.bytes, SEARCHING)): Findings {
  const computing = new Work(model.bytes);
  const found: Found[] = [];
  const nearly: NearMiss[] = [];
  const shapesOf = new Map<Scope, Shapes>();
  for (const scope of scopesOf(model)) {
    const shapes = new Shapes(scope, scope.parent && shapesOf.get(scope.parent));
    shapesOf.set(scope, shapes);
    for (const [n, node] of scope.graph.nodes.entries()) {
      const place: Place = { name: nodeName(node, n), scope, shapes, node, work: computing };
      if (node.opType === 'RotaryEmbedding' && (node.domain === '' || node.domain === 'com.microsoft'))
        found.push({ kind: 'node', dialect: node.domain === '' ? 'onnx' : 'onnxruntime', ...place });
      else if (node.domain === 'com.microsoft' && numberAttribute(node, 'do_rotary', 0) !== 0)
        found.push({ kind: 'attention', ...place });
    }
    const arithmetic = new ArithmeticSearch(shapes, work, computing).run();
    found.push(...arithmetic.found);
    nearly.push(...arithmetic.nearly);
  }
  return { found, nearly };
}

/** A rotation that ends in a value, or the reason why the value is nearly one. */
type Judged = Pick<FoundArithmetic, 'rotation' | 'x' | 'trails'> | { readonly because: string } | undefined;

/** Finds the rotations that one graph writes in primitive operators. */
class ArithmeticSearch {
  readonly #scope: Scope;
  readonly #constants: Evaluation;
  readonly #tables = new Map<string, boolean>();
  /** The traces around one product, by the value at which they stop. They are dropped with the next product. */
  #algebras = new Map<string, Algebra>();

  constructor(
    readonly shapes: Shapes,
    readonly work: Work,
    readonly computing: Work,
  ) {
    this.#scope = shapes.scope;
    this.#constants = new Evaluation(shapes.scope, shapes, { wholeCaches: false }, computing);
  }

  run(): Findings {
    const found: FoundArithmetic[] = [];
    const nearly: NearMiss[] = [];
    const covered = new Set<OnnxModelNode>();
    const ends = new Set<string>();
    const cover = (x: string, y: string): void => {
      for (const node of between(this.#scope, x, y)) covered.add(node);
    };
    for (const anchor of this.#scope.graph.nodes) {
      if (anchor.opType !== 'Mul' || anchor.domain !== '' || covered.has(anchor) || !this.#mayRotate(anchor)) continue;
      this.#algebras = new Map();
      let nearest: { miss: NearMiss; y: string } | undefined;
      let best: FoundArithmetic | undefined;
      for (const y of this.#endsOf(anchor)) {
        // This product may come before x, like the product of a norm. Then another product has found the rotation.
        if (ends.has(y)) {
          best = nearest = undefined;
          break;
        }
        const verdict = this.#judge(y);
        if (!verdict) continue;
        const node = this.#scope.maker(y)!;
        const name = nodeName(node, this.#scope.indexOf(node));
        if ('because' in verdict) {
          // The smallest value shows the mistake best. Later ones repeat it with more around it.
          if (!best) nearest = { miss: { name, scopeName: this.#scope.name, because: verdict.because }, y };
          continue;
        }
        nearest = undefined;
        const place: Place = { name, scope: this.#scope, shapes: this.shapes, node, work: this.computing };
        const one: FoundArithmetic = { kind: 'arithmetic', ...place, y, ...verdict };
        if (!best || onlyScales(best, one)) best = one;
        // A factor outside of the tables may be the scale of attention, unless the graph returns the rotated value.
        if (best.rotation.scale === 1 || this.#scope.graph.outputs.some(({ name }) => name === best!.y)) break;
      }
      if (best) {
        ends.add(best.y);
        found.push(best);
        cover(best.x, best.y);
      }
      if (nearest) {
        nearly.push(nearest.miss);
        cover('', nearest.y);
      }
    }
    return { found, nearly };
  }

  /** A product that is at most as wide as a head may belong to a rotation. */
  #mayRotate(node: OnnxModelNode): boolean {
    const shape = this.shapes.shapeOf(node.outputs[0]!);
    const width = shape?.at(-1);
    return shape !== undefined && shape.length >= 2 && typeof width === 'number' && width <= MAX_CHANNELS;
  }

  /** Returns the values in which the rotation of a product may end, the last of the file first. */
  #endsOf(anchor: OnnxModelNode): string[] {
    const values = new Map<string, number>();
    let front = [anchor.outputs[0]!];
    for (let step = 0; step < MAX_STEPS && front.length > 0; step++) {
      const next: string[] = [];
      for (const node of front.flatMap((value) => this.#scope.readersOf(value))) {
        this.work.spend(1);
        if (!operatorOf(node)?.trace) continue;
        for (const output of node.outputs) {
          if (output === '' || values.has(output) || values.size >= MAX_VALUES) continue;
          values.set(output, this.#scope.indexOf(node));
          next.push(output);
        }
      }
      front = next;
    }
    return [...values].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  }

  #algebraTo(stop: string): Algebra {
    const known = this.#algebras.get(stop) ?? new Algebra(this.shapes, this.#constants, this.work, stop);
    this.#algebras.set(stop, known);
    return known;
  }

  #isTable = (leaf: string): boolean => {
    const known = this.#tables.get(leaf) ?? isTable(this.#scope, leaf);
    this.#tables.set(leaf, known);
    return known;
  };

  #judge(y: string): Judged {
    const algebra = this.#algebraTo('');
    const forms = algebra.channels(y);
    this.work.spend(4 * (forms?.length ?? 1));
    if (!forms) return undefined;
    let because: string | undefined;
    for (const leaf of this.#rotatedLeaves(forms)) {
      const trail = algebra.leaves.get(leaf)!;
      if (trail.length === 1 && trail[0] === forms.length && this.#sameRank(leaf, y)) {
        const verdict = judgeRotation(forms, leaf, this.#isTable);
        if (verdict && 'rotation' in verdict) return { rotation: verdict.rotation, x: leaf, trails: algebra.leaves };
        because ??= verdict?.because;
        // Gemma 3 norms q and k after it has moved their heads: x is the product, and not its first factor.
        if (forms.every((terms) => terms.every(({ factors }) => factors.length <= 2))) continue;
      }
      // x is a part of a wider value (q of qkv, the rotary part of DeepSeek's heads), so that part becomes the leaf.
      else if (countElements(trail) < forms.length || this.shapes.shapeOf(leaf)?.length === trail.length) continue;
      for (const part of pathTo(this.#scope, leaf, y)) {
        if (part === y || this.shapes.shapeOf(part)?.at(-1) !== forms.length || !this.#sameRank(part, y)) continue;
        const inner = this.#algebraTo(part);
        const own = inner.channels(y);
        if (!own?.every((terms) => terms.length > 0 && eachHasOne(terms, part))) continue;
        const verdict = judgeRotation(own, part, this.#isTable);
        if (verdict && 'rotation' in verdict) return { rotation: verdict.rotation, x: part, trails: inner.leaves };
      }
    }
    return because === undefined ? undefined : { because };
  }

  #sameRank(a: string, b: string): boolean {
    const [one, two] = [this.shapes.shapeOf(a), this.shapes.shapeOf(b)];
    return one !== undefined && one.length === two?.length;
  }

  /** Returns the leaves of which every term has exactly one channel. Those that are no tables come first. */
  #rotatedLeaves(forms: Forms): string[] {
    const terms = forms.flat();
    const [first] = terms;
    if (!first || forms.some((one) => one.length === 0)) return [];
    const leaves = new Set(first.factors.map((factor) => factor.leaf));
    const candidates = [...leaves].filter((leaf) => eachHasOne(terms, leaf));
    return candidates.sort((a, b) => Number(this.#isTable(a)) - Number(this.#isTable(b)));
  }
}

/** True if the later of two rotations is the earlier one times a number. */
function onlyScales({ x, rotation: later }: FoundArithmetic, { x: same, rotation: earlier }: FoundArithmetic): boolean {
  return (
    x === same &&
    later.rotaryDim === earlier.rotaryDim &&
    later.rotaryOffset === earlier.rotaryOffset &&
    later.scale !== earlier.scale
  );
}

function eachHasOne(terms: readonly Term[], leaf: string): boolean {
  return terms.every((term) => term.factors.filter((factor) => factor.leaf === leaf).length === 1);
}

function pathTo(scope: Scope, x: string, y: string): string[] {
  const nodes = between(scope, x, y);
  const path = new Set([x]);
  // In the order of the file, the maker of an input comes before its readers.
  for (const node of nodes.sort((a, b) => scope.indexOf(a) - scope.indexOf(b)))
    if (node.inputs.some((input) => path.has(input))) for (const output of node.outputs) path.add(output);
  path.delete(x);
  return [...path];
}

function between(scope: Scope, x: string, y: string): OnnxModelNode[] {
  const nodes = new Set<OnnxModelNode>();
  const walk = (value: string): void => {
    if (value === x || value === '') return;
    const node = scope.maker(value);
    if (!node || nodes.has(node) || !operatorOf(node)?.trace || nodes.size > 256) return;
    nodes.add(node);
    for (const input of node.inputs) walk(input);
  };
  walk(y);
  return [...nodes];
}
