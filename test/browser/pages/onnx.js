/**
 * Runs in a page, bundled. It exports a RoPE as an ONNX model, reads the model, finds the RoPE in it and runs it. It
 * logs `{ nodes, pairing, base, y }`.
 */
import { importOnnx, parseOnnxModel, ropeModel, runImported, writeOnnxModel } from '@ropewalk/onnx';
import { ropewalk, tensorFrom } from 'ropewalk';

const { graph } = ropeModel({
  spec: { headDim: 4, pairing: 'half', base: 10000 },
  form: 'primitives',
  angles: 'f32-reduced',
  context: 16,
});
const bytes = writeOnnxModel(graph.model('rope', 'a page'));
const [rope] = /** @type {[import('@ropewalk/onnx').ImportedRope]} */ (
  /** @type {unknown} */ (importOnnx(bytes).ropes)
);
const rw = await ropewalk({ backend: 'cpu', threads: 1 });
const x = rw.upload(Float32Array.of(1, 0, 0, 0), { shape: [1, 1, 1, 4] });
const y = runImported(rope, rw, { x, positionIds: tensorFrom(BigInt64Array.of(1n), { shape: [1, 1] }) });
console.log(
  JSON.stringify({
    nodes: parseOnnxModel(bytes).graph.nodes.length,
    pairing: rope.pairing,
    base: rope.spec?.base,
    y: [...(await y.readNumbers())],
  }),
);
