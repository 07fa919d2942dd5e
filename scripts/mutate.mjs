/**
 * Proves that the suites can fail: breaks the library in one place at a time, in a copy, and requires a case of the
 * suites to fail.
 *
 * Usage: node scripts/mutate.mjs [NAME]. Prints a line a mutation; exits 1 when a mutation survives, 2 when one could
 * not run: its text is not in its file, or its backend does not open here. Those of the webgpu kernels need an adapter
 * (VK_ICD_FILENAMES may name a software driver).
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'esbuild';
import { compileKernels, MODULES, packKernels } from './build-wasm.mjs';

const KERNEL = 'packages/ropewalk/src/';
const CPU = `${KERNEL}backends/wasm/`;
const ASSEMBLY = `${CPU}assembly/`;
const WEBGPU = `${KERNEL}backends/webgpu/`;
/** Each replaces one text, which must occur exactly once in its file; white space counts as one space. */
const MUTATIONS = [
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
  ['rms_norm without eps', 'packages/ropewalk/src/reference/rms-norm.ts', 'squares / d + eps', 'squares / d'],
  ['argmax takes the last of a tie', 'packages/ropewalk/src/reference/argmax.ts', 'value > all[', 'value >= all['],
  [
    'swiglu gates the wrong side',
    'packages/ropewalk/src/reference/swiglu.ts',
    '(u + offset) * (g / (1 + Math.exp(-alpha * g)))',
    '(g + offset) * (u / (1 + Math.exp(-alpha * u)))',
  ],
  ['linear without bias', 'packages/ropewalk/src/reference/linear.ts', 'sum + bs[column]!', 'sum'],
  [
    'embedding takes the row before',
    'packages/ropewalk/src/reference/embedding.ts',
    'weight.slice(0, row, row + 1)',
    'weight.slice(0, Math.max(0, row - 1), Math.max(1, row))',
  ],
  ['add subtracts', 'packages/ropewalk/src/reference/add.ts', 'value + right', 'value - right'],
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
    `${CPU}operators/expert-linear.ts`,
    'weightAt + piece.expert * weightBytes',
    'weightAt',
  ],
  ["cpu: a router's bias weighs", `${CPU}operators/route.ts`, '(best, (e) => scores[e]!)', '(best, (e) => ranks[e]!)'],
  ['cpu: linear without bias', `${ASSEMBLY}linear.ts`, 'laneOf(sums, i) + biasOf(args, column));', 'laneOf(sums, i));'],
  ['cpu: the offset of q4_K and q5_K lost', `${ASSEMBLY}quantised.ts`, 'less += count * <f64>least;', ''],
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
  ['cpu: GELU of tanh for that of erf', `${ASSEMBLY}elementwise.ts`, 'y = gelu4(a);', 'y = geluTanh4(a);'],
  [
    'cpu: gates clamped on both sides',
    `${ASSEMBLY}elementwise.ts`,
    'const g = f32x4.pmin(gate, limit);',
    'const g = f32x4.pmax(f32x4.pmin(gate, limit), f32x4.neg(limit));',
  ],
  ['cpu: the first row’s factor', `${ASSEMBLY}elementwise.ts`, 'offsetOf(walk, 2, row)', 'offsetOf(walk, 2, 0)'],
  // The kernels of the webgpu backend.
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
    'for (const tensor of written) copyBack(',
    'for (const tensor of written.slice(1)) copyBack(',
  ],
];

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const copy = join(root, '.scratch', 'mutants');
const SOFTWARE_DRIVER = '/usr/lib/chromium/vk_swiftshader_icd.json';
if (process.env.VK_ICD_FILENAMES === undefined && existsSync(SOFTWARE_DRIVER))
  process.env.VK_ICD_FILENAMES = SOFTWARE_DRIVER;

rmSync(copy, { recursive: true, force: true });
mkdirSync(copy, { recursive: true });
cpSync(join(root, CPU), join(copy, 'wasm'), { recursive: true }); // the kernels read ../abi.ts
const tsc = join(root, 'node_modules/typescript/bin/tsc');
const built = spawnSync(process.execPath, [tsc, '-b', join(root, 'packages/cli')], { encoding: 'utf8' });
if (built.status !== 0) throw new Error(built.stdout);
/** Where a package lies in the copy; what it imports from elsewhere is found in the checkout, which the copy is in. */
const homeOf = (folder) => join(copy, 'node_modules', folder === 'ropewalk' ? folder : `@ropewalk/${folder}`);
for (const folder of readdirSync(join(root, 'packages')))
  for (const name of ['package.json', 'dist'])
    cpSync(join(root, 'packages', folder, name), join(homeOf(folder), name), { recursive: true });
