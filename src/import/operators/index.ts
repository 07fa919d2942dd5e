/**
 * The table of ONNX operators: all that this package knows of each, by its name.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/
 */
import type { OnnxModelNode } from '../../formats/onnx-model.js';
import { ELEMENTWISE } from './elementwise.js';
import { LAYERS } from './layers.js';
import { LAYOUT } from './layout.js';
import type { Operator } from './operator.js';
import { PRODUCTS } from './products.js';
import { SELECTION } from './selection.js';
import { SOURCES } from './sources.js';

/** A map, not a record: names come from files. */
const OPERATORS: ReadonlyMap<string, Operator> = /* @__PURE__ */ new Map(
  /* @__PURE__ */ [ELEMENTWISE, LAYOUT, SELECTION, PRODUCTS, SOURCES, LAYERS].flatMap((group) => Object.entries(group)),
);

/** The operator of a node of the standard domain. */
export function operatorOf(node: OnnxModelNode): Operator | undefined {
  return node.domain === '' ? OPERATORS.get(node.opType) : undefined;
}

/** The operator whose shapes a node of any domain has: ONNX Runtime's own operators have names of their own. */
export function shapesLike(node: OnnxModelNode): Operator | undefined {
  return OPERATORS.get(node.opType);
}
