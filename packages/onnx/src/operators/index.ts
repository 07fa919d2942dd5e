/**
 * The table of ONNX operators, with everything that this package knows about each of them.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/
 */
import type { OnnxModelNode } from '../format/onnx-model.js';
import { ELEMENTWISE } from './elementwise.js';
import { LAYERS } from './layers.js';
import { LAYOUT } from './layout.js';
import type { Operator } from './operator.js';
import { PRODUCTS } from './products.js';
import { SELECTION } from './selection.js';
import { SOURCES } from './sources.js';

/** It is a map and not a record because names come from files. */
const OPERATORS: ReadonlyMap<string, Operator> = /* @__PURE__ */ new Map(
  /* @__PURE__ */ [ELEMENTWISE, LAYOUT, SELECTION, PRODUCTS, SOURCES, LAYERS].flatMap((group) => Object.entries(group)),
);

/** Returns the operator of a node of the standard domain. */
export function operatorOf({ domain, opType }: OnnxModelNode): Operator | undefined {
  return domain === '' ? operatorNamed(opType) : undefined;
}

/** Returns an operator by its name alone. The table also has ONNX Runtime's own operators, for their shapes. */
export function operatorNamed(opType: string): Operator | undefined {
  return OPERATORS.get(opType);
}
