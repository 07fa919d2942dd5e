/** Lists ways to break the library. For each, a case of the suites must fail. */

const KERNEL = 'packages/ropewalk/src/';
export const CPU = `${KERNEL}backends/wasm/`;
export const ASSEMBLY = `${CPU}assembly/`;
export const WEBGPU = `${KERNEL}backends/webgpu/`;
/** A name, a file, a text that occurs once, and its replacement. Any white space counts as one space. */
export type Mutation = readonly [name: string, file: string, from: string, to: string];

/** Each mutation breaks the library in one place. */
export const MUTATIONS: readonly Mutation[] = [
  [
    'sin with the other sign',
    'packages/ropewalk/src/ops/rope/table.ts',
    'const signed = magnitude * (',
    'const signed = -magnitude * (',
  ],
  [
    'interleaved and half swapped',
    'packages/ropewalk/src/ops/rope/plan.ts',
    'const interleaved: PairGeometry = { step: 2, gap: 1 };\n  const half: PairGeometry = { step: 1, gap: window.rotaryDim / 2 };',
    'const half: PairGeometry = { step: 2, gap: 1 };\n  const interleaved: PairGeometry = { step: 1, gap: window.rotaryDim / 2 };',
  ],
  [
    'cos and sin swapped',
    'packages/ropewalk/src/reference/rope.ts',
    'const cos = table.cos[tableRow + j]!;\n          const sin = table.sin[tableRow + j]!;',
    'const cos = table.sin[tableRow + j]!;\n          const sin = table.cos[tableRow + j]!;',
  ],
  [
    'frequencies over head_dim',
    'packages/ropewalk/src/ops/rope/plan.ts',
    "(spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim)",
    "(spec.pairing === 'vision' ? rotaryDim / 2 : spec.headDim)",
  ],
  [
    'pair distance head_dim / 2',
    'packages/ropewalk/src/ops/rope/plan.ts',
    'gap: window.rotaryDim / 2 }',
    'gap: window.headDim / 2 }',
  ],
  [
    'position off by one',
    'packages/ropewalk/src/ops/rope/table.ts',
    'rowPositions[a] = positions[a * rows + r]!;',
    'rowPositions[a] = positions[a * rows + r]! + 1;',
  ],
  [
    'batch ignored',
    'packages/ropewalk/src/reference/rope.ts',
    'x.offset + b * x.strides[0]!',
    'x.offset + 0 * x.strides[0]!',
  ],
  ['positions of batch 0 for every batch', 'packages/ropewalk/src/reference/rope.ts', 's : b * seqLen + s]', 's : s]'],
  ['window offset ignored', 'packages/ropewalk/src/reference/rope.ts', 'const i0 = rotaryOffset + j', 'const i0 = j'],
  [
    'tail not copied',
    'packages/ropewalk/src/reference/rope.ts',
    '= sourceBits[xAt + i * xDim]!',
    '= targetBits[outAt + i * outDim]!',
  ],
  [
    'freq_factors multiply',
    'packages/ropewalk/src/ops/rope/frequencies.ts',
    '/ (freqFactors ? freqFactors[j]! : 1)',
    '* (freqFactors ? freqFactors[j]! : 1)',
  ],
  [
    'magnitude dropped',
    'packages/ropewalk/src/ops/rope/frequencies.ts',
    'given.attentionFactor ?? magnitude',
    'given.attentionFactor ?? 1',
  ],
  [
    'YaRN ramp turned round',
    'packages/ropewalk/src/ops/rope/frequencies.ts',
    '(1 - clamp01((j - low)',
    '(clamp01((j - low)',
  ],
  [
    'YaRN betas swapped',
    'packages/ropewalk/src/ops/rope/frequencies.ts',
    'edge(scaling.betaFast ?? 32)',
    'edge(scaling.betaSlow ?? 1)',
  ],
  [
    'axes h and w swapped',
    'packages/ropewalk/src/ops/rope/axes.ts',
    'sector < t + h ? H : sector < t + h + w ? W : E',
    'sector < t + h ? W : sector < t + h + w ? H : E',
  ],
  [
    'imrope rest to t instead of e',
    'packages/ropewalk/src/ops/rope/axes.ts',
    'sector % 3 === 0 && sector < 3 * t ? T : E',
    'sector % 3 === 0 && sector < 3 * t ? T : T',
  ],
  [
    'vision exponent not restarted',
    'packages/ropewalk/src/ops/rope/axes.ts',
    "if (rule === 'vision') restartExponents(",
    "if (rule === ('never' as string)) restartExponents(",
  ],
  [
    'attention sees one key more',
    'packages/ropewalk/src/reference/self-attention.ts',
    'causal ? position :',
    'causal ? Math.min(position + 1, total - 1) :',
  ],
  [
    'query heads dealt out in turn',
    'packages/ropewalk/src/reference/self-attention.ts',
    'Math.floor(h / group)',
    'h % numKvHeads',
  ],
  [
    'rms_norm without eps',
    'packages/ropewalk/src/reference/norm.ts',
    'norm = Math.sqrt(squares / d + eps)',
    'norm = Math.sqrt(squares / d)',
  ],
  ['argmax takes the last of a tie', 'packages/ropewalk/src/reference/argmax.ts', 'value > all[', 'value >= all['],
  [
    'swiglu gates the wrong side',
    'packages/ropewalk/src/reference/elementwise.ts',
    "(u + offset) * ((activation === 'sigmoid' ? 1 : g) / (1 + Math.exp(-alpha * g)))",
    "(g + offset) * ((activation === 'sigmoid' ? 1 : u) / (1 + Math.exp(-alpha * u)))",
  ],
  ['linear without bias', 'packages/ropewalk/src/reference/linear.ts', 'sum + bs[column]!', 'sum'],
  [
    'embedding takes the row before',
    'packages/ropewalk/src/reference/embedding.ts',
    'weight.slice(0, row, row + 1)',
    'weight.slice(0, Math.max(0, row - 1), Math.max(1, row))',
  ],
  ['add subtracts', 'packages/ropewalk/src/reference/elementwise.ts', 'value + right', 'value - right'],
  [
    'copies ignore the offset',
    'packages/ropewalk/src/core/tensor.ts',
    'walkPair(from.shape, from, to,',
    'walkPair(from.shape, { strides: from.strides, offset: 0 }, to,',
  ],
  [
    'f16 truncated instead of rounded',
    'packages/ropewalk/src/core/float16.ts',
    'if (rest > 0.5 || (rest === 0.5 && floor % 2 !== 0)) return floor + 1;',
    'if (rest > 2) return floor + 1;',
  ],
  // These change the kernels of the cpu backend, which are compiled again.
  [
    'cpu: sin with the other sign',
    `${ASSEMBLY}rope.ts`,
    'store<f32>(sin2 + to, -s);\n    store<f32>(sin2 + to + 4, s);',
    'store<f32>(sin2 + to, s);\n    store<f32>(sin2 + to + 4, -s);',
  ],
  [
    'cpu: cos and sin swapped',
    `${ASSEMBLY}rope.ts`,
    'const c = v128.load(cos + table), s = v128.load(sin + table);',
    'const s = v128.load(cos + table), c = v128.load(sin + table);',
  ],
  ['cpu: batch ignored', `${ASSEMBLY}rope.ts`, 'b * word(part, RopePart.xBatch)', '0 * word(part, RopePart.xBatch)'],
  [
    'cpu: positions of batch 0 for every batch',
    `${ASSEMBLY}rope.ts`,
    'word(args, Rope.perBatch) ? t : s',
    'word(args, Rope.perBatch) ? s : s',
  ],
  [
    'cpu: f16 truncated instead of rounded',
    `${ASSEMBLY}lanes.ts`,
    'i32x4.min_s(magnitude, constant(TOP))',
    'i32x4.min_s(f32x4.mul(magnitude, f32x4.splat(0.9996)), constant(TOP))',
  ],
  [
    'cpu: common f16 truncated instead of rounded',
    `${ASSEMBLY}lanes.ts`,
    'i32x4.sub(i32x4.add(i32x4.add(x, x), rebase), odd)',
    'i32x4.add(i32x4.add(x, x), v128.and(rebase, i32x4.splat(0xf0000000)))',
  ],
  [
    'cpu: attention sees one key more',
    `${ASSEMBLY}attention.ts`,
    'causal ? position : total - 1);',
    'causal ? min(position + 1, total - 1) : total - 1);',
  ],
  [
    'cpu: sinks left out of the sum',
    `${ASSEMBLY}attention.ts`,
    'store<f32>(place(state, 4 + lane), 1);',
    'store<f32>(place(state, 4 + lane), 0);',
  ],
  [
    'cpu: every expert reads the first matrix',
    `${CPU}operators/linear.ts`,
    'weightAt + piece.expert * weightBytes',
    'weightAt',
  ],
  ["cpu: a router's bias weighs", `${CPU}operators/route.ts`, '(best, (e) => scores[e]!)', '(best, (e) => ranks[e]!)'],
  ['cpu: linear without bias', `${ASSEMBLY}linear.ts`, 'let y = sum + biasOf(args, column);', 'let y = sum;'],
  ['cpu: the offset of q4_K and q5_K lost', `${ASSEMBLY}quantized.ts`, 'less += count * <f64>least;', ''],
  ['cpu: one scale for 32 in q6_K', `${ASSEMBLY}blocks.ts`, '(unit << 1) + part), 192)', '(unit << 1)), 192)'],
  [
    'cpu: q5_K without its fifth bits',
    `${ASSEMBLY}blocks.ts`,
    'return v128.or(low, i16x8.shl(fifth, 4));',
    'return low;',
  ],
  [
    'cpu: layer norm keeps the mean',
    `${ASSEMBLY}norm.ts`,
    'f32x4.sub(f32x4.sub(v128.load(place(x, i)), highs), lows)',
    'f32x4.sub(v128.load(place(x, i)), lows)',
  ],
  [
    'cpu: GELU of tanh for that of erf',
    `${ASSEMBLY}elementwise.ts`,
    'y = gelu4(a);',
    'y = timesSigmoid4(a, tanhGate4(a));',
  ],
  [
    'cpu: gates clamped on both sides',
    `${ASSEMBLY}elementwise.ts`,
    'return f32x4.pmin(gate, splat(args, Elementwise.first));',
    'const limit = splat(args, Elementwise.first); return f32x4.pmax(f32x4.pmin(gate, limit), f32x4.neg(limit));',
  ],
  ['cpu: the first row’s factor', `${ASSEMBLY}elementwise.ts`, 'offsetOf(walk, 2, row)', 'offsetOf(walk, 2, 0)'],
  // These change the kernels of the webgpu backend.
  [
    'webgpu: sin with the other sign',
    `${WEBGPU}shaders/rope.ts`,
    'let y0 = x0 * c - x1 * sn;',
    'let y0 = x0 * c + x1 * sn;',
  ],
  [
    'webgpu: table row of the first token',
    `${WEBGPU}shaders/rope.ts`,
    "const row = 'params.tableRows + params.perBatch * b * params.seq + s';",
    "const row = 'params.tableRows + 0u * b * s';",
  ],
  ['webgpu: window offset ignored', `${WEBGPU}shaders/rope.ts`, 'let d = params.offset + j;', 'let d = j;'],
  [
    'webgpu: f16 truncated instead of rounded',
    `${WEBGPU}shader.ts`,
    'magnitude + 0xfffu + ((magnitude >> 13u) & 1u) - 0x38000000u',
    'magnitude - 0x38000000u',
  ],
  ['webgpu: the second half of a word goes to the first', `${WEBGPU}shader.ts`, '], v << s);', '], v);'],
  ['webgpu: layer norm keeps the mean', `${WEBGPU}shaders/norm.ts`, 'root.y - mean.x - mean.y)', 'root.y - mean.y)'],
  [
    'webgpu: gates clamped on both sides',
    `${WEBGPU}shaders/elementwise.ts`,
    'let gate = select(a, limit, a > limit);',
    'let gate = clamp(a, -limit, limit);',
  ],
  [
    'webgpu: argmax takes the last of a tie',
    `${WEBGPU}shaders/argmax.ts`,
    'b.y < a.y',
    'b.y > a.y && b.y != 0xffffffffu',
  ],
  ['webgpu: sinks left out of the sum', `${WEBGPU}shaders/self-attention.ts`, "exp('sink - most')", "'0.0'"],
  ['webgpu: the higher of equal experts', `${WEBGPU}shaders/route.ts`, 'n < i)', 'n > i)'],
  ['webgpu: every expert reads the first matrix', `${WEBGPU}shaders/linear.ts`, 'expert * params.weightExpert', '0u'],
  [
    'webgpu: host tensors do not come back',
    `${WEBGPU}call.ts`,
    'for (const tensor of written) writeTensor(',
    'for (const tensor of written.slice(1)) writeTensor(',
  ],
];
