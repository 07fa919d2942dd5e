/**
 * Proves that the suites can fail: breaks the library in one place at a time, in a copy, and requires `ropewalk check` to go red.
 *
 * Usage: node scripts/mutate.mjs [NAME]. Prints a line a mutation; exits 1 when one survives or no longer applies. Those of the webgpu
 * kernels need an adapter (VK_ICD_FILENAMES may name a software driver).
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ASSEMBLY = 'src/backends/wasm/assembly/';
const WEBGPU = 'src/backends/webgpu/';
/** Each replaces one text, which must occur exactly once in its file. */
const MUTATIONS = [
  ['sin with the other sign', 'src/ops/rope/table.ts', 'const signed = magnitude * (', 'const signed = -magnitude * ('],
  [
    'interleaved and half swapped',
    'src/ops/rope/plan.ts',
    'interleaved: [interleaved, interleaved],\n    half: [half, half],',
    'interleaved: [half, half],\n    half: [interleaved, interleaved],',
  ],
  [
    'cos and sin swapped',
    'src/reference/rope.ts',
    'const cos = table.cos[tableRow + j]!;\n          const sin = table.sin[tableRow + j]!;',
    'const cos = table.sin[tableRow + j]!;\n          const sin = table.cos[tableRow + j]!;',
  ],
  [
    'frequencies over head_dim',
    'src/ops/rope/plan.ts',
    "(spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim)",
    "(spec.pairing === 'vision' ? rotaryDim / 2 : spec.headDim)",
  ],
  ['pair distance head_dim / 2', 'src/ops/rope/plan.ts', 'gap: window.rotaryDim / 2 }', 'gap: window.headDim / 2 }'],
  [
    'position off by one',
    'src/ops/rope/table.ts',
    'rowPositions[a] = positions[a * rows + r]!;',
    'rowPositions[a] = positions[a * rows + r]! + 1;',
  ],
  ['batch ignored', 'src/reference/rope.ts', 'x.offset + b * x.strides[0]!', 'x.offset + 0 * x.strides[0]!'],
  ['positions of batch 0 for every batch', 'src/reference/rope.ts', 's : b * seqLen + s]', 's : s]'],
  ['window offset ignored', 'src/reference/rope.ts', 'const i0 = rotaryOffset + j', 'const i0 = j'],
  ['tail not copied', 'src/reference/rope.ts', '= sourceBits[xAt + i * xDim]!', '= targetBits[outAt + i * outDim]!'],
  [
    'freq_factors multiply',
    'src/ops/rope/frequencies.ts',
    '/ (freqFactors ? freqFactors[j]! : 1)',
    '* (freqFactors ? freqFactors[j]! : 1)',
  ],
  ['magnitude dropped', 'src/ops/rope/frequencies.ts', 'options.attentionFactor ?? magnitude', 'options.attentionFactor ?? 1'],
  ['YaRN ramp turned round', 'src/ops/rope/frequencies.ts', '(1 - clamp01((j - low)', '(clamp01((j - low)'],
  ['YaRN betas swapped', 'src/ops/rope/frequencies.ts', 'edge(scaling.betaFast ?? 32)', 'edge(scaling.betaSlow ?? 1)'],
  [
    'axes h and w swapped',
    'src/ops/rope/axes.ts',
    'sector < t + h ? H : sector < t + h + w ? W : E',
    'sector < t + h ? W : sector < t + h + w ? H : E',
  ],
  [
    'imrope rest to t instead of e',
    'src/ops/rope/axes.ts',
    'sector % 3 === 0 && sector < 3 * t ? T : E',
    'sector % 3 === 0 && sector < 3 * t ? T : T',
  ],
  [
    'vision exponent not restarted',
    'src/ops/rope/axes.ts',
    "if (rule === 'vision') restartExponents(",
    "if (rule === ('never' as string)) restartExponents(",
  ],
  ['attention sees one key more', 'src/reference/self-attention.ts', 'causal ? position :', 'causal ? Math.min(position + 1, total - 1) :'],
  ['query heads dealt out in turn', 'src/reference/self-attention.ts', 'Math.floor(h / group)', 'h % numKvHeads'],
  ['rms_norm without eps', 'src/reference/rms-norm.ts', 'squares / d + eps', 'squares / d'],
  ['argmax takes the last of a tie', 'src/reference/argmax.ts', 'value > all[', 'value >= all['],
  [
    'swiglu gates the wrong side',
    'src/reference/swiglu.ts',
    'ups[i]! * (g / (1 + Math.exp(-g)))',
    'g * (ups[i]! / (1 + Math.exp(-ups[i]!)))',
  ],
  ['linear without bias', 'src/reference/linear.ts', 'sum + bs[column]!', 'sum'],
  [
    'embedding takes the row before',
    'src/reference/embedding.ts',
    'weight.slice(0, row, row + 1)',
    'weight.slice(0, Math.max(0, row - 1), Math.max(1, row))',
  ],
  ['add subtracts', 'src/reference/add.ts', 'value + right', 'value - right'],
  [
    'copies ignore the offset',
    'src/core/tensor.ts',
    'walkPair(from.shape, from, to,',
    'walkPair(from.shape, { strides: from.strides, offset: 0 }, to,',
  ],
  [
    'f16 truncated instead of rounded',
    'src/core/float16.ts',
    'if (rest > 0.5 || (rest === 0.5 && floor % 2 === 1)) return floor + 1;',
    'if (rest > 2) return floor + 1;',
  ],
  // The kernels of the cpu backend, compiled anew.
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
  ['cpu: batch ignored', `${ASSEMBLY}rope.ts`, 'b * word(part, 5) + s', '0 * word(part, 5) + s'],
  ['cpu: positions of batch 0 for every batch', `${ASSEMBLY}rope.ts`, 'word(args, 3) ? t : s', 'word(args, 3) ? s : s'],
  [
    'cpu: f16 truncated instead of rounded',
    `${ASSEMBLY}lanes.ts`,
    'i32x4.sub(f32x4.add(finite, addend), addend)',
    'i32x4.sub(f32x4.add(f32x4.mul(finite, f32x4.splat(0.9996)), addend), addend)',
  ],
  [
    'cpu: attention sees one key more',
    `${ASSEMBLY}attention.ts`,
    'causal ? position : total - 1);',
    'causal ? min(position + 1, total - 1) : total - 1);',
  ],
  ['cpu: linear without bias', `${ASSEMBLY}linear.ts`, 'x + (<usize>(r * k) << 2), k) + add);', 'x + (<usize>(r * k) << 2), k));'],
  // The kernels of the webgpu backend.
  ['webgpu: sin with the other sign', `${WEBGPU}shaders/rope.ts`, 'let y0 = x0 * c - x1 * sn;', 'let y0 = x0 * c + x1 * sn;'],
  [
    'webgpu: table row of the first token',
    `${WEBGPU}shaders/rope.ts`,
    "const rows = 'params.perBatch * b * params.seq + s';",
    "const rows = '0u * b * s';",
  ],
  ['webgpu: window offset ignored', `${WEBGPU}shaders/rope.ts`, 'let d = params.offset + j;', 'let d = j;'],
  [
    'webgpu: f16 truncated instead of rounded',
    `${WEBGPU}shader.ts`,
    'magnitude + 0xfffu + ((magnitude >> 13u) & 1u) - 0x38000000u',
    'magnitude - 0x38000000u',
  ],
  ['webgpu: the second half of a word goes to the first', `${WEBGPU}shader.ts`, '], v << s);', '], v);'],
  ['webgpu: argmax takes the last of a tie', `${WEBGPU}shaders/argmax.ts`, 'b.y < a.y', 'b.y > a.y && b.y != 0xffffffffu'],
  [
    'webgpu: host tensors do not come back',
    `${WEBGPU}call.ts`,
    'for (const tensor of written) copyBack(',
    'for (const tensor of written.slice(1)) copyBack(',
  ],
];

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const copy = join(root, '.scratch', 'mutants');
const only = process.argv[2];
let survived = 0;
for (const [name, file, from, to] of MUTATIONS) {
  if (only !== undefined && name !== only) continue;
  rmSync(copy, { recursive: true, force: true });
  mkdirSync(copy, { recursive: true });
  cpSync(join(root, 'src'), join(copy, 'src'), { recursive: true });
  for (const shared of ['package.json', 'tsconfig.json', 'scripts']) cpSync(join(root, shared), join(copy, shared), { recursive: true });
  symlinkSync(join(root, 'vectors'), join(copy, 'vectors'));
  let text = readFileSync(join(copy, file), 'utf8');
  const times = text.split(from).length - 1;
  if (times !== 1) throw new Error(`${name}: "${from}" occurs ${times} times in ${file}, expected once`);
  text = text.replace(from, () => to);
  writeFileSync(join(copy, file), text);
  if (file.startsWith(ASSEMBLY)) {
    const built = spawnSync(process.execPath, [join(copy, 'scripts/build-wasm.mjs')], { encoding: 'utf8' });
    if (built.status !== 0) throw new Error(`${name}: does not compile\n${built.stderr}`);
  }
  // What everybody shares is seen on the reference.
  const backend = file.startsWith('src/backends/wasm/') ? 'cpu' : file.startsWith(WEBGPU) ? 'webgpu' : 'reference';
  const ran = spawnSync(process.execPath, ['--import', 'tsx', join(copy, 'src/cli/main.ts'), 'check', '--json', '--backend', backend], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  const last = ran.stdout.trim().split('\n').at(-1) ?? '';
  const failed = last.startsWith('{"summary"') ? JSON.parse(last).summary.fail : 0;
  const red = ran.status === 1 && failed > 0;
  if (!red) survived++;
  console.log(`${red ? 'red' : 'SURVIVED'}: ${name}: ${red ? `${failed} cases fail` : `exit ${ran.status} ${ran.stderr.slice(0, 300)}`}`);
}
rmSync(copy, { recursive: true, force: true });
console.log(survived === 0 ? 'every mutation turns the suites red' : `${survived} mutations survived`);
process.exitCode = survived === 0 ? 0 : 1;
