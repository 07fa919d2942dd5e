/**
 * The lines in C on the pages of bugs, in one program. In double, as the float64 reference is, the right ones give its y,
 * and the wrong ones the bug's. As they stand, in float, the right ones are within the tolerance of a kernel with f32 angles.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { C_LINES, IN_FLOAT } from '../../site/build/c-lines.js';
import { type BugCase, type BugModel, type BugOutput, bugCases, bugFaults } from '../support/bug-lines.js';
import { ROOT } from '../support/build.js';

const noCompiler = spawnSync('cc', ['--version']).status === 0 ? false : 'no C compiler (cc) here';

/** The names of C's lines that are others than torch's. */
const NAMES: Readonly<Record<string, string>> = {
  base: 'rope_theta',
  context: 'n_ctx',
  original_context: 'n_ctx_orig',
};
/** The math of float, in double. */
const WIDE = ['pow', 'floor', 'ceil', 'fmax', 'fmin', 'sqrt', 'log', 'log10'].map((name) => `#define ${name}f ${name}`);
const ANGLES = ['cos', 'sin'].flatMap((name) => [
  `#define ${name}f(angle) ${name}(watched(angle))`,
  `#define ${name}pif(turns) ${name}(watched(M_PI * (turns)))`,
]);
/** -ffp-contract=off: compilers for ARM fuse products and sums otherwise. */
const FLAGS = ['-std=gnu99', '-Wall', '-Wextra', '-Werror', '-ffp-contract=off', '-fno-strict-aliasing'];
// A wrong line may leave out what the lines before it compute.
const UNUSED = ['-Wno-unused-variable', '-Wno-unused-but-set-variable', '-Wno-unused-function'];

/** Declares what a program uses of its model. */
function declared(program: string, { shape, positions, positionsShape, numbers, lists }: BugModel): string {
  const [n_batch, n_tokens, n_heads, head_dim] = shape as [number, number, number, number];
  const named = Object.entries(numbers).map(([name, value]) => [NAMES[name] ?? name, value] as const);
  const { factor = 1, original_context = 0 } = numbers;
  const n_ctx_max = factor * original_context;
  const integers: Record<string, number> = {
    n_batch,
    n_tokens,
    n_heads,
    head_dim,
    n_ctx_max,
    n_ctx_allocated: n_ctx_max,
  };
  Object.assign(integers, { n_axes: positionsShape[0]!, forward: 0, n_kv_heads: n_heads, n_q_heads: 4 * n_heads });
  integers.wk_rows = n_heads * head_dim;
  const floats: Record<string, number> = {};
  // Sizes and counts are integers in C, where a quotient of two of them is one too.
  for (const [name, value] of named) {
    const isSize = /^(n_|num_|hidden_|rotary_|rotated_|head_)/.test(name);
    (isSize ? integers : floats)[name] = value;
  }
  const turn = Array.from({ length: 1024 }, (_, k) => Math.sin((2 * Math.PI * k) / 1024));
  const weight = lists.weight?.map((value) => value - 1) ?? [];
  // Past the end a kernel may read anything: here the last factor.
  const padded = Object.entries(lists).map(
    ([name, list]) => [name, [...list, ...list.map(() => list.at(-1)!)]] as const,
  );
  const arrays: [type: string, name: string, list: readonly number[]][] = [
    ['int', 'pos', positions],
    ['int64_t', 'pos64', positions],
    ['float', 'sin_lut', turn],
    ['float', 'gemma_weight', weight],
    ...padded.map(([name, list]) => [name === 'sections' ? 'int' : 'float', name, list] as [string, string, number[]]),
  ];
  const used = (name: string): boolean => new RegExp(`\\b${name}\\b`).test(program);
  const scalars = (type: string, values: Record<string, number>): string[] =>
    Object.entries(values).map(([name, value]) => (used(name) ? `const ${type} ${name} = ${value};` : ''));
  const lines = arrays.map(([type, name, list]) =>
    used(name) ? `static const ${type} ${name}[] = {${list.join()}};` : '',
  );
  return [...scalars('int', integers), ...scalars('float', floats), ...lines].filter(Boolean).join('\n');
}

/** A kernel that runs on a model in double, or in float too. */
interface Run {
  readonly model: string;
  readonly program: string;
  readonly inFloat: boolean;
}

