/**
 * Finds every RoPE of a model: the nodes that are one, attention that has one inside, and the arithmetic that exporters write out.
 *
 * Arithmetic is recognised by what it computes, not by names or by the order of its nodes. The exporters whose forms are tested:
 * torch.onnx and optimum on HuggingFace's modeling files (huggingface/transformers@5dd4a63), what ONNX Runtime's and onnxscript's own fusions
 * look for (microsoft/onnxruntime@0d528d7 fusion_rotary_attention.py, microsoft/onnxscript@0b9afd9 rules/fusion/_rotary_embedding.py),
 * and OpenVINO's (openvinotoolkit/openvino@16f3e84 fuse_rotary_positional_embeddings.cpp).
 *
 * @module
 */
import { countElements } from 'ropewalk/backend';
import type { OnnxModelFile, OnnxModelNode } from '../format/onnx-model.js';
import { numberAttribute } from '../operators/attributes.js';
import type { Forms } from '../operators/forms.js';
import { operatorOf } from '../operators/index.js';
import { Algebra, MAX_CHANNELS } from './algebra.js';
import { Evaluation } from './evaluate.js';
import { judgeRotation, type Rotation } from './rotation.js';
import { nodeName, type Scope, scopesOf } from './scope.js';
import { Shapes } from './shapes.js';
import { isTable } from './sources.js';
import { SEARCHING, Work } from './work.js';

/** Where something was found. */
interface Place {
  /** The name of its node; for arithmetic, of the node that makes y. */
  readonly name: string;
  /** '' for the model's own graph. */
  readonly scopeName: string;
  readonly scope: Scope;
  readonly shapes: Shapes;
  readonly node: OnnxModelNode;
  /** What its import may compute. */
  readonly work: Work;
}

/** A RotaryEmbedding node. */
export interface FoundNode extends Place {
  readonly kind: 'node';
  readonly dialect: 'onnx' | 'onnxruntime';
}

/** Attention that turns q and k itself. */
export interface FoundAttention extends Place {
  readonly kind: 'attention';
}

/** A rotation written out in primitive operators. */
export interface FoundArithmetic extends Place {
  readonly kind: 'arithmetic';
  readonly x: string;
  readonly y: string;
  readonly rotation: Rotation;
  /** Table → the sizes of its last dimensions, which the factors of the rotation count. */
  readonly trails: ReadonlyMap<string, readonly number[]>;
}

/** What looks like RoPE and is none. */
export interface NearMiss extends Pick<Place, 'name' | 'scopeName'> {
  readonly because: string;
}

/** What was found. */
export interface Findings {
  readonly found: readonly (FoundNode | FoundAttention | FoundArithmetic)[];
  readonly nearly: readonly NearMiss[];
}

/** From a product to the end of its rotation there are fewer steps than this: Add, Concat, Reshape, Cast, Concat. */
const MAX_STEPS = 10;
/** And fewer values. */
const MAX_VALUES = 48;

/**
 * Finds every RoPE, in the model's own graph, its functions, and the graphs inside its nodes.
 *
 * @param model - as it was read
 * @param work - what the search may take
 * @throws {TooMuchWork} when the graph takes more
 */
export function findRope(model: OnnxModelFile, work = new Work(model.bytes, SEARCHING)): Findings {
  const computing = new Work(model.bytes);
  const found: (FoundNode | FoundAttention | FoundArithmetic)[] = [];
  const nearly: NearMiss[] = [];
  const shapesOf = new Map<Scope, Shapes>();
  for (const scope of scopesOf(model)) {
    const shapes = new Shapes(scope, scope.parent && shapesOf.get(scope.parent));
    shapesOf.set(scope, shapes);
    for (const [n, node] of scope.graph.nodes.entries()) {
      const place: Place = { name: nodeName(node, n), scopeName: scope.name, scope, shapes, node, work: computing };
      if (node.opType === 'RotaryEmbedding' && (node.domain === '' || node.domain === 'com.microsoft'))
        found.push({ kind: 'node', dialect: node.domain === '' ? 'onnx' : 'onnxruntime', ...place });
      else if (node.domain === 'com.microsoft' && numberAttribute(node, 'do_rotary', 0) !== 0)
        found.push({ kind: 'attention', ...place });
    }
    findArithmetic(scope, shapes, work, computing, found, nearly);
  }
  return { found, nearly };
}

