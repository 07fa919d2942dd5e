/** `ropewalk harness`: writes a program for `verify --program` to paste a kernel into, or a hook for `trace`. @module */
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { basename, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeWhole } from '@ropewalk/formats/internal/node';
import { fail } from 'ropewalk/backend';
import { readName } from 'ropewalk/internal';
import type { Switches, Texts } from './options.js';
import { EXIT, printJson, printResult } from './output.js';

export type HarnessOptions = Texts<'out'> & Switches<'force' | 'plain' | 'json'>;

/** A language, with the commands of its program. FILE stands for the program's name, BASE for it without extension. */
interface Language {
  /** The template, and the name of the file to write. */
  readonly file: string;
  /** The template for a kernel that takes q, positions and base. */
  readonly plain?: string;
  readonly what: string;
  readonly build?: string;
  readonly run: string;
  /** Further options of vectors for it, for programs of other operators. */
  readonly of?: string;
  /** Further options of verify for it. */
  readonly options?: string;
  /** The reason why it has not been run here. */
  readonly untried?: string;
}

/** The golden cases of LLAISYS' operators. */
const OTHERS = ' --dialect llaisys --op add,argmax,embedding,linear,rms_norm,rope,self_attention,swiglu,rearrange';

const LANGUAGES = {
  c: { file: 'rope.c', plain: 'plain.c', what: 'C99', build: 'cc -std=c99 -O2 FILE -o BASE -lm', run: './BASE' },
  cuda: {
    file: 'rope.cu',
    plain: 'plain.cu',
    what: 'C++ with CUDA',
    build: 'nvcc -O2 FILE -o BASE',
    run: './BASE 0',
    untried:
      'Not run on a GPU by us: nvcc 13.0 compiles it, and our tests run its kernel on the CPU, thread after thread.',
  },
  ggml: {
    file: 'rope_ggml.cpp',
    what: 'C++ with ggml, on any backend of a build',
    build: 'c++ -std=c++17 -O2 FILE -o BASE -I ggml/include -L build/bin -lggml -lggml-base -Wl,-rpath,build/bin',
    run: './BASE CPU',
    options: '--table f32-recurrence',
  },
  aclnn: {
    file: 'rope_aclnn.cpp',
    what: "C++ with CANN's aclnnRotaryPositionEmbedding and aclnnApplyRotaryPosEmbV2",
    build:
      'c++ -std=c++17 -O2 FILE -o BASE -I $ASCEND_HOME_PATH/include -L $ASCEND_HOME_PATH/lib64 -lascendcl -lnnopbase -lopapi',
    run: './BASE 0',
    options: '--arithmetic native',
    untried: 'Not compiled by us with CANN: our tests compile it with stub headers and run it with stub operators.',
  },
  ascendc: {
    file: 'rope_ascendc.cpp',
    what: "C++ with CANN's ACL, for an AscendC kernel behind rope_kernel_launch, in a library of its own",
    build:
      'c++ -std=c++17 -O2 FILE -o BASE -I $ASCEND_HOME_PATH/include -L $ASCEND_HOME_PATH/lib64 -lascendcl -L . -lrope_kernel -Wl,-rpath,.',
    run: './BASE 0',
    options: '--arithmetic native',
    untried:
      'Not compiled by us with CANN: our tests compile it with stub headers and run it with kernels on the host.',
  },
  infiniop: {
    file: 'rope_infiniop.cpp',
    what: "C++ with InfiniCore's infiniopRoPE, on any device",
    build:
      'c++ -std=c++17 -O2 FILE -o BASE -I $INFINI_ROOT/include -L $INFINI_ROOT/lib -linfiniop -linfinirt -Wl,-rpath,$INFINI_ROOT/lib',
    run: './BASE cpu',
    options: '--arithmetic native',
  },
  numpy: { file: 'rope_numpy.py', plain: 'plain_numpy.py', what: 'Python with numpy', run: 'python3 FILE' },
  torch: {
    file: 'rope_torch.py',
    plain: 'plain_torch.py',
    what: 'Python with PyTorch, on any device',
    run: 'python3 FILE cpu',
  },
  triton: {
    file: 'rope_triton.py',
    what: 'Python with Triton',
    run: 'python3 FILE cuda:0',
    untried: 'Not run on a GPU by us: our tests run its kernel on the CPU, with a stub of Triton.',
  },
  onnxruntime: {
    file: 'rope_onnxruntime.py',
    what: 'Python with ONNX Runtime, on any provider',
    run: 'python3 FILE CPUExecutionProvider',
  },
  ops: {
    file: 'ops.c',
    what: "C99 or C++, LLAISYS' eight operators beside RoPE",
    build: 'cc -std=c99 -O2 FILE -o BASE -lm',
    run: './BASE',
    of: OTHERS,
  },
  'ops-torch': {
    file: 'ops_torch.py',
    what: "Python with PyTorch, LLAISYS' eight operators beside RoPE",
    run: 'python3 FILE cpu',
    of: OTHERS,
  },
  llaisys: {
    file: 'llaisys_ops.py',
    what: "Python with LLAISYS' library through ctypes, its nine operators",
    run: 'python3 FILE libllaisys.so cpu',
    of: OTHERS,
    untried: 'Not run with LLAISYS by us: our tests run it with a stub of its library.',
  },
  js: { file: 'rope.mjs', what: 'JavaScript', run: 'node FILE' },
} as const satisfies Record<string, Language>;

