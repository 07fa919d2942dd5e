/**
 * The commands and their flags: what a short flag means, and that docs/cli.md says so.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Option } from 'commander';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { splitWords } from '../src/command-words.js';
import { createProgram } from '../src/program.js';

/** Every option, by command; help and version are commander's. */
const options: readonly (readonly [command: string, option: Option])[] = createProgram().commands.flatMap((command) =>
  command.options.map((option) => [command.name(), option] as const),
);
const docs = readFileSync(join(ROOT, 'docs/cli.md'), 'utf8');

/** `-c` → its long flags, and the commands that have it. */
function shortFlags(): Map<string, { readonly longs: Set<string>; readonly commands: string[] }> {
  const found = new Map<string, { longs: Set<string>; commands: string[] }>();
  for (const [command, { short, long }] of options) {
    if (!short || !long) continue;
    const entry = found.get(short) ?? { longs: new Set(), commands: [] };
    entry.longs.add(long);
    entry.commands.push(command);
    found.set(short, entry);
  }
  return found;
}

test('a short flag means the same long flag in every command', () => {
  for (const [short, { longs }] of shortFlags()) assert.equal(longs.size, 1, `${short}: ${[...longs].join(' and ')}`);
});

test('a long flag that has a short one has it in every command', () => {
  const shortOf = new Map(options.flatMap(([, { short, long }]) => (short && long ? [[long, short] as const] : [])));
  for (const [command, { long, short }] of options) assert.equal(short, shortOf.get(long!), `${command} ${long}`);
});

test("llama.cpp's flags mean here what they mean there", () => {
  const flags = Object.fromEntries([...shortFlags()].map(([short, { longs }]) => [short, [...longs][0]]));
  for (const [short, long] of Object.entries({
    '-m': '--model',
    '-p': '--prompt',
    '-n': '--max-tokens',
    '-c': '--context',
    '-t': '--threads',
    '-s': '--seed',
    '-f': '--file',
    '--temp': '--temperature',
    '--repeat-penalty': '--repetition-penalty',
  }))
    assert.equal(flags[short], long, short);
});

test('docs/cli.md lists every short flag, and the commands that have it', () => {
  const rows = [...docs.matchAll(/^\| `(-\S+)` \| `(--\S+)` \| [^|]+ \| ([^|]+) \|$/gm)].map(
    ([, short, long, commands]) => [short, long, commands!.split(', ').sort()],
  );
  const found = [...shortFlags()].map(([short, { longs, commands }]) => [short, [...longs][0], commands.sort()]);
  const byFlag = (a: unknown[], b: unknown[]): number => String(a[0]).localeCompare(String(b[0]));
  assert.deepEqual(rows.sort(byFlag), found.sort(byFlag));
});

test('docs/cli.md names every command, and every command but help and completion has --json', () => {
  for (const { name, options: own } of createProgram().commands.map((one) => ({
    name: one.name(),
    options: one.options,
  }))) {
    assert.match(docs, new RegExp(`ropewalk ${name}\\b`), name);
    assert.ok(name === 'completion' || own.some(({ long }) => long === '--json'), name);
  }
});

test('every option of a dtype takes the names of numpy and PyTorch', () => {
  const found = options.filter(([, { flags }]) => flags.includes('<dtype>'));
  assert.deepEqual([...new Set(found.map(([, { long }]) => long))].sort(), [
    '--angles',
    '--cache-dtype',
    '--dtype',
    '--positions-dtype',
    '--table-dtype',
    '--weights',
  ]);
  for (const [name, { long }] of found)
    for (const [given, ours] of [
      ['torch.half', 'f16'],
      ['np.float32', 'f32'],
      ['bfloat16', 'bf16'],
      ['double', 'f64'],
      ['numpy.int64', 'i64'],
      ['torch.float8_e4m3fn', 'f8_e4m3'],
      ['BF16', 'bf16'],
      ['q8_0', 'q8_0'],
      ['f32-reduced', 'f32-reduced'],
      ['constructor', 'constructor'],
      ['float16, torch.float', 'f16,f32'],
    ]) {
      const command = createProgram().commands.find((one) => one.name() === name)!;
      command.parseOptions([long!, given!]);
      const option = command.options.find((one) => one.long === long)!;
      assert.deepEqual([command.opts()[option.attributeName()]].flat(), [ours], `${name} ${long} ${given}`);
    }
});

test('the help of each command has examples of its own options, and a page that is there', async () => {
  const program = createProgram();
  const titles = program.helpInformation().match(/^[A-Z][^:]*(?=:$)/gm);
  assert.deepEqual(titles, ['Options', 'Check a kernel', 'Convert a model', 'Run a model', 'Look at a device']);
  for (const command of program.commands) {
    const { stdout } = await ropewalkIn(ROOT, command.name(), '--help');
    const [, examples, page, anchor] = /\nExamples:\n((?: {2}.+\n)+)\nMore: (docs\/[\w-]+\.md)(?:#(\S+))?\n$/.exec(
      stdout,
    )!;
    for (const example of examples!.trim().split(/\n {2}/)) {
      const words = splitWords(example, 'example');
      assert.deepEqual(words.slice(0, 2), ['ropewalk', command.name()]);
      assert.deepEqual(command.parseOptions(words.slice(2)).unknown, [], example);
    }
    const headings = readFileSync(join(ROOT, page!), 'utf8').match(/^#+ .*$/gm)!;
    const anchors = headings.map((line) =>
      line
        .replace(/^#+ /, '')
        .toLowerCase()
        .replace(/[^\w -]/g, '')
        .replaceAll(' ', '-'),
    );
    assert.ok(anchor === undefined || anchors.includes(anchor), `${page}#${anchor}`);
  }
});

test('help is wrapped: no line of it is longer than 100 characters in a pipe', () => {
  for (const command of createProgram().commands)
    for (const line of command.helpInformation().split('\n'))
      assert.ok(line.length <= 100, `${command.name()}: ${line}`);
});
