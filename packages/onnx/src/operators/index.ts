/**
 * The table of ONNX operators: all that this package knows of each, by its name.
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

/** A map, not a record: names come from files. */
const OPERATORS: ReadonlyMap<string, Operator> = /* @__PURE__ */ new Map(
  /* @__PURE__ */ [ELEMENTWISE, LAYOUT, SELECTION, PRODUCTS, SOURCES, LAYERS].flatMap((group) => Object.entries(group)),
);

/** The operator of a node of the standard domain. */
export function operatorOf({ domain, opType }: OnnxModelNode): Operator | undefined {
  return domain === '' ? operatorNamed(opType) : undefined;
}

/** An operator by its name alone; the names of ONNX Runtime's own operators are in the table too, for their shapes. */
export function operatorNamed(opType: string): Operator | undefined {
  return OPERATORS.get(opType);
}