symlinkSync(join(root, 'vectors'), join(homeOf('cli'), 'vectors'));

/** Puts one mutation into the copy. @returns what takes it out again */
async function apply(file, from, to) {
  const text = readFileSync(join(root, file), 'utf8');
  // Where the formatter breaks the lines does not matter.
  const found = text.match(new RegExp(from.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/\s+/g, '\\s+'), 'g')) ?? [];
  const times = found.length;
  if (times !== 1) throw new Error(`its text occurs ${times} times in ${file}, expected once: ${from}`);
  const mutated = text.replace(found[0], () => to);
  const kernel = file.startsWith(ASSEMBLY);
  const [, folder, module] = /^packages\/([^/]+)\/src\/(.*)\.ts$/.exec(file);
  const target = join(homeOf(folder), 'dist', `${kernel ? 'backends/wasm/kernels.generated' : module}.js`);
  const before = readFileSync(target);
  if (!kernel) writeFileSync(target, transformSync(mutated, { loader: 'ts', format: 'esm', target: 'es2022' }).code);
  else {
    const source = join(copy, 'wasm', file.slice(CPU.length));
    writeFileSync(source, mutated);
    try {
      // One module serves as both, without optimising: what is wrong stays wrong, and compiling takes an eighth of the
      // time.
      const [{ bytes }] = await compileKernels(join(copy, 'wasm/assembly/index.ts'), [MODULES[0]], ['-O0']);
      writeFileSync(
        target,
        packKernels(MODULES.map(({ name }) => ({ name, bytes }))).replaceAll(/^(export const \w+): [^=]*=/gm, '$1 ='),
      );
    } finally {
      writeFileSync(source, text);
    }
  }
  return () => writeFileSync(target, before);
}

/**
 * Runs the suites of the copy on one backend up to the first case that fails. Those whose GPU kernels compile slowly
 * come last.
 */
const RUN = `
  const { builtInCases } = await import('./node_modules/@ropewalk/cli/dist/check.js');
  const { openBackend } = await import('ropewalk');
  const { runCases } = await import('@ropewalk/oracle');
  let backend;
  try {
    backend = await openBackend(process.argv[1]);
  } catch (error) {
    process.stderr.write(error.message);
    process.exit(2);
  }
  const slow = ({ label }) => Number(/linear|self_attention/i.test(label));
  for await (const { label, verdict } of runCases(builtInCases().sort((a, b) => slow(a) - slow(b)), backend)) {
    if (verdict.status !== 'fail') continue;
    process.stdout.write(label);
    process.exit(1);
  }
`;

const counts = { red: 0, survived: 0, error: 0 };
for (const [name, file, from, to] of MUTATIONS) {
  if (process.argv[2] !== undefined && name !== process.argv[2]) continue;
  // What everybody shares is seen on the reference.
  const backend = file.startsWith(CPU) ? 'cpu' : file.startsWith(WEBGPU) ? 'webgpu' : 'reference';
  let outcome = 'error';
  let detail;
  try {
    const restore = await apply(file, from, to);
    const ran = spawnSync(process.execPath, ['--input-type=module', '-e', RUN, backend], {
      cwd: copy,
      encoding: 'utf8',
    });
    restore();
    outcome = { 0: 'survived', 1: ran.stdout === '' ? 'error' : 'red' }[ran.status] ?? 'error';
    detail =
      outcome === 'red'
        ? ran.stdout
        : outcome === 'survived'
          ? 'every case passes'
          : `${ran.signal ?? ''}${ran.stderr}`;
  } catch (error) {
    detail = error.message;
  }
  counts[outcome]++;
  console.log(
    `${{ red: 'red', survived: 'SURVIVED', error: 'COULD NOT RUN' }[outcome]}: ${name}: ${detail.trim().slice(0, 300)}`,
  );
}
rmSync(copy, { recursive: true, force: true });
console.log(`${counts.red} mutations fail a case, ${counts.survived} survived, ${counts.error} could not run`);
process.exitCode = counts.error > 0 ? 2 : counts.survived > 0 || counts.red === 0 ? 1 : 0;
