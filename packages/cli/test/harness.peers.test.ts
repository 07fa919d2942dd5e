/**
 * `ropewalk harness`: each program as it is written, against all golden cases; those that cannot run here are checked
 * as far as they can be.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { openDump } from '@ropewalk/trace/internal/node';
import { ROOT, ropewalkIn, ropewalkProcess } from '../../../test/support/command.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';

const folder = mkdtempSync(join(tmpdir(), 'harness-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, ...args);
// As a process: Node runs the hooks of a file beside the tests of the files before it.
before(() => assert.equal(ropewalkProcess(folder, 'vectors', 'golden').status, 0));

/** Why a program cannot be run here, or false. */
const missing = (what: string, command: string, ...args: string[]): string | false =>
  spawnSync(command, args).status === 0 ? false : `no ${what} here`;
const cc = missing('C compiler (cc)', 'cc', '--version');
const cxx = missing('C++ compiler (c++)', 'c++', '--version');
/** The distribution's Python, whose packages CI installs. */
const PYTHON = '/usr/bin/python3';
/** Asks whether a module can be found: importing torch would take a second. */
const FIND = 'import sys; from importlib.util import find_spec; sys.exit(find_spec(sys.argv[1]) is None)';
const without = (module: string) => missing(`python3-${module}`, PYTHON, '-c', FIND, module);

function run(command: string, ...args: string[]): void {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd: folder, encoding: 'utf8' });
  assert.equal(status, 0, `${error ?? ''}${stdout}${stderr}`);
}

/** Verifies a program, and returns its lines. */
async function verified(program: string, ...args: string[]): Promise<string> {
  const { status, stdout, stderr } = await ropewalk('verify', 'golden', '--program', program, ...args);
  assert.equal(status, 0, stdout + stderr);
  return stdout;
}

/** A program does every rope case but those that it gives one of these reasons for; of the others it does none. */
function assertRopes(lines: string, ...reasons: string[]): void {
  assert.match(lines, /\n {2}(\d+)\/\1 cases passed, 0 failed, \d+ skipped\n$/);
  const skipped = [...lines.matchAll(/^ {2}\S+: +skipped +(.*)$/gm)].map(([, why]) => why!);
  const odd = new Set(skipped.filter((why) => !/^op \w+: this harness has rope only$/.test(why)));
  assert.deepEqual([...odd].sort(), reasons.sort());
}

const C_FLAGS = ['-std=c99', '-Wall', '-Wextra', '-Werror', '-pedantic', '-O2'];
const CXX_FLAGS = ['-std=c++17', '-Wall', '-Wextra', '-Werror', '-O1'];
const STUBS = join(ROOT, 'test/support/harness');
/** llama.cpp's build of ggml that `npm run peers` brings. */
const GGML = join(ROOT, 'bench/llama/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64');
const ggmlOf = (name: string): string =>
  join(GGML, readdirSync(GGML).find((file) => file.startsWith(name) && file.endsWith('.so'))!);

