/**
 * Reading the attributes of a node.
 *
 * @module
 */
import type { Dtype } from 'ropewalk';
import type { OnnxModelNode, OnnxTensor } from '../format/onnx-model.js';

/** A number in an attribute, or `missing`, the operator's default. */
export function numberAttribute<T extends number | undefined>(node: OnnxModelNode, name: string, missing: T) {
  const given = node.attributes.get(name);
  return given?.kind === 'int' || given?.kind === 'float' ? given.value : missing;
}

/** A list of integers in an attribute. */
export function intsAttribute(node: OnnxModelNode, name: string): readonly number[] | undefined {
  const given = node.attributes.get(name);
  return given?.kind === 'ints' ? given.value : undefined;
}

/** Numbers that a Constant node holds as attributes. */
interface ConstantNumbers {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

/** What a Constant node holds, in whichever of its attributes: numbers, or a tensor of the file. */
export function constantOfNode(node: OnnxModelNode): OnnxTensor | ConstantNumbers | undefined {
  const value = node.attributes.get('value');
  if (value?.kind === 'tensor') return value.value;
  for (const [kind, dtype] of [
    ['int', 'i64'],
    ['float', 'f32'],
  ] as const) {
    const scalar = numberAttribute(node, `value_${kind}`, undefined);
    if (scalar !== undefined) return { dtype, shape: [], values: [scalar] };
  }
  for (const [kind, dtype] of [
    ['ints', 'i64'],
    ['floats', 'f32'],
  ] as const) {
    const list = node.attributes.get(`value_${kind}`);
    if (list?.kind === 'ints' || list?.kind === 'floats')
      return { dtype, shape: [list.value.length], values: list.value };
  }
  return undefined;
}
