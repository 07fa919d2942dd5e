/** Runs ONNX models for onnxruntime.py. Each request and each answer is a line of JSON and bytes. */
// @ts-nocheck: onnxruntime-node is a peer that npm ci does not bring
import { readSync, writeSync } from 'node:fs';
import { InferenceSession, Tensor } from 'onnxruntime-node';

/** Reads the next bytes of stdin. At its end the process exits. @param {number} count */
function take(count) {
  const bytes = new Uint8Array(count);
  for (let at = 0; at < count; ) {
    const read = readSync(0, bytes, at, count - at, null);
    if (read === 0) process.exit();
    at += read;
  }
  return bytes;
}

function line() {
  let text = '';
  for (let [byte] = take(1); byte !== 10; [byte] = take(1)) text += String.fromCharCode(byte ?? 0);
  return text;
}

/** Writes all bytes, because writeSync may write only some of them. @param {Uint8Array} bytes */
function write(bytes) {
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

for (;;) {
  /** @type {{ model: number, feeds: [string, number[]][] }} */
  const { model, feeds } = JSON.parse(line());
  const bytes = take(model);
  /** @type {Record<string, Tensor>} */
  const inputs = {};
  for (const [name, dims] of feeds) {
    const data = take(4 * dims.reduce((product, n) => product * n, 1));
    inputs[name] = new Tensor('float32', new Float32Array(data.buffer), dims);
  }
  try {
    const session = await InferenceSession.create(bytes);
    const { y } = await session.run(inputs);
    const values = /** @type {Float32Array} */ (/** @type {Tensor} */ (y).data);
    write(Buffer.from(`${JSON.stringify({ dims: y?.dims })}\n`));
    write(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    await session.release();
  } catch (error) {
    write(Buffer.from(`${JSON.stringify({ error: String(error) })}\n`));
  }
}
