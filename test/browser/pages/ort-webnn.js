/**
 * Runs in a page. It runs exported graphs on the WebNN provider of onnxruntime-web, which may leave no node to the CPU.
 * It logs `{ version, ropes, standard, primitives }`. Each RoPE of `ropeModel` has its name and the largest error or a
 * refusal. The other operators have the golden cases `{ right, wrong, refused }` in each form.
 */
import { ropeModel, writeOnnxModel } from '@ropewalk/onnx';
import { goldenOperatorSuite, runCases } from '@ropewalk/oracle';
import { ropewalk } from 'ropewalk';

const Float16Array = /** @type {any} */ (globalThis).Float16Array;
const [ort, { OnnxruntimeBackend }] = await Promise.all(
  ['/ort/ort.webgpu.bundle.min.mjs', '/packages/onnx/dist/onnxruntime/host.js'].map((path) => import(path)),
);
ort.env.wasm.wasmPaths = '/ort/';
ort.env.wasm.numThreads = 1;
const OPTIONS = {
  executionProviders: ['webnn'],
  logSeverityLevel: 4,
  extra: { session: { disable_cpu_ep_fallback: '1' } }, // a node that WebNN cannot run is an error
};
// When MLGraphBuilder refuses a graph, create() never settles, and only an internal promise of the package rejects.
let refuse = (/** @type {unknown} */ _reason) => {};
addEventListener('unhandledrejection', (event) => {
  event.preventDefault();
  refuse(event.reason);
});
/** @type {(...given: unknown[]) => Promise<any>} */
const create = (...given) =>
  new Promise((resolve, reject) => {
    refuse = reject;
    ort.InferenceSession.create(...given).then(resolve, reject);
  });

const POSITIONS = [0, 1, 7, 33, 63];
const reference = await ropewalk({ backend: 'reference' });

/**
 * Returns the largest error of a RoPE.
 *
 * @param {Required<Pick<import('@ropewalk/onnx').RopeModelOptions, 'spec' | 'form' | 'angles' | 'dtype' | 'layout'>>} options
 */
async function ropeError({ spec, form, angles, dtype, layout }) {
  const [seq, heads] = [POSITIONS.length, 4];
  const { graph } = ropeModel({ spec, form, angles, dtype, layout, heads, context: 64 });
  const freeDimensionOverrides = { batch: 1, seq };
  const session = await create(writeOnnxModel(graph.model('rope', 'a page')), { ...OPTIONS, freeDimensionOverrides });
  const shape = layout === 'bsnh' ? [1, seq, heads, spec.headDim] : [1, heads, seq, spec.headDim];
  const length = seq * heads * spec.headDim;
  const x = (dtype === 'f16' ? Float16Array : Float32Array).from(Array.from({ length }, (_, i) => Math.sin(i * i)));
  const ids = new ort.Tensor('int64', BigInt64Array.from(POSITIONS, BigInt), [1, seq]);
  const { y } = await session.run({
    x: new ort.Tensor(dtype === 'f16' ? 'float16' : 'float32', x, shape),
    position_ids: ids,
  });
  const want = reference.rope(reference.tensor(Float32Array.from(x), { shape }), POSITIONS, { ...spec, layout });
  const right = await want.readNumbers();
  await session.release();
  return Math.max(...right.map((value, i) => Math.abs(value - y.data[i])));
}

const ropes = [];
for (const pairing of /** @type {const} */ (['half', 'interleaved']))
  for (const layout of /** @type {const} */ (['bsnh', 'bnsh']))
    for (const [dtype, form, angles] of /** @type {const} */ ([
      ['f32', 'standard', 'f32-table'],
      ['f32', 'primitives', 'f32-table'],
      ['f32', 'primitives', 'f32'],
      ['f32', 'primitives', 'f32-reduced'],
      ['f32', 'primitives', 'f64'],
      ['f16', 'standard', 'f16-table'],
      ['f16', 'primitives', 'f16-table'],
    ])) {
      const spec = { headDim: 64, rotaryDim: 32, pairing, base: 10000 };
      const said = await ropeError({ spec, form, angles, dtype, layout }).catch(String);
      ropes.push({ name: `${form} ${angles} ${pairing} ${layout}`, said });
    }

/** @param {'standard' | 'primitives'} form */
async function operators(form) {
  const backend = new OnnxruntimeBackend({ ...ort, InferenceSession: { create } }, OPTIONS, { form });
  /** @type {Record<'right' | 'wrong' | 'refused', string[]>} */
  const found = { right: [], wrong: [], refused: [] };
  for await (const { label, verdict } of runCases(goldenOperatorSuite(), await ropewalk({ backend })))
    if (verdict.status === 'ok') found.right.push(label);
    else if (verdict.status === 'fail')
      found[verdict.detail.startsWith('RopewalkError') ? 'refused' : 'wrong'].push(label);
  return found;
}

console.log(
  JSON.stringify({
    version: ort.env.versions.web,
    ropes,
    standard: await operators('standard'),
    primitives: await operators('primitives'),
  }),
);
