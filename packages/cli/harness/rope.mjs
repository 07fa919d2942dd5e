/**
 * PASTE YOUR KERNEL HERE. Returns nothing when y is written, or why it cannot do this case (a skip).
 *
 * @param y - Float64Array, [batch, seq, heads, headDim] or, if it is a cache, its rows as they are; rounded once later
 * @param x - Float64Array, the same shape; xStride and yStride: elements from batch to batch, token to token, head to head
 * @param positions - [axes, batch, seq], numbers; one axis unless it is M-RoPE; axis[j] is the axis of pair j
 * @param pairing - pair j is (j, j + rotaryDim/2): half; (2j, 2j+1): interleaved; interleaved-to-half reads the second
 *   and writes the first; all of them rotaryOffset dimensions further
 * @param invFreq - [rotaryDim/2], radians for a position; base and scaling are in it
 * @param magnitude - multiplies cos and sin; backward: the transpose
 * @param base - and scaling (none, linear, llama3, …), for a kernel that makes its own frequencies
 * @param beyond - what a kernel of q, positions and base does not have, such as 'needs M-RoPE'; '': nothing
 * @param weight - [headDim], RMS norm of the head before the rotation, with eps; undefined: none
 * @param rows - [batch, seq]: the row of the cache y that a token goes to; undefined: y is no cache
 */
function rope({ y, x, positions, batch, seq, heads, headDim, xStride, yStride, ...spec }) {
  const { pairing, rotaryDim, rotaryOffset, invFreq, axis, magnitude, backward, weight, eps, rows } = spec;
  const half = rotaryDim / 2;
  let [readsHalf, writesHalf] = [pairing === 'half', pairing !== 'interleaved'];
  if (backward) [readsHalf, writesHalf] = [writesHalf, readsHalf];
  for (let n = 0; n < batch * seq * heads; n++) {
    const [h, token] = [n % heads, Math.floor(n / heads)];
    const [b, s, row] = [Math.floor(token / seq), token % seq, rows ? rows[token] : token % seq];
    if (row < 0) continue; // a token that is not written
    const from = b * xStride[0] + s * xStride[1] + h * xStride[2];
    const to = b * yStride[0] + row * yStride[1] + h * yStride[2];
    let head = x.slice(from, from + headDim);
    if (weight) {
      const rms = Math.sqrt(head.reduce((sum, v) => sum + v * v, 0) / headDim + eps);
      head = head.map((v, i) => (weight[i] * v) / rms);
    }
    y.set(head, to);
    for (let j = 0; j < half; j++) {
      const angle = positions[axis[j] * batch * seq + token] * invFreq[j];
      const [c, sine] = [Math.cos(angle) * magnitude, Math.sin(angle) * magnitude * (backward ? -1 : 1)];
      const i0 = rotaryOffset + (readsHalf ? j : 2 * j);
      const o0 = to + rotaryOffset + (writesHalf ? j : 2 * j);
      const [x0, x1] = [head[i0], head[i0 + (readsHalf ? half : 1)]];
      y[o0] = x0 * c - x1 * sine;
      y[o0 + (writesHalf ? half : 1)] = x0 * sine + x1 * c;
    }
  }
}

// ---- The protocol of docs/verify.md; nothing to change below, unless you add an operator to OPS. ----

const SIXTEEN = { f16: [10, -14, 0x7c00], bf16: [7, -126, 0x7f80] }; // bits of the fraction, lowest exponent, infinity

/** A tensor's elements as numbers. */
function load(buffer, dtype) {
  const list = { f32: Float32Array, f64: Float64Array, i32: Int32Array, i64: BigInt64Array, u8: Uint8Array }[dtype];
  if (list) return Float64Array.from(new list(buffer), Number);
  const [m, low, infinity] = SIXTEEN[dtype];
  return Float64Array.from(new Uint16Array(buffer), (bits) => {
    const [exponent, fraction, sign] = [(bits & infinity) >> m, bits & ((1 << m) - 1), bits >> 15 ? -1 : 1];
    if ((bits & infinity) === infinity) return fraction ? NaN : sign * Infinity;
    return sign * (fraction + (exponent ? 1 << m : 0)) * 2 ** (low - m + Math.max(0, exponent - 1));
  });
}

