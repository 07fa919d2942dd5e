/**
 * Writes the vectors of ONNX Runtime's operators of domain com.microsoft that rotate.
 *
 *     node --import tsx vectors/onnx-contrib/generate.mjs
 *
 * RotaryEmbedding and MRotaryEmbedding are run in onnxruntime-node's CPU provider. GemmaRotaryEmbedding has no CPU
 * kernel there: its vector is its formula in float64. The seed of a tensor is its case's name and its own.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { writeNpy } from '../../packages/formats/src/npy.js';
import { roundTo } from '../../packages/ropewalk/src/core/dtypes.js';
import { randomFrom } from '../../packages/ropewalk/src/core/random.js';
import { tensorFrom, zeros } from '../../packages/ropewalk/src/core/tensor.js';
import { runOnnx } from '../../test/support/ort.js';
import { f64Tensor } from '../../test/support/tensors.js';

const HERE = new URL('.', import.meta.url);

const drawn = (seed, dtype, shape) => {
  const random = randomFrom(seed);
  const values = Float64Array.from({ length: zeros(dtype, shape).size }, () => roundTo(dtype, random.uniform(-1, 1)));
  return f64Tensor(values, shape, dtype);
};
const ids = (values, shape) => tensorFrom(BigInt64Array.from(values, BigInt), { shape });

const SIX = ids([4, 0, 8, 1, 1, 7], [2, 3]);
const EIGHT = ids([4, 0, 8, 1, 1, 7, 2, 5], [2, 4]);
const AXES = ids([4, 0, 8, 1, 1, 7, 3, 3, 5, 6, 2, 0, 7, 8, 1, 2, 6, 4], [3, 2, 3]);
/** Operator, name, input's shape, position_ids, width of the caches, attributes. */
const CASES = [
  ['RotaryEmbedding', 'three_dims_heads_by_caches', [2, 3, 24], SIX, 4, {}],
  ['RotaryEmbedding', 'four_dims', [2, 3, 4, 8], EIGHT, 4, {}],
  ['RotaryEmbedding', 'interleaved', [2, 3, 24], SIX, 4, { interleaved: 1 }],
  ['RotaryEmbedding', 'one_offset', [2, 3, 24], ids([5], [1]), 4, {}],
  ['RotaryEmbedding', 'one_offset_scalar', [1, 3, 8], ids([2], []), 4, { interleaved: 1 }],
  ['RotaryEmbedding', 'partial', [2, 3, 24], SIX, 3, { rotary_embedding_dim: 6, num_heads: 3 }],
  ['RotaryEmbedding', 'partial_four_dims', [2, 3, 4, 8], EIGHT, 2, { rotary_embedding_dim: 4, num_heads: 3 }],
  ['RotaryEmbedding', 'scale_is_ignored', [1, 3, 8], ids([2, 3, 4], [1, 3]), 4, { scale: 3 }],
  ['RotaryEmbedding', 'packed', [1, 12, 8], ids(Array(12).fill(3), [1, 12]), 4, { is_packed_batching: 1 }],
  ['MRotaryEmbedding', 'sections', [2, 3, 24], AXES, 4, { mrope_section: [2, 1, 1], num_heads: 3 }],
  [
    'MRotaryEmbedding',
    'interleaved_layout',
    [2, 3, 36],
    AXES,
    6,
    { mrope_section: [2, 2, 2], mrope_layout: 1, num_heads: 3 },
  ],
  [
    'MRotaryEmbedding',
    'interleaved_layout_uneven',
    [2, 3, 36],
    AXES,
    6,
    { mrope_section: [4, 1, 1], mrope_layout: 1, num_heads: 3 },
  ],
  [
    'MRotaryEmbedding',
    'interleaved_pairs',
    [2, 3, 24],
    AXES,
    4,
    { mrope_section: [1, 1, 2], interleaved: 1, num_heads: 3 },
  ],
  [
    'MRotaryEmbedding',
    'four_dims_partial',
    [2, 3, 3, 8],
    AXES,
    3,
    { mrope_section: [1, 1, 1], rotary_embedding_dim: 6, num_heads: 3 },
  ],
];