function findArithmetic(
  scope: Scope,
  shapes: Shapes,
  work: Work,
  computing: Work,
  found: Findings['found'][number][],
  nearly: NearMiss[],
): void {
  const constants = new Evaluation(scope, shapes, { wholeCaches: false }, computing);
  const covered = new Set<OnnxModelNode>();
  const tables = new Map<string, boolean>();
  const table = (leaf: string): boolean => {
    const known = tables.get(leaf) ?? isTable(scope, leaf);
    tables.set(leaf, known);
    return known;
  };
  for (const anchor of scope.graph.nodes) {
    if (anchor.opType !== 'Mul' || anchor.domain !== '' || covered.has(anchor) || !mayTurn(anchor, shapes)) continue;
    // Afresh for each product: what it traced is let go when its neighbourhood is done.
    const algebras = new Map<string, Algebra>();
    const algebraTo = (stop: string): Algebra => {
      const known = algebras.get(stop) ?? new Algebra(shapes, constants, work, stop);
      algebras.set(stop, known);
      return known;
    };
    const algebra = algebraTo('');
    let nearest: { miss: NearMiss; y: string } | undefined;
    for (const y of endsOf(scope, anchor, work)) {
      const forms = algebra.channels(y);
      work.spend(4 * (forms?.length ?? 1));
      const verdict = forms && judge(y, forms, algebraTo, shapes, table);
      if (!verdict) continue;
      const node = scope.maker(y)!;
      const place = { name: nodeName(node, scope.indexOf(node)), scopeName: scope.name };
      if ('because' in verdict) {
        // The smallest value says it best: later ones repeat it with more around.
        nearest = { miss: { ...place, because: verdict.because }, y };
        continue;
      }
      found.push({ kind: 'arithmetic', ...place, scope, shapes, node, work: computing, y, ...verdict });
      for (const inner of between(scope, verdict.x, y)) covered.add(inner);
      nearest = undefined;
      break;
    }
    if (nearest) {
      nearly.push(nearest.miss);
      for (const inner of between(scope, '', nearest.y)) covered.add(inner);
    }
  }
}

/** A product as wide as a head may be one of a rotation's. */
function mayTurn(node: OnnxModelNode, shapes: Shapes): boolean {
  const shape = shapes.shapeOf(node.outputs[0]!);
  return (
    shape !== undefined &&
    shape.length >= 2 &&
    shape.slice(-1).every((dim) => typeof dim === 'number' && dim <= MAX_CHANNELS)
  );
}

/** Values that a product may end in, the last of the file first. */
function endsOf(scope: Scope, anchor: OnnxModelNode, work: Work): string[] {
  const values = new Map<string, number>();
  let front = [anchor.outputs[0]!];
  for (let step = 0; step < MAX_STEPS && front.length > 0; step++) {
    const next: string[] = [];
    for (const value of front) {
      const readers = scope.readersOf(value);
      work.spend(readers.length);
      for (const { node } of readers) {
        if (!operatorOf(node)?.trace) continue;
        for (const output of node.outputs) {
          if (output === '' || values.has(output) || values.size >= MAX_VALUES) continue;
          values.set(output, scope.indexOf(node));
          next.push(output);
        }
      }
    }
    front = next;
  }
  return [...values].sort((a, b) => b[1] - a[1]).map(([value]) => value);
}

type Judged = Pick<FoundArithmetic, 'rotation' | 'x' | 'trails'> | { readonly because: string } | undefined;

function judge(
  y: string,
  forms: Forms,
  algebraTo: (stop: string) => Algebra,
  shapes: Shapes,
  table: (leaf: string) => boolean,
): Judged {
  const { leaves } = algebraTo('');
  let because: string | undefined;
  for (const leaf of turnedLeaves(forms, table)) {
    const trail = leaves.get(leaf)!;
    if (trail.length === 1 && trail[0] === forms.length && sameRank(shapes, leaf, y)) {
      const verdict = judgeRotation(forms, leaf, table);
      if (verdict && 'rotation' in verdict) return { rotation: verdict.rotation, x: leaf, trails: leaves };
      because ??= verdict?.because;
      continue;
    }
    // x is a part of something wider (q of qkv, the rotary part of DeepSeek's heads): take the part as a value of its own.
    if (countElements(trail) < forms.length || shapes.shapeOf(leaf)?.length === trail.length) continue;
    for (const part of pathTo(shapes.scope, leaf, y)) {
      if (part === y || shapes.shapeOf(part)?.at(-1) !== forms.length || !sameRank(shapes, part, y)) continue;
      const inner = algebraTo(part);
      const own = inner.channels(y);
      if (
        !own?.every(
          (terms) =>
            terms.length > 0 &&
            terms.every((term) => term.factors.filter((factor) => factor.leaf === part).length === 1),
        )
      )
        continue;
      const verdict = judgeRotation(own, part, table);
      if (verdict && 'rotation' in verdict) return { rotation: verdict.rotation, x: part, trails: inner.leaves };
    }
  }
  return because === undefined ? undefined : { because };
}

function sameRank(shapes: Shapes, a: string, b: string): boolean {
  const [one, two] = [shapes.shapeOf(a), shapes.shapeOf(b)];
  return one !== undefined && two !== undefined && one.length === two.length;
}

/** Leaves of which every term has exactly one channel; those that are no tables first. */
function turnedLeaves(forms: Forms, table: (leaf: string) => boolean): string[] {
  const terms = forms.flat();
  const [first] = terms;
  if (!first || forms.some((one) => one.length === 0)) return [];
  const candidates = [...new Set(first.factors.map((factor) => factor.leaf))].filter((leaf) =>
    terms.every((term) => term.factors.filter((factor) => factor.leaf === leaf).length === 1),
  );
  return candidates.sort((a, b) => Number(table(a)) - Number(table(b)));
}

/** The traced values through which y comes from x. */
function pathTo(scope: Scope, x: string, y: string): string[] {
  const nodes = between(scope, x, y);
  const path = new Set([x]);
  // Nodes are in the order of their outputs' makers: inputs come before.
  for (const node of nodes.sort((a, b) => scope.indexOf(a) - scope.indexOf(b)))
    if (node.inputs.some((input) => path.has(input))) for (const output of node.outputs) path.add(output);
  path.delete(x);
  return [...path];
}

/** The traced nodes from which y comes, back to x. */
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