/** Numbers as a tensor's bytes, rounded once, to nearest even. */
function store(values, dtype) {
  const bytesOf = (list) => new Uint8Array(list.buffer);
  if (dtype === 'f32') return bytesOf(Float32Array.from(values));
  if (dtype === 'f64') return bytesOf(values);
  const [m, low, infinity] = SIXTEEN[dtype];
  const round = (v) => {
    if (Number.isNaN(v)) return infinity | 1;
    const sign = v < 0 || Object.is(v, -0) ? 0x8000 : 0;
    let unit = low - m; // the exponent of the last place
    while (Math.abs(v) >= 2 ** (unit + m + 1) && unit < 200) unit++;
    const scaled = Math.abs(v) / 2 ** unit;
    const floor = Math.floor(scaled);
    const up = scaled - floor > 0.5 || (scaled - floor === 0.5 && floor % 2 === 1);
    return sign | Math.min(infinity, floor + Number(up) + (unit - low + m) * 2 ** m);
  };
  return bytesOf(Uint16Array.from(values, round));
}

function ropeParts({ attributes, rope: derived, inputs, outputs }, data) {
  const { parts, direction, layout } = attributes;
  const stridesOf = ([, a, b, d]) => (layout === 'bsnh' ? [a * b * d, b * d, d] : [a * b * d, d, b * d]);
  const numbers = (name) => name && load(data[name], inputs.find((one) => one.name === name).dtype);
  const made = {};
  for (const part of parts) {
    const { shape } = inputs.find(({ name }) => name === part.x);
    const out = outputs.find(({ name }) => name === part.out);
    const [batch, seq, heads] = layout === 'bsnh' ? shape : [shape[0], shape[2], shape[1]];
    const given = numbers('positions');
    const each = given.length / derived.numAxes; // [seq] stands for every batch
    const positions = Array.from({ length: derived.numAxes * batch * seq }, (_, n) => {
      return given[Math.floor(n / (batch * seq)) * each + ((n % (batch * seq)) % each)];
    });
    const y = part.cache ? numbers(part.cache) : new Float64Array(out.shape.reduce((product, n) => product * n));
    const strides = { headDim: shape[3], xStride: stridesOf(shape), yStride: stridesOf(out.shape) };
    const norm = { weight: numbers(part.weight), eps: part.eps, rows: numbers(part.rows) };
    const where = { ...derived, axis: derived.axisOfPair, positions, backward: direction === 'backward' };
    const why = rope({ y, x: numbers(part.x), batch, seq, heads, ...strides, ...where, ...norm });
    if (why) return why;
    made[part.out] = store(y, out.dtype);
  }
  return made;
}

/** Other operators: a function of the case's header and its inputs' bytes that returns the outputs' bytes, by name. */
const OPS = { rope: ropeParts };

// The bytes that were read and not yet taken.
let held = Buffer.alloc(0);
const chunks = process.stdin[Symbol.asyncIterator]();

async function more() {
  const { value, done } = await chunks.next();
  if (!done) held = Buffer.concat([held, value]);
  return !done;
}

function take(count) {
  const taken = Uint8Array.from(held.subarray(0, count)); // a copy, aligned for any typed array
  held = held.subarray(count);
  return taken;
}

async function nextCase() {
  while (!held.includes(10)) if (!(await more())) return undefined;
  const header = JSON.parse(Buffer.from(take(held.indexOf(10) + 1)).toString());
  const inputs = {};
  for (const { name, byteLength } of header.inputs) {
    while (held.length < byteLength) if (!(await more())) throw new Error('the input ended early');
    inputs[name] = take(byteLength).buffer;
  }
  return { header, inputs };
}

for (let one = await nextCase(); one; one = await nextCase()) {
  const { id, op, outputs } = one.header;
  const made = OPS[op]?.(one.header, one.inputs) ?? `op ${op}: this harness has rope only`;
  const skips = typeof made === 'string';
  process.stdout.write(`${JSON.stringify(skips ? { id, skip: made } : { id, outputs })}\n`);
  if (!skips) for (const { name } of outputs) process.stdout.write(made[name]);
}