/** The operator in ONNX Runtime. */
async function inOrt(opType, inputs, attributes) {
  const typed = ([name, { dtype, shape }]) => ({ name, dtype, shape: [...shape] });
  const attribute = (name, value) =>
    Array.isArray(value) ? { ints: value } : name === 'scale' ? { f: value } : { i: value };
  const run = await runOnnx(
    {
      name: 'contrib',
      opset: 21,
      domains: { 'com.microsoft': 1 },
      irVersion: 10,
      producer: 'ropewalk',
      inputs: Object.entries(inputs).map(typed),
      outputs: [typed(['output', inputs.input])],
      initializers: new Map(),
      nodes: [
        {
          opType,
          domain: 'com.microsoft',
          inputs: Object.keys(inputs),
          outputs: ['output'],
          attributes: Object.fromEntries(Object.entries(attributes).map(([k, v]) => [k, attribute(k, v)])),
        },
      ],
    },
    new Map(Object.entries(inputs)),
  );
  return run.get('output');
}

const manifest = [];

/** @param outputs - name → dtype, tensor, roundings, magnitude */
function write(id, call, args, inputs, outputs) {
  const save = (name, tensor) => {
    const { dtype, shape } = tensor;
    const file = `${id}.${name}.npy`;
    writeFileSync(new URL(file, HERE), writeNpy(tensor.contiguous().read(), { dtype, shape: [...shape] }));
    return file;
  };
  const listed = (of, fields) => Object.fromEntries(Object.entries(of).map(([name, value]) => [name, fields(name, value)]));
  manifest.push({
    id,
    call,
    args,
    inputs: listed(inputs, (name, t) => ({ file: save(name, t), dtype: t.dtype, shape: [...t.shape] })),
    outputs: listed(outputs, (name, [dtype, tensor, roundings, magnitude]) => {
      const wide = f64Tensor(tensor.readNumbers(), tensor.shape, 'f64');
      return { dtype, shape: [...tensor.shape], expected: save(`${name}.expected`, wide), roundings, magnitude };
    }),
  });
}

for (const [op, name, shape, position_ids, width, attributes] of CASES) {
  for (const dtype of ['f32', 'f16']) {
    const id = `${op === 'RotaryEmbedding' ? 'rotary' : 'mrotary'}_${name}_${dtype}`;
    const cache = (which) => drawn(`${id} ${which}`, dtype, [9, width]);
    const inputs = {
      input: drawn(`${id} input`, dtype, shape),
      position_ids,
      cos_cache: cache('cos'),
      sin_cache: cache('sin'),
    };
    const output = await inOrt(op, inputs, attributes);
    // Two products and a sum, three roundings in f32: ONNX Runtime's and those of who is judged. f16 it rounds no worse
    // than once at the end (measured).
    const roundings = dtype === 'f32' ? 6 : 3 + 2 ** 13;
    write(id, `com.microsoft.${op}`, attributes, inputs, { output: [dtype, output, roundings, 2] });
  }
}

const id = 'gemma_f16';
const [batch, seq, dim] = [2, 3, 6];
const head = (name, heads) => drawn(`${id} ${name}`, 'f16', [batch, heads, seq, dim]);
const emb = drawn(`${id} emb`, 'f32', [batch, seq, dim]);
const inputs = { emb, q: head('q', 4), q_rot: head('q_rot', 4), k: head('k', 1), k_rot: head('k_rot', 1) };
const half = (value) => roundTo('f16', Math.fround(value));
const embedded = (x, turned) => {
  const [angles, a, b] = [emb, x, turned].map((tensor) => tensor.readNumbers());
  const ofHead = seq * dim;
  const values = a.map((value, n) => {
    const angle = angles[Math.floor(n / (x.shape[1] * ofHead)) * ofHead + (n % ofHead)];
    return value * half(Math.cos(angle)) + b[n] * half(Math.sin(angle));
  });
  return ['f16', f64Tensor(values, x.shape, 'f64'), 3, 2];
};
write(id, 'com.microsoft.GemmaRotaryEmbedding', {}, inputs, {
  output1: embedded(inputs.q, inputs.q_rot),
  output2: embedded(inputs.k, inputs.k_rot),
});

const ort = new URL(import.meta.resolve('onnxruntime-node/package.json'));
const meta = {
  generator: 'generate.mjs',
  'onnxruntime-node': JSON.parse(readFileSync(ort, 'utf8')).version,
  fields: {
    expected: "ONNX Runtime's result, widened; of GemmaRotaryEmbedding its formula in float64, not rounded",
    'roundings, magnitude':
      "f32 arithmetic, then one rounding to dtype, is within roundings * 2^-24 * magnitude and that rounding of it; ONNX Runtime's own error is counted in",
  },
};
writeFileSync(
  new URL('manifest.json', HERE),
  `${JSON.stringify({ suite: 'onnx-contrib', meta, cases: manifest }, null, 1)}\n`,
);