/** Compiles a CUDA program with stubs that run its kernel on the CPU, thread after thread. */
function onHost(name: string, text: string): void {
  const launch = /(\w+<T>)<<<(.*), (.*)>>>\(/;
  assert.match(text, launch);
  writeFileSync(join(folder, `${name}.cpp`), text.replace(launch, 'onHost($2, $3, $1, '));
  run('c++', ...CXX_FLAGS, '-I', join(STUBS, 'cuda'), `${name}.cpp`, '-o', name);
}

/** Computes a graph of tensors that are named as llama.cpp's, twice, and calls the hook on each as its scheduler does. */
const LLAMA_GRAPH = `
#include "trace_llama_cpp.h"
int main() {
    ggml_backend_load_all();
    ggml_backend_t backend = ggml_backend_init_by_name("CPU", nullptr);
    ggml_context * ctx = ggml_init({1 << 20, nullptr, true});
    ggml_tensor * table = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 3);
    ggml_tensor * tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 3);
    ggml_tensor * positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 3);
    ggml_tensor * embedding = ggml_set_name(ggml_get_rows(ctx, table, tokens), "inp_embd");
    ggml_tensor * heads = ggml_set_name(ggml_reshape_3d(ctx, embedding, 2, 2, 3), "heads");
    ggml_tensor * rotated = ggml_rope_ext(ctx, heads, positions, nullptr, 2, 0, 0, 10000, 1, 0, 1, 32, 1);
    ggml_tensor * keys = ggml_permute(ctx, ggml_set_name(rotated, "Qcur-0"), 0, 2, 1, 3);
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, ggml_set_name(keys, "Kcur-0"));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    const int32_t ids[] = {2, 0, 1}, at[] = {0, 1, 2};
    const float values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    ggml_backend_tensor_set(tokens, ids, 0, sizeof ids);
    ggml_backend_tensor_set(positions, at, 0, sizeof at);
    ggml_backend_tensor_set(table, values, 0, sizeof values);
    char folder[] = "theirs";
    for (int pass = 0; pass < 2; pass++) {
        ggml_backend_graph_compute(backend, graph);
        for (int n = 0; n < ggml_graph_n_nodes(graph); n++)
            if (ropewalk_trace(ggml_graph_node(graph, n), true, folder))
                ropewalk_trace(ggml_graph_node(graph, n), false, folder);
    }
    ggml_backend_buffer_free(buffer);
}
`;

describe('a fresh harness passes every rope case', () => {
  test('c', { skip: cc }, async () => {
    await ropewalk('harness', 'c', '-o', 'rope.c');
    run('cc', ...C_FLAGS, 'rope.c', '-o', 'rope', '-lm');
    assertRopes(await verified('./rope'));
  });

  test('js', async () => {
    await ropewalk('harness', 'js', '-o', 'rope.mjs');
    assertRopes(await verified(`"${process.execPath}" rope.mjs`));
  });

  for (const [language, module] of [
    ['numpy', 'numpy'],
    ['torch', 'torch'],
  ] as const)
    test(language, { skip: without(module) }, async () => {
      await ropewalk('harness', language, '-o', `rope_${language}.py`);
      assertRopes(await verified(`${PYTHON} rope_${language}.py`));
    });
});

describe("LLAISYS' other operators", () => {
  const EIGHT = 'add,argmax,embedding,linear,rms_norm,self_attention,swiglu,rearrange';
  before(async () => {
    const ran = await ropewalk('vectors', 'nine', '--dialect', 'llaisys', '--op', `${EIGHT},rope`);
    assert.equal(ran.status, 0, ran.stderr);
  });
  const verify = (program: string, ...args: string[]) => ropewalk('verify', 'nine', '--program', program, ...args);
  const skips = (lines: string) => new Set([...lines.matchAll(/: +skipped +(.*)$/gm)].map(([, why]) => why));

  test('ops: C and C++, every case of the eight', { skip: cc || cxx }, async () => {
    await ropewalk('harness', 'ops', '-o', 'ops.c');
    run('cc', ...C_FLAGS, 'ops.c', '-o', 'ops', '-lm');
    run('c++', ...CXX_FLAGS, '-x', 'c++', 'ops.c', '-o', 'opscpp');
    for (const program of ['./ops', './opscpp']) {
      const { status, stdout } = await verify(program);
      assert.equal(status, 0, stdout);
      assert.deepEqual([...skips(stdout)], ['rope: use ropewalk harness c']);
      assert.match(stdout, /\n {2}111\/111 cases passed, 0 failed, 5 skipped\n$/);
    }
  });

  test('ops-torch', { skip: without('torch') }, async () => {
    await ropewalk('harness', 'ops-torch', '-o', 'ops_torch.py');
    const { status, stdout } = await verify(`${PYTHON} ops_torch.py`);
    assert.equal(status, 0, stdout);
    assert.deepEqual([...skips(stdout)], ['rope: use ropewalk harness torch']);
  });

  test("llaisys: LLAISYS' own signatures, by a stub of its library that has three operators in f32", {
    skip: cc,
  }, async () => {
    run('cc', '-shared', '-fPIC', '-O1', join(STUBS, 'llaisys/stub.c'), '-o', 'libstub.so', '-lm');
    await ropewalk('harness', 'llaisys', '-o', 'llaisys_ops.py');
    const f32 = await ropewalk('vectors', 'f32', '--dialect', 'llaisys', '--op', `${EIGHT},rope`, '--dtype', 'f32');
    assert.equal(f32.status, 0, f32.stderr);
    const ran = await ropewalk('verify', 'f32', '--program', `${PYTHON} llaisys_ops.py ./libstub.so`);
    assert.equal(ran.status, 0, ran.stdout);
    assert.match(ran.stdout, /add-residual: +OK/);
    assert.match(ran.stdout, /rms-norm: +OK/);
    assert.match(ran.stdout, /llama-2-half: +OK/);
    for (const name of ['Argmax', 'Embedding', 'Linear', 'SelfAttention', 'SwiGLU'])
      assert.ok(skips(ran.stdout).has(`the library has no llaisys${name}`), ran.stdout);
    // The stub does nothing for f16, as a port that forgot a dtype.
    const wrong = await verify(`${PYTHON} llaisys_ops.py ./libstub.so`, '--case', 'add-f16');
    assert.equal(wrong.status, 1);
    assert.match(wrong.stdout, /add-f16: +FAIL +c: all 2002 elements are 0/);
  });
});

describe('with a device that is not here', () => {
  const noCache = 'no norm and no cache in this harness';
  const wrong = 'RotaryEmbedding writes pairs where it reads them, and rotates the leading dimensions';

  test('trace-llama-cpp: the tensors of a graph of the library, read back', {
    skip: cxx || (existsSync(GGML) ? false : 'no ggml here: npm run peers'),
  }, async () => {
    await ropewalk('harness', 'trace-llama-cpp', '-o', 'trace_llama_cpp.h');
    writeFileSync(join(folder, 'graph.cpp'), LLAMA_GRAPH);
    const libraries = [ggmlOf('libggml.'), ggmlOf('libggml-base.'), `-Wl,-rpath,${GGML}`];
    run('c++', ...CXX_FLAGS, '-I', join(STUBS, 'ggml'), 'graph.cpp', '-o', 'graph', ...libraries);
    mkdirSync(join(folder, 'theirs'));
    process.env.GGML_BACKEND_PATH = ggmlOf('libggml-cpu-x64.');
    run('./graph');
    delete process.env.GGML_BACKEND_PATH;
    const { tensors } = await openDump(join(folder, 'theirs'));
    const read = async (n: number) => [...((await tensors[n]!.read()).readNumbers() as Float64Array)];
    const names = ['tokens', 'inp_embd', 'positions', 'Qcur-0', 'Kcur-0'];
    assert.deepEqual(
      tensors.map(({ name, step, shape }) => [name, step, shape]),
      [0, 1].flatMap((step) =>
        names.map((name, n) => [
          name,
          step,
          [
            [1, 3],
            [3, 4],
            [1, 3],
            [3, 2, 2],
            [2, 3, 2],
          ][n]!,
        ]),
      ),
    );
    const [tokens, embedding, positions, q, k] = await Promise.all([0, 1, 2, 3, 4].map(read));
    assert.deepEqual(
      [tokens, positions],
      [
        [2, 0, 1],
        [0, 1, 2],
      ],
    );
    assert.deepEqual(embedding, [8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7]);
    const [cos, sin] = [Math.cos(1), Math.sin(1)];
    const expected = [8, 9, 10, 11, -sin, cos, 2 * cos - 3 * sin, 2 * sin + 3 * cos];
    for (const [n, x] of expected.entries()) assert.ok(Math.abs(q![n]! - x) < 1e-5);
    for (const [n, x] of k!.entries())
      assert.equal(x, q![4 * (Math.floor(n / 2) % 3) + 2 * Math.floor(n / 6) + (n % 2)]);
  });

  test('ggml: the library of npm, on its CPU', {
    skip: cxx || (existsSync(GGML) ? false : 'no ggml here: npm run peers'),
  }, async () => {
    await ropewalk('harness', 'ggml', '-o', 'rope_ggml.cpp');
    const libraries = [ggmlOf('libggml.'), ggmlOf('libggml-base.'), `-Wl,-rpath,${GGML}`];
    run('c++', ...CXX_FLAGS, '-I', join(STUBS, 'ggml'), 'rope_ggml.cpp', '-o', 'rope_ggml', ...libraries);
    process.env.GGML_BACKEND_PATH = ggmlOf('libggml-cpu-x64.'); // it would look for backends beside the program
    assertRopes(
      await verified('./rope_ggml CPU', '--table', 'f32-recurrence'),
      'ggml_rope_ext takes f32 and f16',
      'no cache in this harness',
      'no ggml_rope_set_offset in this harness',
      'ggml has no interleaved-to-half',
      'ggml gives the last pairs to another axis',
    );
    const none = await ropewalk('verify', 'golden', '--program', './rope_ggml CUDA9', '--case', 'gpt-j');
    assert.match(none.stdout, /skipped +ggml has no such device here/);
  });

  test('cuda: its kernel on the CPU, thread after thread', { skip: cxx }, async () => {
    const text = (await ropewalk('harness', 'cuda')).stdout;
    assert.match(text, /^\/\/ Not run on a GPU by us: /);
    onHost('cuda', text);
    assertRopes(await verified('./cuda'), 'no norm in this harness');
  });

  test('aclnn: both calls, by stubs of CANN', { skip: cxx }, async () => {
    const written = await ropewalk('harness', 'aclnn', '-o', 'rope_aclnn.cpp');
    assert.match(written.stdout, /--program "\.\/rope_aclnn 0" --arithmetic native$/m);
    assert.match(readFileSync(join(folder, 'rope_aclnn.cpp'), 'utf8'), /^\/\/ Not compiled by us with CANN: /);
    run('c++', ...CXX_FLAGS, '-I', join(STUBS, 'aclnn'), 'rope_aclnn.cpp', '-o', 'rope_aclnn');
    for (const argument of ['0', 'v2:0'])
      assertRopes(
        await verified(`./rope_aclnn ${argument}`, '--arithmetic', 'native'),
        noCache,
        'aclnn takes f32, f16 and bf16',
        'mode 3 (half-interleave) is not in this harness',
      );
  });

  test('ascendc: kernels on the host, and one that aicore wrote', { skip: cxx }, async () => {
    await ropewalk('harness', 'ascendc', '-o', 'rope_ascendc.cpp');
    assert.match(readFileSync(join(folder, 'rope_ascendc.cpp'), 'utf8'), /^\/\/ Not compiled by us with CANN: /);
    const includes = ['-I', join(STUBS, 'ascendc'), '-I', join(STUBS, 'aclnn')];
    const flags = [...CXX_FLAGS, ...includes, 'rope_ascendc.cpp'];
    const reasons = [
      noCache,
      "AscendC's vectors are f32, f16 or bf16",
      "the kernel has other pairs: the program's argument half:0 or 0 says which",
      'rope_kernel_launch refuses these arguments: status 10',
    ];
    const kernel = join(STUBS, 'ascendc', 'rope_kernel.cpp');
    run('c++', ...flags, kernel, '-o', 'rope_ascendc');
    assertRopes(await verified('./rope_ascendc 0', '--arithmetic', 'native'), ...reasons);
    // A source for [6, 2, 64] f32, which are each batch's sizes in this case, with its launch as a loop over blocks.
    await ropewalk(
      'aicore',
      '--kernel',
      'fast',
      '--shape',
      '6,2,64',
      '--dtype',
      'f32',
      '--emit',
      'ascendc',
      '-o',
      'k.cpp',
    );
    const source = readFileSync(join(folder, 'k.cpp'), 'utf8');
    const loop = '(void)stream; for (stubBlock = 0; stubBlock < $2; stubBlock++) $1(';
    writeFileSync(join(folder, 'k.cpp'), source.replace(/(\w+)<<<(\d+), nullptr, stream>>>\(/, loop));
    run('c++', ...flags, 'k.cpp', '-o', 'rope_ascendc');
    const one = await verified('./rope_ascendc 0', '--arithmetic', 'native', '--case', 'gpt-j');
    assert.match(one, /1\/1 cases passed/);
    run('c++', ...flags, '-DHALVES', kernel, '-o', 'rope_ascendc');
    assertRopes(await verified('./rope_ascendc half:0', '--arithmetic', 'native'), ...reasons);
  });

  test('infiniop: by a stub of InfiniCore', { skip: cxx }, async () => {
    await ropewalk('harness', 'infiniop', '-o', 'rope_infiniop.cpp');
    run('c++', ...CXX_FLAGS, '-I', join(STUBS, 'infiniop'), 'rope_infiniop.cpp', '-o', 'rope_infiniop');
    assertRopes(
      await verified('./rope_infiniop cpu', '--arithmetic', 'native'),
      noCache,
      'InfiniOp has no interleaved-to-half',
      'InfiniOp refuses these arguments: status 10',
    );
    for (const device of ['ascend:0', 'abacus']) {
      const none = await ropewalk('verify', 'golden', '--program', `./rope_infiniop ${device}`, '--case', 'gpt-j');
      assert.match(none.stdout, /skipped +InfiniCore has no such device here/);
    }
  });

  test('triton: its kernel on the CPU, by a stub of Triton', { skip: without('torch') }, async () => {
    const written = await ropewalk('harness', 'triton', '-o', 'rope_triton.py');
    assert.match(written.stdout, /--program "python3 rope_triton\.py cuda:0"$/m);
    assert.match(readFileSync(join(folder, 'rope_triton.py'), 'utf8'), /^# Not run on a GPU by us: /);
    process.env.PYTHONPATH = join(STUBS, 'triton');
    assertRopes(await verified(`${PYTHON} rope_triton.py cpu`), noCache);
  });

  test('onnxruntime: the ONNX Runtime of npm behind the calls of Python', {
    skip: without('numpy') || noOnnxruntime,
  }, async () => {
    await ropewalk('harness', 'onnxruntime', '-o', 'rope_onnxruntime.py');
    process.env.PYTHONPATH = join(STUBS, 'onnxruntime');
    process.env.NODE = process.execPath;
    assertRopes(await verified(`${PYTHON} rope_onnxruntime.py`), noCache, wrong, 'RotaryEmbedding takes no f64');
  });
});

/** The parts of each case that a kernel of q, positions and base leaves out. All templates for such a kernel say so. */
const BEYOND = {
  'llama-3.1-bf16': 'needs llama3 scaling',
  'llama-3.1-f32': 'needs llama3 scaling',
  'llama-3.1-ggml': 'needs freq_factors',
  'window-trailing': 'needs rotary_offset',
  'window-middle-half': 'needs rotary_offset',
  'deepseek-v3': 'needs yarn scaling, interleaved-to-half pairing',
  'yarn-mscale': 'needs yarn scaling',
  'qwen2.5-yarn': 'needs yarn scaling',
  'qwen2.5-yarn-bf16': 'needs yarn scaling',
  'gpt-oss': 'needs yarn scaling',
  'yarn-half-extrapolated': 'needs yarn scaling, freq_factors',
  'yarn-partial': 'needs yarn scaling',
  'yarn-long-original': 'needs yarn scaling',
  'attention-factor': 'needs yarn scaling, attention_factor',
  linear: 'needs linear scaling',
  'dynamic-ntk': 'needs dynamicNtk scaling',
  'dynamic-ntk-short': 'needs dynamicNtk scaling',
  'longrope-short': 'needs longrope scaling',
  'longrope-long': 'needs longrope scaling',
  'gemma-4-proportional': 'needs proportional scaling',
  'proportional-factor': 'needs proportional scaling',
  'gemma-3-global': 'needs linear scaling',
  'qwen2-vl-mrope': 'needs M-RoPE',
  'mrope-four-axes': 'needs M-RoPE',
  'qwen3-vl-mrope': 'needs M-RoPE',
  'qwen3-vl-ggml': 'needs M-RoPE',
  'vision-tower': 'needs M-RoPE',
  backward: 'needs backward',
  'backward-yarn': 'needs yarn scaling, backward',
  'backward-interleaved-to-half': 'needs interleaved-to-half pairing, backward',
  'heads-first': 'needs heads before tokens',
  'qwen3-norm-and-cache': 'needs a norm, a cache',
  'qwen3-next-norm-partial': 'needs a norm',
};

describe('a fresh harness --plain passes what it can, and skips the rest by name', () => {
  const interleaved = ['llama-2-interleaved', 'gpt-j', 'glm-4'].map((id) => [id, 'needs interleaved pairing']);
  const partial = ['gpt-neox', 'phi-2', 'stablelm-3b'].map((id) => [id, 'needs a rotary_dim below head_dim']);
  const assertPlain = async (program: string, ownSkips: Record<string, string>): Promise<void> => {
    const lines = await verified(program, '--op', 'rope');
    const skipped = [...lines.matchAll(/^ {2}(\S+): +skipped +(.*)$/gm)].map(([, id, why]) => [id, why]);
    const expected = { ...BEYOND, ...Object.fromEntries([...interleaved, ...partial]), ...ownSkips };
    assert.deepEqual(Object.fromEntries(skipped), expected);
    assert.match(lines, /\n {2}(\d+)\/\1 cases passed, 0 failed, \d+ skipped\n$/);
  };

  test('c', { skip: cc }, async () => {
    await ropewalk('harness', 'c', '--plain', '-o', 'plain.c');
    run('cc', ...C_FLAGS, 'plain.c', '-o', 'plain', '-lm');
    const others = ['llama-2-f64', 'llama-3-f16', 'decode-one-token'];
    await assertPlain('./plain', Object.fromEntries(others.map((id) => [id, 'needs a dtype other than f32'])));
  });

  test('cuda: its kernel on the CPU', { skip: cxx }, async () => {
    onHost('plain_cuda', (await ropewalk('harness', 'cuda', '--plain')).stdout);
    await assertPlain('./plain_cuda', { 'llama-2-f64': 'needs f64' });
  });

  test('numpy', { skip: without('numpy') }, async () => {
    await ropewalk('harness', 'numpy', '--plain', '-o', 'plain_numpy.py');
    await assertPlain(`${PYTHON} plain_numpy.py`, {});
  });

  test('torch', { skip: without('torch') }, async () => {
    await ropewalk('harness', 'torch', '--plain', '-o', 'plain_torch.py');
    await assertPlain(`${PYTHON} plain_torch.py`, { 'llama-2-f64': 'needs float64' });
  });
});

describe('verify --perf: the program times its kernel', () => {
  /** The line of times, whose figures are numbers above 0. */
  const FIGURES =
    /^ {6}perf: median (\S+) (?:µs|ms|s) of 30 calls, 24\.7 kB, (\S+) GB\/s; a copy of as many bytes (\S+) (?:µs|ms|s), (\S+) GB\/s: (\S+) × the copy$/m;
  const timed = async (program: string): Promise<void> => {
    const lines = await verified(program, '--case', 'llama-2-half', '--perf');
    const figures = FIGURES.exec(lines)?.slice(1).map(Number) ?? assert.fail(lines);
    assert.ok(
      figures.every((figure) => figure > 0 && figure < Infinity),
      lines,
    );
    const { stdout } = await ropewalk(
      'verify',
      'golden',
      '--program',
      program,
      '--case',
      'q-and-k',
      '--perf',
      '--json',
    );
    const { perf } = JSON.parse(stdout.split('\n')[0]!);
    assert.deepEqual([perf.repeats, perf.bytes], [30, 2 * 4 * 2 * 6 * 6 * 128 + 8 * 12]);
    assert.ok(Math.abs(perf.gigabytesPerSecond * perf.seconds * 1e9 - perf.bytes) < 1);
    assert.ok(Math.abs(perf.ratio * perf.copySeconds - perf.seconds) < 1e-9);
  };

  test('c, plain and not', { skip: cc }, async () => {
    for (const form of [['--plain'], []]) {
      await ropewalk('harness', 'c', ...form, '--force', '-o', 'timed.c');
      run('cc', ...C_FLAGS, 'timed.c', '-o', 'timed', '-lm');
      await timed('./timed');
    }
    const skipped = await ropewalk('verify', 'golden', '--program', './timed', '--case', 'add-f16', '--perf');
    assert.doesNotMatch(skipped.stdout, /perf|no time/, 'what is not compared is not timed');
  });

  test('cuda, by stubs: events, and a copy on the device', { skip: cxx }, async () => {
    onHost('timed_cuda', (await ropewalk('harness', 'cuda', '--plain')).stdout);
    await timed('./timed_cuda');
  });

  for (const language of ['numpy', 'torch'] as const)
    test(language, { skip: without(language) }, async () => {
      await ropewalk('harness', language, '--plain', '-o', `timed_${language}.py`);
      await timed(`${PYTHON} timed_${language}.py`);
    });

  test('a kernel without begin() and end(), and a program that knows no perf, pass without a time', {
    skip: cc,
  }, async () => {
    const text = (await ropewalk('harness', 'c', '--plain')).stdout;
    writeFileSync(
      join(folder, 'bare.c'),
      text.replace('\n  begin();\n', '\n').replace('\n  end();\n  return', '\n  return'),
    );
    run('cc', ...C_FLAGS, 'bare.c', '-o', 'bare', '-lm');
    const bare = await verified('./bare', '--case', 'llama-2-half', '--perf');
    assert.match(bare, /note: no time: the program says: there is no begin\(\) and end\(\) around the kernel\. docs/);
    await ropewalk('harness', 'js', '--force', '-o', 'untimed.mjs');
    const js = await verified(`"${process.execPath}" untimed.mjs`, '--case', 'llama-2-half', '--perf');
    assert.match(js, /note: no time: the program answers with outputs: it does not know perf\. docs/);
  });
});

describe('a kernel is pasted', () => {
  const page = readFileSync(join(ROOT, 'docs/verify.md'), 'utf8');
  const pasted = /```c\n([\s\S]*?)```/.exec(page)![1]!;
  /** The C harness with another kernel: here the template's own, changed. */
  const paste = async (kernel: string): Promise<void> => {
    const text = (await ropewalk('harness', 'c', '--plain')).stdout;
    assert.ok(text.includes(pasted), 'the page shows the template');
    writeFileSync(join(folder, 'mine.c'), text.replace(pasted, kernel));
    run('cc', ...C_FLAGS, 'mine.c', '-o', 'mine', '-lm');
  };
  /** The template's kernel for every case with a part of the head. */
  const partial = pasted
    .replace('if (r->rotaryDim != r->headDim) return "needs a rotary_dim below head_dim";', '')
    .replace('r->heads, r->headDim);', 'r->heads, r->headDim, r->rotaryDim);')
    .replace('long headDim)', 'long headDim, long rotaryDim)')
    .replace('half = headDim / 2', 'half = rotaryDim / 2')
    .replace('(float)headDim', '(float)rotaryDim');

  test('with angles in f32: it passes what it does, and skips the rest', { skip: cc }, async () => {
    await paste(partial);
    const lines = await verified('./mine', '--op', 'rope');
    assert.match(lines, /^ {2}llama-2-half: +OK .*angles f32$/m);
    assert.match(lines, /^ {2}phi-2: +OK .*angles f32$/m);
    const strict = await ropewalk('verify', 'golden', '--program', './mine', '--case', 'phi-2', '--table', 'float64');
    assert.equal(strict.status, 1);
    assert.match(strict.stdout, /allowed: angles in float64 \(they keep those of f32\)/);
    const nothing = await ropewalk('verify', 'golden', '--program', './mine', '--case', 'add-f16');
    assert.equal(nothing.status, 1, 'nothing compared is no success');
    assert.match(nothing.stdout, /nothing was compared: 1 skipped/);
  });

  test('a wrong one: the steps that `next:` gives lead to its name', { skip: cc }, async () => {
    await paste(partial.replace('if (r->pairing != HALF) return "needs interleaved pairing";', ''));
    const failed = await ropewalk('verify', 'golden', '--program', './mine', '--case', 'gpt-j');
    assert.equal(failed.status, 1);
    const next = (text: string): string[] => /^ *next: ropewalk (.*)$/m.exec(text)![1]!.split(' ');
    const kept = await ropewalk(...next(failed.stdout));
    const diagnosed = await ropewalk(...next(kept.stdout));
    assert.match(diagnosed.stdout, /^KNOWN BUG: pairs-half-for-interleaved$/m);
  });
});

describe('the command', () => {
  test('lists every language with its commands', async () => {
    const { status, stdout } = await ropewalk('harness');
    assert.equal(status, 0);
    const { languages } = JSON.parse((await ropewalk('harness', '--json')).stdout);
    for (const { language, run: command } of languages) {
      assert.ok(stdout.includes(`  ${language} `) && stdout.includes(command), language);
      const { stdout: text } = await ropewalk('harness', language);
      assert.ok(text.includes(command), `${language}: how it is run`);
      assert.doesNotMatch(text, /include "?(rope|protocol)\./, 'what it includes is in it');
    }
    const help = (await ropewalk('harness', '--help')).stdout;
    for (const { language } of languages) assert.match(help, new RegExp(`\\b${language}\\b`));
  });

  test('writes a file, and replaces one only with --force', async () => {
    const first = await ropewalk('harness', 'numpy', '-o', 'k.py');
    assert.equal(first.stdout, 'k.py\n  ropewalk vectors golden\n  ropewalk verify golden --program "python3 k.py"\n');
    assert.equal(
      readFileSync(join(folder, 'k.py'), 'utf8'),
      (await ropewalk('harness', 'numpy')).stdout.replaceAll('rope_numpy.py', 'k.py'),
    );
    const again = await ropewalk('harness', 'numpy', '-o', 'k.py');
    assert.deepEqual([again.status, /^ropewalk: harness: .*k\.py.*exist/.test(again.stderr)], [2, true], again.stderr);
    assert.equal((await ropewalk('harness', 'c', '-o', 'k.py', '--force')).status, 0);
  });

  test('refuses a language that it does not have, and a name that would hide a module', async () => {
    const { status, stderr } = await ropewalk('harness', 'fortran');
    assert.equal(status, 2);
    assert.match(stderr, /^ropewalk: harness: language: expected c, .* or trace-numpy, got "fortran"\n$/);
    const hidden = await ropewalk('harness', 'torch', '-o', 'torch.py');
    assert.deepEqual(
      [hidden.status, hidden.stderr],
      [2, 'ropewalk: harness: -o: torch.py would hide the module that it imports. Call it rope_torch.py.\n'],
    );
    assert.match((await ropewalk('harness', '-o', 'x.c')).stderr, /-o: it needs a language: c, /);
  });
});