/** Code that writes a dump of a runtime for `ropewalk trace`. */
const HOOKS = {
  'trace-transformers': { file: 'trace_transformers.py', what: "HuggingFace's transformers" },
  'trace-vllm': { file: 'trace_vllm.py', what: 'vLLM' },
  'trace-llama-cpp': {
    file: 'trace_llama_cpp.h',
    what: "llama.cpp, by the eval callback of a program with llama.cpp's library",
  },
  'trace-mlx': { file: 'trace_mlx.py', what: 'MLX' },
  'trace-onnxruntime': { file: 'trace_onnxruntime.py', what: 'an ONNX graph in ONNX Runtime' },
  'trace-torch': { file: 'trace_torch.py', what: 'a model in PyTorch' },
  'trace-numpy': { file: 'trace_numpy.py', what: 'a model in numpy' },
} as const satisfies Record<string, Pick<Language, 'file' | 'what'>>;

/** The folder of the templates, which lies beside src and beside dist. */
const TEMPLATES = fileURLToPath(new URL('../harness/', import.meta.url));

/** @param name - the language or the hook; all are listed without one */
export async function harness(name: string | undefined, { out, force, plain, json }: HarnessOptions): Promise<number> {
  const names = Object.keys(LANGUAGES) as (keyof typeof LANGUAGES)[];
  const hooks = Object.keys(HOOKS) as (keyof typeof HOOKS)[];
  if (name === undefined) {
    const alone = out !== undefined ? '--out' : plain && '--plain';
    if (alone) fail('FORMAT', alone, `it needs a language: ${names.join(', ')}.`);
    const languages = names.map((one) => ({ language: one, ...commandsOf(LANGUAGES[one]) }));
    const all = hooks.map((hook) => ({ hook, ...HOOKS[hook] }));
    const lines = all.map(
      ({ hook, what }) => `  ${hook.padEnd(18)} a hook that writes a dump for ropewalk trace: ${what}`,
    );
    printResult(json, {
      json: () => ({ languages, hooks: all }),
      lines: () => [...languages.flatMap(describe), ...lines],
    });
    return EXIT.ok;
  }
  const chosen = readName(name, [...names, ...hooks], 'harness: language');
  const hook = chosen in HOOKS ? HOOKS[chosen as keyof typeof HOOKS] : undefined;
  const language: Language = hook ? { ...hook, run: '' } : LANGUAGES[chosen as keyof typeof LANGUAGES];
  if (plain && !language.plain)
    fail(
      'UNSUPPORTED',
      '--plain',
      `there is such a program in ${names.filter((one) => 'plain' in LANGUAGES[one]).join(', ')}.`,
    );
  const text = hook
    ? hookText(hook)
    : textOf(language, (plain && language.plain) || language.file, basename(out ?? language.file));
  if (out === undefined) {
    if (json) printJson({ language: name, text });
    else process.stdout.write(text);
    return EXIT.ok;
  }
  // `import torch` in a file torch.py would import that file.
  const hidden = language.file.endsWith('.py') && new RegExp(`^import ${basename(out, '.py')}\\b`, 'm').test(text);
  if (hidden) fail('FORMAT', '--out', `${out} would hide the module that it imports. Call it ${language.file}.`);
  const sizeBytes = Buffer.byteLength(text);
  await writeWhole(out, { sizeBytes, inputs: [], force, kind: 'file' }, (temporary) => writeFile(temporary, text));
  const { build, vectors, verify } = commandsOf(language, basename(out));
  const next = hook ? ['ropewalk trace ours theirs'] : [...(build ? [build] : []), vectors, verify];
  printResult(json, { json: () => ({ language: name, out, next }), lines: () => [out, ...next.map((l) => `  ${l}`)] });
  return EXIT.ok;
}

/** Writes the program: a header with its use, then the template with the files that it includes. */
function textOf(language: Language, template: string, file: string): string {
  const { what, untried, of, build, vectors, verify } = { ...language, ...commandsOf(language, file) };
  const head = [
    ...(untried ? [untried] : []),
    `${of ? '' : 'RoPE in '}${what} for ropewalk verify (docs/verify.md): paste your kernel where it says PASTE. Build and run:`,
    ...[build, vectors, verify].flatMap((line) => (line === undefined ? [] : [`  ${line}`])),
  ];
  return withHead(head, template);
}

function hookText({ what, file }: Pick<Language, 'file' | 'what'>): string {
  return withHead([`Writes a dump of ${what} for ropewalk trace (docs/trace.md).`], file);
}

function withHead(head: readonly string[], template: string): string {
  const mark = template.endsWith('.py') ? '#' : '//';
  return `${head.map((line) => `${mark} ${line}\n`).join('')}\n${included(template)}`;
}

/** Reads a template, and replaces lines such as `#include "x"` and `# include x` by our own files. */
function included(file: string): string {
  return readFileSync(join(TEMPLATES, file), 'utf8').replace(
    /^#include "((?:rope|protocol|cuda)\.h)"\n|^# include (\w+\.py)\n/gm,
    (_, c, python) => included(c ?? python),
  );
}

/** Inserts the file's name into a language's commands. */
function commandsOf({ what, build, run, file, of, options }: Language, name: string = file) {
  const filled = (text: string): string =>
    text.replaceAll('FILE', name).replaceAll('BASE', basename(name, extname(name)));
  const verify = `ropewalk verify golden --program "${filled(run)}"${options ? ` ${options}` : ''}`;
  return {
    what,
    file: name,
    build: build && filled(build),
    run: filled(run),
    vectors: `ropewalk vectors golden${of ?? ''}`,
    verify,
  };
}

function describe({ language, what, build, run }: { language: string } & ReturnType<typeof commandsOf>): string {
  return `  ${language.padEnd(12)} ${what}: ${build ? `${build} && ` : ''}${run}`;
}