/** The program of all runs. It writes, for each, its largest angle and y in double, and y in float, all as doubles. */
function sourceOf(models: Readonly<Record<string, BugModel>>, runs: readonly Run[]) {
  const names = Object.keys(models);
  const textOf = ({ model, program }: Run) =>
    `(const float *x, float *y) {\n${declared(program, models[model]!)}\n${program}\n}`;
  const inFloat = runs.map((run, n) => (run.inFloat ? `static void float_${n}${textOf(run)}` : ''));
  // A literal of float makes a sum, a product or a quotient one of float.
  const inDouble = runs.map((run, n) => `static void double_${n}${textOf(run).replace(/(\d\.\d+)f\b/g, '$1')}`);
  const rows = runs.map((run, n) => `{${run.inFloat ? `float_${n}` : '0'}, double_${n}, ${names.indexOf(run.model)}}`);
  const sizes = names.map((name) => models[name]!.x.length);
  return [
    `#include "${join(ROOT, 'test/support/c-lines.h')}"`,
    ...inFloat,
    ...WIDE,
    ...ANGLES,
    '#define float double',
    ...inDouble,
    `#undef float
typedef struct { void (*in_float)(const float *, float *); void (*in_double)(const double *, double *); int model; } Run;
static const Run RUNS[] = {${rows.join(',\n')}};
static const int SIZES[] = {${sizes.join()}};
static float x32[${Math.max(...sizes)}], y32[${Math.max(...sizes)}];
static double x64[${Math.max(...sizes)}], y64[${Math.max(...sizes)}];
int main(int count, char **paths) {
    FILE *in = count == 3 ? fopen(paths[1], "rb") : 0, *out = in ? fopen(paths[2], "wb") : 0;
    if (!out) return 1;
    for (size_t n = 0; n < sizeof RUNS / sizeof *RUNS; n++) {
        const Run run = RUNS[n];
        const size_t size = SIZES[run.model];
        long at = 0;
        for (int m = 0; m < run.model; m++) at += SIZES[m] * (long)sizeof(double);
        if (fseek(in, at, SEEK_SET) || fread(x64, sizeof *x64, size, in) != size) return 2;
        for (size_t i = 0; i < size; i++) x32[i] = x64[i], y32[i] = y64[i] = NAN;
        reach = 0;
        run.in_double(x64, y64);
        if (run.in_float) run.in_float(x32, y32);
        fwrite(&reach, sizeof reach, 1, out);
        fwrite(y64, sizeof *y64, size, out);
        for (size_t i = 0; i < size; i++) y64[i] = y32[i];
        fwrite(y64, sizeof *y64, size, out);
    }
    return fclose(out) ? 3 : 0;
}
`,
  ].join('\n');
}

/** Whether y is within the tolerance of a kernel with angles in f32. */
function tolerated({ heads }: BugCase, y: ArrayLike<number>): boolean {
  const { headDim, right, tolerance } = heads;
  const allowed = tolerance!(Array.from({ length: y.length / headDim }, (_, row) => row));
  return right!.every((value, i) => Math.abs(y[i]! - value) <= allowed[i]!);
}

function run(command: string, args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
  assert.equal(status, 0, `${error ?? ''}${stderr.slice(0, 4000)}`);
}

test('the lines in C of each bug do what they say', { skip: noCompiler }, () => {
  const { models, cases } = bugCases(C_LINES);
  // Many bugs have the same right kernel.
  const runs = new Map<string, Run>();
  const keyOf = (model: string, program: string): string => `${model}\n${program}`;
  for (const { id, from: model, programs } of cases) {
    runs.set(keyOf(model, programs.right), { model, program: programs.right, inFloat: true });
    const key = keyOf(model, programs.wrong);
    const inFloat = IN_FLOAT.includes(id) || runs.get(key)?.inFloat === true;
    runs.set(key, { model, program: programs.wrong, inFloat });
  }
  const folder = mkdtempSync(join(tmpdir(), 'c-lines-'));
  try {
    const [source, program, input, output] = ['lines.c', 'lines', 'x', 'y'].map((name) => join(folder, name));
    writeFileSync(source!, sourceOf(models, [...runs.values()]));
    writeFileSync(input!, new Float64Array(Object.values(models).flatMap(({ x }) => x)));
    run('cc', [...FLAGS, ...UNUSED, source!, '-o', program!, '-lm']);
    run(program!, [input!, output!]);
    const { buffer, byteOffset, length } = readFileSync(output!);
    let at = byteOffset;
    const take = (count: number): Float64Array => {
      const values = new Float64Array(buffer, at, count);
      at += values.byteLength;
      return values;
    };
    const got = new Map<string, { inDouble: BugOutput; inFloat: BugOutput }>();
    for (const [key, { model }] of runs) {
      const size = models[model]!.x.length;
      const reach = take(1)[0]!;
      got.set(key, { inDouble: { y: take(size), reach }, inFloat: { y: take(size), reach: 0 } });
    }
    assert.equal(at - byteOffset, length);
    const faults = cases.flatMap((one) => {
      const { id, from, programs } = one;
      const right = got.get(keyOf(from, programs.right))!;
      const wrong = got.get(keyOf(from, programs.wrong))!;
      const found = bugFaults(one, {
        right: right.inDouble,
        wrong: IN_FLOAT.includes(id) ? wrong.inFloat : wrong.inDouble,
      });
      if (!tolerated(one, right.inFloat.y)) found.push(`${id}, right, in float: it is not within the tolerance`);
      return found;
    });
    assert.deepEqual(faults, []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
