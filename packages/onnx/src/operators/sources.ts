/**
 * Operators with which values begin: constants, ranges and branches.
 *
 * @module
 */
import { countElements } from 'ropewalk/internal';
import type { OnnxGraph, OnnxModelNode } from '../format/onnx-model.js';
import { constantOfNode, MAX_ENTRIES, type Operators } from './operator.js';
import { rounded, valueDtype } from './values.js';

function branch(node: OnnxModelNode, which: string): OnnxGraph | undefined {
  const body = node.attributes.get(which);
  return body?.kind === 'graph' ? body.value : undefined;
}

export const SOURCES: Operators = {
  Constant: {
    dtype: ({ node }) => {
      const constant = constantOfNode(node);
      return constant && ('read' in constant ? valueDtype(constant.dataType) : constant.dtype);
    },
    shapes: ({ node }) => [constantOfNode(node)?.shape],
    content: (n) => {
      const constant = constantOfNode(n.node);
      if (constant && 'read' in constant) return n.integersOf(constant);
      return constant?.dtype === 'i64' ? constant.values : undefined;
    },
    compute: (n) => {
      const constant = constantOfNode(n.node) ?? n.cannot('has no value that is a tensor');
      if ('read' in constant) return n.read(constant);
      return { dtype: constant.dtype, shape: constant.shape, data: Float64Array.from(constant.values) };
    },
  },
  ConstantOfShape: {
    data: [0, 0],
    dtype: ({ node }) => {
      const value = node.attributes.get('value');
      return value?.kind === 'tensor' ? valueDtype(value.value.dataType) : 'f32';
    },
    shapes: (n) => [n.content(0)],
    content: (n) => {
      const length = n.numbers(0);
      const value = n.node.attributes.get('value');
      if (length?.length !== 1 || value?.kind !== 'tensor') return undefined;
      const fill = n.integersOf(value.value)?.[0];
      return fill === undefined || !(length[0]! >= 0 && length[0]! <= MAX_ENTRIES)
        ? undefined
        : new Array<number>(length[0]!).fill(fill);
    },
    compute: (n) => {
      const shape = n.integers(0);
      n.fits(shape);
      const value = n.node.attributes.get('value');
      const fill = value?.kind === 'tensor' ? n.read(value.value) : undefined;
      const data = new Float64Array(countElements(shape)).fill(fill?.data[0] ?? 0);
      return { dtype: fill?.dtype ?? 'f32', shape, data };
    },
  },
  Range: {
    shapes: (n) => {
      const [start, limit, delta] = n.node.inputs.map((_, input) => n.numbers(input)?.[0]);
      const known = start !== undefined && limit !== undefined && delta !== undefined && delta !== 0;
      return [[known ? Math.max(0, Math.ceil((limit - start) / delta)) : n.fresh(0)]];
    },
    compute: (n) => {
      const [{ dtype, data }, limits, deltas] = [n.input(0), n.input(1), n.input(2)];
      const [start, limit, delta] = [data[0]!, limits.data[0]!, deltas.data[0]!];
      const count = Math.max(0, Math.ceil((limit - start) / delta));
      n.fits([count]);
      const values = Float64Array.from({ length: count }, (_, at) => start + at * delta);
      return rounded(dtype, [count], values);
    },
  },
  // LongRoPE and dynamic NTK choose their frequencies by length.
  If: {
    shapes: (n) => {
      const [yes, no] = ['then_branch', 'else_branch'].map((which) => {
        const body = branch(n.node, which);
        return body && n.inside(body);
      });
      return n.node.outputs.map((_, output) => {
        const [a, b] = [yes?.[output], no?.[output]];
        if (!a || a.length !== b?.length) return undefined;
        return a.map((dim, axis) => (dim === b[axis] ? dim : n.fresh(axis, output)));
      });
    },
    compute: (n) => {
      const which = n.part(0).data[0] !== 0 ? 'then_branch' : 'else_branch';
      return n.inside(branch(n.node, which) ?? n.cannot(`has no ${which}`));
    },
  },
};
