/** Emitted AscendC, compiled with stubs of CANN that compute on the host: it has the bits of the model. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { type HostArray, sizeBytes } from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { randomFrom } from 'ropewalk/internal';
import { ROOT } from '../../../test/support/command.js';
import { type KernelName, type RopeKernelOptions, runRopeKernel } from '../src/index.js';
import { emitAscendc, KERNELS } from '../src/internal.js';

const skip = spawnSync('c++', ['--version']).status === 0 ? false : 'no C++ compiler (c++) here';
const STUBS = join(ROOT, 'test/support/harness');
const folder = mkdtempSync(join(tmpdir(), 'emit-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const bytesOf = ({ buffer, byteOffset, byteLength }: HostArray) => new Uint8Array(buffer, byteOffset, byteLength);

/** Compiles a source with a main that calls `call` on files, and returns the bytes that it writes. */
function runOnHost(
  source: string,
  inputs: Readonly<Record<string, Uint8Array>>,
  outBytes: number,
  call: string,
): Buffer {
  // Each block runs to its end before the next.
  const launch = /(\w+)<<<(\d+), nullptr, stream>>>(\(.*\);)/;
  assert.match(source, launch);
  const blocks = 'for (AscendC::stubBlock = 0; AscendC::stubBlock < $2; AscendC::stubBlock++) $1$3';
  const reads = Object.entries(inputs).map(([name, bytes]) => {
    writeFileSync(join(folder, name), bytes);
    return `  std::vector<uint8_t> ${name}(${bytes.length} + 1024);\n  take("${name}", ${name}.data(), ${bytes.length});\n`;
  });
  const main = `
static void take(const char *name, uint8_t *to, size_t size) {
  FILE *file = fopen(name, "rb");
  if (!file || fread(to, 1, size, file) != size) exit(2);
  fclose(file);
}
int main() {
${reads.join('')}  std::vector<uint8_t> out(${outBytes});
  const aclError status = ${call};
  FILE *file = fopen("out", "wb");
  fwrite(out.data(), 1, ${outBytes}, file);
  fclose(file);
  return status;
}
`;
  writeFileSync(join(folder, 'k.cpp'), source.replace(launch, `(void)stream; ${blocks}`) + main);
  const flags = [
    '-std=c++17',
    '-Wall',
    '-Wextra',
    '-Werror',
    '-O0',
    '-I',
    join(STUBS, 'ascendc'),
    '-I',
    join(STUBS, 'aclnn'),
  ];
  for (const [command, ...args] of [['c++', ...flags, 'k.cpp', '-o', 'k'], ['./k']] as const) {
    const { status, stderr } = spawnSync(command, args, { cwd: folder, encoding: 'utf8' });
    assert.equal(status, 0, stderr);
  }
  return readFileSync(join(folder, 'out'));
}

for (const [name, dtype, pairing, batch] of [
  ['baseline', 'f32', 'interleaved', 1],
  ['correct', 'bf16', 'interleaved', 1],
  ['fast', 'f16', 'interleaved', 1],
  ['fast', 'f32', 'half', 1],
  ['infinicore-neox', 'f16', 'half', 2],
] as const satisfies readonly (readonly [KernelName, string, string, number])[])
  test(`${name}, ${dtype}, ${pairing}: the source computes the model's bits`, { skip }, () => {
    const shape = [batch, 5, 4, 64] as const;
    const [rows, half, count] = [23, 32, batch * 5 * 4 * 64];
    const random = randomFrom(name);
    const fill = (n: number) => {
      const data = newArray(dtype, n);
      for (let i = 0; i < n; i++) storeNumber(data, dtype, i, random.uniform(-1, 1));
      return data;
    };
    const x = fill(count);
    // The last row's over-read, a fault of the baseline, must not leave the arrays.
    const [sin, cos] = [fill(rows * half), fill(rows * half)];
    const positions = Int32Array.from({ length: 5 }, () => random.integer(rows - 2));
    const y = newArray(dtype, count);
    const strides = [5 * 4 * 64, 4 * 64, 64, 1] as const;
    const call: RopeKernelOptions = {
      ...{ kernel: name, dtype, pairing, positions, sin, cos },
      ...{ x: { data: x, shape, strides }, y: { data: y, shape, strides } },
    };
    runRopeKernel(call);
    const source = emitAscendc(KERNELS[name]!, { dtype, shape, spec: { headDim: 64, base: 10000, pairing } });
    const type = { f16: 'half', bf16: 'bfloat16_t', f32: 'float' }[dtype];
    const given = (file: string, of: string = type) => `(const ${of} *)${file}.data()`;
    const inputs = { x, sin, cos, positions };
    const files = Object.fromEntries(Object.entries(inputs).map(([file, data]) => [file, bytesOf(data)]));
    const args = [given('x'), `(${type} *)out.data()`, given('sin'), given('cos'), given('positions', 'int32_t'), rows];
    const onHost = `${name.replaceAll('-', '_')}_on_host(${args.join(', ')})`;
    const out = runOnHost(source, files, count * sizeBytes(dtype), onHost);
    assert.deepEqual(new Uint8Array(out), bytesOf(y).slice());
  });

test('softmax, whose last block has fewer rows: the source computes it', { skip }, () => {
  const shape = [42, 100] as const;
  const random = randomFrom('softmax');
  const x = Float32Array.from({ length: 4200 }, () => random.uniform(-4, 4));
  const source = emitAscendc(KERNELS.softmax!, { dtype: 'f32', shape });
  const out = runOnHost(
    source,
    { x: bytesOf(x) },
    16800,
    'softmax_on_host((const float *)x.data(), (float *)out.data())',
  );
  const got = new Float32Array(out.buffer, out.byteOffset, 4200);
  for (let row = 0; row < 42; row++) {
    const sum = x.subarray(row * 100, row * 100 + 100).reduce((all, value) => all + Math.exp(value), 0);
    for (let i = row * 100; i < row * 100 + 100; i++)
      assert.ok(Math.abs(got[i]! - Math.exp(x[i]!) / sum) < 1e-6, `${i}`);
  }
});
