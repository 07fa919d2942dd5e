/**
 * Runs in a page, bundled: exports a RoPE as an ONNX model, reads it, finds the RoPE in it and runs it. Logs
 * `{ nodes, pairing, base, y }`.
 */
import { ropewalk, tensorFrom } from 'ropewalk';
import { writeOnnxModel } from 'ropewalk/formats/onnx';
import { parseOnnxModel } from 'ropewalk/formats/onnx-model';
import { ropeModel } from 'ropewalk/graph';
import { importOnnx, runImported } from 'ropewalk/import';

const { graph } = ropeModel({
  spec: { headDim: 4, pairing: 'half', base: 10000 },
  form: 'primitives',
  angles: 'f32-reduced',
  context: 16,
});
const bytes = writeOnnxModel(graph.model('rope', 'a page'));
const [rope] = /** @type {[import('ropewalk/import').ImportedRope]} */ (
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
