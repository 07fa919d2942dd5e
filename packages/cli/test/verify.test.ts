import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { MUTANTS } from '@ropewalk/diagnose';
import { runMutant } from '@ropewalk/diagnose/internal';
import { writeNpy, writeNpz, writeSafetensors } from '@ropewalk/formats';
import { type GoldenCase, judgeCase } from '@ropewalk/oracle';
import {
  answer,
  bindGolden,
  elementBytes,
  GOLDEN_OPERATORS,
  GOLDEN_ROPE,
  goldenOperatorQuestion,
  goldenRopeQuestion,
} from '@ropewalk/oracle/internal';
import type { Answer } from '@ropewalk/oracle/internal/node';
import { programOf, readCaseOutputs } from '@ropewalk/oracle/node';
import fc from 'fast-check';
import type { RopeCall } from 'ropewalk';
import { type Tensor, tensorFrom } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { noBrowser, openChromium } from '../../../test/support/browser.js';
import { commandPath, ropewalkIn } from '../../../test/support/command.js';
import { damage, damaged, mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { writeFile, writeGolden, writeOutputs } from '../../../test/support/golden.js';
import { drawn } from '../../../test/support/size.js';
import { testOnce as test, testBrowser } from '../../../test/support/tier.js';
import { until, WAIT_MS } from '../../../test/support/until.js';
import { splitWords } from '../src/command-words.js';
import { verify } from '../src/verify.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'verify-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const main = [commandPath()];
const ropewalk = (...args: string[]) => ropewalkIn(root, ...args);

const rope = (id: string): GoldenCase =>
  answer(goldenRopeQuestion(GOLDEN_ROPE.find((definition) => definition.id === id)!));
const operator = (id: string): GoldenCase =>
  answer(goldenOperatorQuestion(GOLDEN_OPERATORS.find((definition) => definition.id === id)!));

/** An addition of f32, of any size. */
function adding(id: string, count: number): GoldenCase {
  const numbers = (seed: number): Tensor =>
    tensorFrom(Float32Array.from({ length: count }, (_, n) => Math.fround(Math.sin(n * seed))));
  return answer({
    id,
    op: 'add',
    about: 'A test.',
    separates: [],
    attributes: {},
    inputs: new Map([
      ['a', numbers(1)],
      ['b', numbers(2)],
    ]),
  });
}

describe('files that a kernel wrote', () => {
  const c = rope('llama-3-f16');
  const y = c.outputs.get('y')!;
  let count = 0;
  /** The files of a folder of outputs. */
  const read = (fill: (dir: string) => void, of = c) => {
    const dir = join(folder, `out-${count++}`);
    mkdirSync(dir, { recursive: true });
    fill(dir);
    return readCaseOutputs(dir, of);
  };
  const npy = (tensor: Tensor, options: { dtype?: 'u16'; shape?: number[] } = {}): Uint8Array =>
    writeNpy(tensor.read() as never, { dtype: options.dtype ?? tensor.dtype, shape: options.shape ?? tensor.shape });

  test('npy, bin, npz and safetensors, of every dtype', () => {
    for (const id of ['llama-2-f64', 'llama-3-f16', 'llama-3.1-bf16', 'qwen3-norm-and-cache']) {
      const each = rope(id);
      const ways: [string, (dir: string) => void][] = [
        ['npy', (dir) => writeOutputs(dir, id, each.outputs)],
        [
          'bin',
          (dir) =>
            each.outputs.forEach((tensor, name) => void writeFile(join(dir, id, `${name}.bin`), elementBytes(tensor))),
        ],
        ['npz', (dir) => void writeFile(join(dir, `${id}.npz`), writeNpz(each.outputs))],
        ['safetensors', (dir) => void writeFile(join(dir, `${id}.safetensors`), writeSafetensors(each.outputs))],
      ];
      for (const [way, fill] of ways) {
        const found = read(fill, each);
        assert.deepEqual([found.problems, found.notes], [[], []], `${id} ${way}`);
        assert.equal(judgeCase(each, found.tensors).status, 'ok', `${id} ${way}`);
      }
    }
    for (const op of ['argmax-f16-i32', 'argmax-ties', 'embedding-rows', 'rearrange-strided']) {
      const each = operator(op);
      assert.equal(judgeCase(each, read((dir) => writeOutputs(dir, op, each.outputs), each).tensors).status, 'ok', op);
    }
  });

  test('Fortran order, and f16 as its bits', () => {
    const small = adding('add', 6);
    const fortran = answer({
      ...small,
      inputs: new Map([...small.inputs].map(([name, tensor]) => [name, tensor.reshape([2, 3])])),
    });
    const [a, b, d, e, f, g] = fortran.outputs.get('c')!.read() as Float32Array;
    const file = writeNpy(Float32Array.of(a!, e!, b!, f!, d!, g!), { dtype: 'f32', shape: [2, 3] });
    const text = Buffer.from(file).toString('latin1').replace("'fortran_order': False", "'fortran_order': True ");
    const found = read((dir) => void writeFile(join(dir, 'add/c.npy'), Buffer.from(text, 'latin1')), fortran);
    assert.equal(judgeCase(fortran, found.tensors).status, 'ok', found.problems.join());
    const bits = read((dir) => void writeFile(join(dir, 'llama-3-f16/y.npy'), npy(y, { dtype: 'u16' })));
    assert.equal(judgeCase(c, bits.tensors).status, 'ok');
  });

  const wrong: [string, (dir: string) => void, RegExp][] = [
    [
      'nothing',
      () => {},
      /^expected the folder .*llama-3-f16, or llama-3-f16\.npz or .*\.safetensors beside it, got none\. Write there: y f16 \[2,6,2,128\], 6144 bytes as \.bin\.$/,
    ],
    [
      'an empty folder',
      (dir) => mkdirSync(join(dir, 'llama-3-f16')),
      /^y: expected .*y\.npy or y\.bin, got none\. Write there/,
    ],
    [
      'another name',
      (dir) => void writeFile(join(dir, 'llama-3-f16/out.npy'), npy(y)),
      /^y: expected .*, got none \(there is "out\.npy"\)\. Write there/,
    ],
    [
      'two of one',
      (dir) => {
        writeOutputs(dir, 'llama-3-f16', c.outputs);
        writeFile(join(dir, 'llama-3-f16/y.bin'), '');
      },
      /got both\. Remove the one that is not the last run's\.$/,
    ],
    [
      'a folder and an archive',
      (dir) => {
        writeOutputs(dir, 'llama-3-f16', c.outputs);
        writeFile(join(dir, 'llama-3-f16.npz'), writeNpz(c.outputs));
      },
      /^expected one of llama-3-f16\/, llama-3-f16\.npz, got all of them/,
    ],
    [
      'another dtype',
      (dir) =>
        void writeFile(
          join(dir, 'llama-3-f16/y.npy'),
          writeNpy(new Float32Array(3072), { dtype: 'f32', shape: y.shape }),
        ),
      /y\.npy: expected f16 \[2,6,2,128\], got f32 \[2,6,2,128\]\. Convert it to f16 before it is written\.$/,
    ],
    [
      'other dimensions',
      (dir) => void writeFile(join(dir, 'llama-3-f16/y.npy'), npy(y, { shape: [2, 2, 6, 128] })),
      /got f16 \[2,2,6,128\]\. There are as many elements: reshape, or see whether dimensions are exchanged\.$/,
    ],
    [
      'fewer elements',
      (dir) =>
        void writeFile(join(dir, 'llama-3-f16/y.npy'), writeNpy(new Uint16Array(128), { dtype: 'f16', shape: [128] })),
      /got f16 \[128\]\. Write the whole output, dense and row-major\.$/,
    ],
    [
      'a short .bin',
      (dir) => void writeFile(join(dir, 'llama-3-f16/y.bin'), new Uint8Array(6142)),
      /y\.bin: expected 6144 bytes, little-endian, for y f16 \[2,6,2,128\], got 6142 bytes/,
    ],
    ['an empty .bin', (dir) => void writeFile(join(dir, 'llama-3-f16/y.bin'), ''), /got 0 bytes/],
    ['an empty .npy', (dir) => void writeFile(join(dir, 'llama-3-f16/y.npy'), ''), /y\.npy: it is not a \.npy file/],
    [
      'a far too large .npy',
      (dir) => void writeFile(join(dir, 'llama-3-f16/y.npy'), new Uint8Array(200000)),
      /expected f16 \[2,6,2,128\], 6144 bytes and a header, got 200000 bytes/,
    ],
    [
      'a sidecar that says otherwise',
      (dir) => {
        writeFile(join(dir, 'llama-3-f16/y.bin'), elementBytes(y));
        writeFile(join(dir, 'llama-3-f16/y.json'), '{"dtype":"bf16"}');
      },
      /y\.json: dtype: expected "?f16"?, got "bf16"/,
    ],
    [
      'an archive without it',
      (dir) => void writeFile(join(dir, 'llama-3-f16.npz'), writeNpz(new Map([['z', y]]))),
      /^y: expected it in .*llama-3-f16\.npz, got \["z"\]/,
    ],
    [
      'an archive that is none',
      (dir) => void writeFile(join(dir, 'llama-3-f16.safetensors'), 'hello, this is no archive'),
      /llama-3-f16\.safetensors/,
    ],
    [
      'a folder by the name of a file',
      (dir) => mkdirSync(join(dir, 'llama-3-f16/y.npy'), { recursive: true }),
      /y\.npy: expected a regular file, got a folder/,
    ],
  ];
  if (process.platform !== 'win32') {
    const pipe = (name: string) => (dir: string) => {
      mkdirSync(join(dir, 'llama-3-f16'), { recursive: true });
      assert.equal(spawnSync('mkfifo', [join(dir, name)]).status, 0);
    };
    for (const name of ['llama-3-f16/y.npy', 'llama-3-f16/y.bin'])
      wrong.push([`a pipe, ${name}`, pipe(name), /expected a regular file, got a pipe/]);
    for (const name of ['llama-3-f16.npz', 'llama-3-f16.safetensors']) {
      const lone = (dir: string): void => {
        pipe(name)(dir);
        rmSync(join(dir, 'llama-3-f16'), { recursive: true });
      };
      wrong.push([`a pipe, ${name}`, lone, /expected a regular file, got a pipe/]);
    }
  }
  for (const [name, fill, message] of wrong) {
    test(`reported: ${name}`, () => {
      const { problems } = read(fill);
      assert.equal(problems.length, 1, problems.join('\n'));
      assert.match(problems[0]!, message);
    });
  }

  test('for a bf16 output in f32 the message says how to write it; unknown files are noted', () => {
    const bf16 = rope('glm-4');
    const { problems } = read(
      (dir) =>
        void writeFile(
          join(dir, 'glm-4/y.npy'),
          writeNpy(new Float32Array(3072), { dtype: 'f32', shape: [2, 6, 2, 128] }),
        ),
      bf16,
    );
    assert.match(problems[0]!, /Write bf16 as its bits: uint16 in \.npy and \.npz, BF16 in safetensors\.$/);
    const { notes } = read((dir) => {
      writeOutputs(dir, 'llama-3-f16', c.outputs);
      writeFile(join(dir, 'llama-3-f16/notes.txt'), '');
    });
    assert.match(notes.join(), /notes\.txt belongs to no output of this case$/);
    const archive = read(
      (dir) => void writeFile(join(dir, 'llama-3-f16.npz'), writeNpz(new Map([...c.outputs, ['z', y]]))),
    );
    assert.match(archive.notes.join(), /"?z"? belongs to no output/);
  });

  test('an id that leaves the folder is refused', () => {
    for (const id of ['..', '../x', '/etc'])
      assert.throws(() => readCaseOutputs(folder, { ...c, id }), {
        code: 'FORMAT',
        message: /a name inside the folder/,
      });
  });

  test('damaged files fail the case or are read, and nothing else happens', () => {
    const small = adding('add', 12);
    const files = {
      'add/c.npy': npy(small.outputs.get('c')!),
      'add.npz': writeNpz(small.outputs),
      'add.safetensors': writeSafetensors(small.outputs),
    };
    for (const [name, bytes] of Object.entries(files)) {
      const dir = join(folder, `fuzz-${count++}`);
      fc.assert(
        fc.property(damage, (steps) => {
          writeFile(join(dir, name), damaged(bytes, steps));
          mustRefuseOrReturn(() => {
            const { tensors, problems } = readCaseOutputs(dir, small);
            assert.ok(problems.length > 0 || tensors.get('c')!.size === 12);
          });
        }),
        drawn(100),
      );
    }
  });
});

describe('the words of a command', () => {
  test('blanks separate, quotes group, nothing is expanded', () => {
    const cases: [string, string[]][] = [
      ['./k', ['./k']],
      ['  node  a.js\t-x ', ['node', 'a.js', '-x']],
      [`node 'a b' "c d" e\\ f`, ['node', 'a b', 'c d', 'e f']],
      [`sh -c 'x | y > $Z'`, ['sh', '-c', 'x | y > $Z']],
      [`k "a\\"b" 'c"d' "" ''`, ['k', 'a"b', 'c"d', '', '']],
      ['k --x=*.bin ~/y #z', ['k', '--x=*.bin', '~/y', '#z']],
      [`k "\\$HOME" a\\|b`, ['k', '$HOME', 'a|b']],
    ];
    for (const [text, words] of cases) assert.deepEqual(splitWords(text, 'x'), words, text);
  });

  test('what only a shell would do is refused', () => {
    for (const text of ['a | b', 'a; b', 'a && b', 'a > b', 'a $X', 'a "$(x)"', 'a `b`', '(a)'])
      assert.throws(
        () => splitWords(text, '--program'),
        { code: 'FORMAT', message: /expected words alone, as no shell reads the command/ },
        text,
      );
    for (const text of ['', '   ', `''`]) assert.throws(() => splitWords(text, 'x'), { message: /expected a command/ });
    assert.throws(() => splitWords(`a 'b`, 'x'), { message: /expected a closing '/ });
    assert.throws(() => splitWords('a "b\\"', 'x'), { message: /expected a closing "/ });
    assert.throws(() => splitWords('a \\', 'x'), { message: /a character after the last/ });
  });

  test('any words survive single quotes', () => {
    fc.assert(
      fc.property(fc.array(fc.string(), { minLength: 1 }), (words) => {
        fc.pre(words[0] !== '' && words.every((word) => !word.includes('\0')));
        assert.deepEqual(splitWords(words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' '), 'x'), words);
      }),
      drawn(),
    );
  });
});

/** The program of `ropewalk harness js`. */
const HARNESS = readFileSync(join(root, 'packages/cli/harness/rope.mjs'), 'utf8');

/**
 * A program that adds. For the case `bad` it does what its argument says; with `by id`, what the case's name says.
 * Reading is the harness's.
 */
const ADDING = `${HARNESS.slice(HARNESS.indexOf('let held'), HARNESS.indexOf('for (let one'))}
const mode = process.argv[2];
const write = (bytes) => new Promise((resolve) => process.stdout.write(bytes, resolve));
for (let one = await nextCase(); one; one = await nextCase()) {
  const { id, outputs } = one.header;
  if (one.header.perf) {
    const wrong = { times: { seconds: [], copySeconds: [1] }, zero: { seconds: [0], copySeconds: [1] }, list: [1] };
    const given = wrong[mode] ?? { seconds: [3e-6, 1e-6, 2e-6], copySeconds: [1e-6, 1e-6] };
    if (mode === 'ends') process.exit(5);
    await write(JSON.stringify({ id, perf: mode === 'unasked' ? undefined : given }) + '\\n');
    continue;
  }
  const [a, b] = [new Float32Array(one.inputs.a), new Float32Array(one.inputs.b)];
  const c = new Uint8Array(a.map((x, n) => x + b[n]).buffer);
  const line = (record) => JSON.stringify({ id, ...record }) + '\\n';
  const wild = id === 'bad' ? mode : mode === 'once' ? 'once' : mode === 'by id' && !['good', 'after'].includes(id) ? id : 'right';
  if (wild === 'right' || wild === 'once') { await write(line({ outputs })); await write(c); if (wild === 'once') process.exit(0); }
  else if (wild === 'exit') { console.error('out of memory\\nat block 7'); process.exit(3); }
  else if (wild === 'afterwards') { await write(line({ outputs })); await write(c); process.exit(4); }
  else if (wild === 'signal') process.kill(process.pid, 'SIGSEGV');
  else if (wild === 'hang') setInterval(() => {}, 1000);
  else if (wild === 'halfway') { await write(line({ outputs })); await write(c.subarray(0, 5)); setInterval(() => {}, 1000); }
  else if (wild === 'short') { await write(line({ outputs })); await write(c.subarray(0, 5)); process.exit(0); }
  else if (wild === 'long') { await write(Buffer.concat([Buffer.from(line({ outputs })), c, Buffer.from('and more')])); }
  else if (wild === 'junk') await write('loading model...\\n');
  else if (wild === 'flood') for (;;) await write(new Uint8Array(1 << 20).fill(65));
  else if (wild === 'binary') await write(Uint8Array.of(255, 254, 10));
  else if (wild === 'silent') process.exit(0);
  else if (wild === 'huge') await write(line({ outputs: [{ ...outputs[0], byteLength: 2 ** 50 }] }));
  else if (wild === 'negative') await write(line({ outputs: [{ ...outputs[0], byteLength: -1 }] }));
  else if (wild === 'other') await write(JSON.stringify({ id: 'somebody', outputs }) + '\\n');
  else if (wild === 'shape') { await write(line({ outputs: [{ ...outputs[0], shape: [1, 7] }] })); await write(c); }
  else if (wild === 'dtype') { await write(line({ outputs: [{ ...outputs[0], dtype: 'f64' }] })); await write(c); }
  else if (wild === 'size') { await write(line({ outputs: [{ ...outputs[0], byteLength: 8 }] })); await write(c.subarray(0, 8)); }
  else if (wild === 'name') { await write(line({ outputs: [{ ...outputs[0], name: 'd' }] })); await write(c); }
  else if (wild === 'none') await write(line({ outputs: [] }));
  else if (wild === 'empty') await write(line({}));
  else if (wild === 'array') await write('[1]\\n');
  else if (wild === 'skip') await write(line({ skip: 'no addition today' }));
  else if (wild === 'error') await write(line({ error: 'device lost' }));
}
`;

describe('a program over its standard input and output', () => {
  const cases = [adding('good', 7), adding('bad', 7), adding('after', 7)];
  const script = join(folder, 'adding.mjs');
  before(() => writeFileSync(script, ADDING));
  const open = (mode: string, timeoutMs = WAIT_MS) =>
    programOf({ words: [process.execPath, script, mode], protocol: 'stdio', timeoutMs });
  /** The answers to good, bad and after. */
  const ask = async (mode: string, timeoutMs?: number): Promise<{ answers: Answer[]; odd: string | undefined }> => {
    const program = open(mode, timeoutMs);
    try {
      const answers: Answer[] = [];
      for (const c of cases) answers.push(await program.run(c));
      return { answers, odd: await program.close() };
    } finally {
      program.kill();
    }
  };
  const right = (c: GoldenCase, given: Answer): void => {
    assert.equal(given.kind, 'outputs', JSON.stringify(given));
    if (given.kind === 'outputs') assert.equal(judgeCase(c, given.tensors).status, 'ok');
  };

  const told: [string, RegExp][] = [
    [
      'exit',
      /^the program ended \(exit code 3\) before it answered\nThe last it said on stderr:\n {2}out of memory\n {2}at block 7$/,
    ],
    ['signal', /^the program ended \(signal SIGSEGV\) before it answered$/],
    [
      'silent',
      /^the program ended well, twice, without an answer$|^the program ended \(exit code 0\) before it answered$/,
    ],
    ['short', /^the program ended \(exit code 0\) when it had written 5 of the 28 bytes it announced$/],
    ['long', /^the program wrote 8 bytes or more after its answer\. docs\/verify\.md shows the protocol$/],
    [
      'junk',
      /^the program wrote "loading model\.\.\." where a line of JSON was expected\. Its own messages belong on stderr$/,
    ],
    [
      'flood',
      /^the program "A+\.\.\.: over 1048576 bytes without a line break$|^the program wrote "A+\.\.\., over 1048576 bytes without a line break$/,
    ],
    ['binary', /^the program wrote "..?" where a line of JSON was expected/],
    ['huge', /^the program announced 1125899906842624 bytes, which is over four times what the outputs have$/],
    ['negative', /^the program announced .*, expected name, dtype, shape and byteLength$/],
    ['other', /^the program answered for id "somebody", expected "other"$/],
    ['shape', /^c: expected shape \[7\], got \[1, 7\]$/],
    ['dtype', /^c: expected dtype f32, got "f64"$/],
    ['size', /^c: expected byteLength 28, got 8$/],
    ['name', /^c: expected it among the outputs, got none$/],
    ['none', /^c: expected it among the outputs, got none$/],
    ['empty', /^the program answered without outputs, skip or error/],
    ['array', /^the program wrote "\[1\]" where a line of JSON was expected/],
    ['error', /^the program says: device lost$/],
  ];
  test('times: asked for after the outputs, summed up, and what is no time is told', async () => {
    const timesOf = async (mode: string) => {
      const program = open(mode);
      try {
        right(cases[0]!, await program.run(cases[0]!));
        const given = await program.time(cases[0]!);
        right(cases[2]!, await program.run(cases[2]!));
        return given;
      } finally {
        await program.close();
        program.kill();
      }
    };
    assert.deepEqual(await timesOf('well'), {
      kind: 'times',
      perf: {
        repeats: 30,
        bytes: 3 * 28,
        seconds: 2e-6,
        gigabytesPerSecond: 84 / 2e-6 / 1e9,
        copySeconds: 1e-6,
        copyGigabytesPerSecond: 84 / 1e-6 / 1e9,
        ratio: 2,
      },
    });
    for (const [mode, message] of [
      ['times', /^its times are .*, expected seconds and copySeconds above 0$/],
      ['zero', /^its times are .*, expected seconds and copySeconds above 0$/],
      ['list', /^its times are \[1\], expected seconds and copySeconds above 0$/],
      ['unasked', /^the program answered without outputs, skip or error/],
      ['ends', /^the program ended \(exit code 5\) before it answered$/],
    ] as const)
      assert.match(((await timesOf(mode)) as { problem: string }).problem, message, mode);
  });

  test('every mistake is reported, and the cases before and after are not affected', async () => {
    const program = open('by id');
    try {
      right(cases[0]!, await program.run(cases[0]!));
      for (const [mode, message] of told) {
        const given = await program.run({ ...cases[1]!, id: mode });
        assert.equal(given.kind, 'problem', mode);
        assert.match((given as { problem: string }).problem, message, mode);
        right(cases[2]!, await program.run(cases[2]!));
      }
      assert.equal(await program.close(), undefined);
    } finally {
      program.kill();
    }
  });

  test('a program that hangs, before an answer and within one, is ended after its time', async () => {
    const hung = async (mode: string, written: string): Promise<void> => {
      const { answers } = await ask(mode, 5000); // the cases before and after are to be right within it
      const problem = `the program gave no answer within 5 s (--timeout); by then it had written ${written}`;
      assert.deepEqual(answers[1], { kind: 'problem', problem });
      right(cases[2]!, answers[2]!);
    };
    await Promise.all([hung('hang', 'nothing'), hung('halfway', '5 of the 28 bytes it announced')]);
  });

  test('skip gives its reason; a program for one case is started for each; a bad exit after an answer is noted', async () => {
    assert.deepEqual((await ask('skip')).answers[1], { kind: 'skip', reason: 'no addition today' });
    const once = await ask('once');
    for (const [n, c] of cases.entries()) right(c, once.answers[n]!);
    const { answers } = await ask('afterwards');
    right(cases[1]!, answers[1]!);
    // It ends while the next case is sent, or before: reported either way.
    assert.match(JSON.stringify(answers[2]), /ended with exit code 4; it was started again|ended \(exit code 4\)/);
  });

  test('tensors larger than a pipe holds go both ways', async () => {
    const large = adding('large', 400_000);
    const program = open('right');
    try {
      right(large, await program.run(large));
      right(cases[0]!, await program.run(cases[0]!));
      right(large, await program.run(large));
      assert.equal(await program.close(), undefined);
    } finally {
      program.kill();
    }
  });

  test('a program that answers without reading its input gets the next case whole', async () => {
    const large = { ...adding('large', 400_000), id: 'unread' };
    const deaf = writeFile(
      join(folder, 'deaf.mjs'),
      `process.stdin.once('readable', () => { process.stdin.read(100); process.stdout.write('{"id":"unread","skip":"too large"}\\n'); });`,
    );
    const program = programOf({ words: [process.execPath, deaf], protocol: 'stdio', timeoutMs: WAIT_MS });
    try {
      for (let n = 0; n < 2; n++) assert.deepEqual(await program.run(large), { kind: 'skip', reason: 'too large' });
    } finally {
      program.kill();
    }
  });

  test('after five cases that used up their time the others are not run', async () => {
    const words = [process.execPath, '-e', 'setInterval(() => {}, 1000)'];
    for (const protocol of ['stdio', 'files'] as const) {
      const program = programOf({ words, protocol, timeoutMs: 100 });
      for (let n = 0; n < 5; n++)
        assert.match(JSON.stringify(await program.run(cases[0]!)), /within 0\.1 s \(--timeout\)/);
      const problem = 'not run: the program was late (--timeout) in 5 cases before';
      assert.deepEqual(await program.run(cases[0]!), { kind: 'problem', problem });
      await program.close();
    }
  });

  test('no elements at all', async () => {
    const none = adding('none', 0);
    const program = open('right');
    right(none, await program.run(none));
    await program.close();
  });

  test('a program that cannot be started is a usage error', async () => {
    for (const [word, next] of [
      [join(folder, 'nowhere'), /there is no such program\. Give its path/],
      [script, /got no permission\. Make it executable, or name what runs it/],
    ] as const) {
      const program = programOf({ words: [word], protocol: 'stdio', timeoutMs: WAIT_MS });
      await assert.rejects(program.run(cases[0]!), { code: 'DEVICE', message: next });
    }
  });
});

describe('what a program leaves running', { skip: process.platform === 'win32' ? 'no sh' : false }, () => {
  const c = adding('add', 7);
  const pids = join(folder, 'left-running');
  /** `$!` of each is written down; they hold the program's pipes. */
  const sleeper = (before = ''): string => `${before} sleep 300 & echo $! >> ${pids}`;
  const alive = (): string[] =>
    readFileSync(pids, 'utf8')
      .trim()
      .split('\n')
      .filter((pid) => {
        try {
          // A zombie has ended: only its exit code has not been read.
          return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
        } catch {
          return false;
        }
      });
  const cases: [name: string, script: string, problem: RegExp][] = [
    [
      'a child of its own group, after it ended',
      `${sleeper()}; exit 0`,
      /ended \(exit code 0\) before it answered|got none/,
    ],
    ['a child in another session', `${sleeper('setsid')}; exit 0`, /ended \(exit code 0\) before it answered|got none/],
    [
      'children of both kinds, and itself',
      `(${sleeper()}); (${sleeper('setsid')}); echo $$ >> ${pids}; sleep 300`,
      /within 1 s \(--timeout\)/,
    ],
    [
      'itself, deaf to SIGTERM',
      `trap '' TERM HUP INT; echo $$ >> ${pids}; while :; do sleep 1; done`,
      /within 1 s \(--timeout\)/,
    ],
    [
      'a writer that never stops',
      `echo $$ >> ${pids}; while :; do echo x; echo y >&2; done`,
      /where a line of JSON was expected|within 1 s/,
    ],
  ];
  for (const [name, script, problem] of cases) {
    for (const protocol of ['stdio', 'files'] as const) {
      test(`${protocol}: ${name}`, { skip: process.platform === 'linux' ? false : 'looks into /proc' }, async () => {
        writeFileSync(pids, '');
        // Only what runs on is to meet the limit.
        const timeoutMs = problem.source.includes('within 1 s') ? 1000 : WAIT_MS;
        const program = programOf({ words: ['sh', '-c', script], protocol, timeoutMs });
        const answer = await program.run(c);
        assert.equal(await program.close(), undefined);
        assert.match((answer as { problem: string }).problem, problem);
        // A process that was sent SIGKILL takes a moment.
        await until(() => alive().length === 0, 'none of them runs');
      });
    }
  }

  test('stdio: itself, though it closed its output', async () => {
    const program = programOf({ words: ['sh', '-c', 'exec >&-; sleep 300'], protocol: 'stdio', timeoutMs: WAIT_MS });
    const answer = (await program.run(c)) as { problem: string };
    assert.equal(answer.problem, 'the program closed its output before it answered');
  });

  test('the command ends even if another process holds the pipes', {
    skip: process.platform === 'linux' ? false : 'looks into /proc',
  }, () => {
    const vectors = join(folder, 'held-vectors');
    mkdirSync(vectors, { recursive: true });
    const written = spawnSync(
      process.execPath,
      [...main, 'vectors', vectors, '--op', 'add', '--dtype', 'f16', '--force'],
      {
        cwd: root,
        encoding: 'utf8',
      },
    );
    assert.equal(written.status, 0, written.stderr);
    // Not found by its environment: the pipes must be given up.
    writeFileSync(pids, '');
    const hidden = writeFile(join(folder, 'hidden.sh'), sleeper('env -i setsid'));
    const ran = spawnSync(
      process.execPath,
      [...main, 'verify', vectors, '--program', `sh ${hidden}`, '--case', 'add-f16'],
      { cwd: root, encoding: 'utf8' },
    );
    const held = alive();
    for (const pid of held) process.kill(Number(pid));
    assert.equal(ran.status, 1, ran.stdout + ran.stderr);
    assert.equal(held.length, 1, 'the other process still runs');
  });
});

describe('a program that reads and writes files', () => {
  const script = join(folder, 'files.mjs');
  const FILES = `
import { readFileSync, writeFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
const [mode, inside, outside] = process.argv.slice(2);
const { id, inputs } = JSON.parse(readFileSync(join(inside, 'case.json')));
const read = (name) => new Float32Array(Uint8Array.from(readFileSync(join(inside, name + '.bin'))).buffer);
const c = read('a').map((x, n) => x + read('b')[n]);
console.log('whatever it likes');
const sidecar = JSON.parse(readFileSync(join(inside, 'a.json')));
if (sidecar.byteLength !== 28 || readdirSync(outside).length > 0) process.exit(9);
if (mode === 'right') writeFileSync(join(outside, 'c.bin'), new Uint8Array(c.buffer));
if (mode === 'npy') writeFileSync(join(outside, 'd.npy'), '');
if (mode === 'skip') writeFileSync(join(outside, 'answer.json'), '{"skip":"not today"}');
if (mode === 'broken') writeFileSync(join(outside, 'answer.json'), '{');
if (mode === 'exit') { console.error('no device'); process.exit(5); }
if (mode === 'hang') setInterval(() => {}, 1000);
`;
  // Other processes have folders in the system's own one.
  const temporary = join(folder, 'temporary');
  const { TMPDIR } = process.env;
  before(() => {
    writeFileSync(script, FILES);
    mkdirSync(temporary);
    process.env.TMPDIR = temporary;
  });
  after(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
  });
  const c = adding('add', 7);
  const ask = async (mode: string, timeoutMs = WAIT_MS): Promise<Answer> => {
    const given = await programOf({ words: [process.execPath, script, mode], protocol: 'files', timeoutMs }).run(c);
    assert.deepEqual(readdirSync(temporary), [], 'its folders are gone');
    return given;
  };

  test('right outputs, skip, crash, time-out, missing and broken files', async () => {
    const given = await ask('right');
    assert.equal(given.kind === 'outputs' && judgeCase(c, given.tensors).status, 'ok', JSON.stringify(given));
    assert.deepEqual(await ask('skip'), { kind: 'skip', reason: 'not today' });
    const problem = async (mode: string, ms?: number): Promise<string> =>
      ((await ask(mode, ms)) as { problem: string }).problem;
    assert.equal(await problem('exit'), 'the program ended with exit code 5\nThe last it said on stderr:\n  no device');
    assert.match(await problem('npy'), /c: expected .*c\.npy or c\.bin, got none \(there is "d\.npy"\)/);
    assert.match(await problem('broken'), /answer\.json: expected JSON/);
    assert.equal(await problem('hang', 1000), 'the program was not done within 1 s (--timeout)');
  });
});

describe('the command', () => {
  const vectors = join(folder, 'vectors');
  const outputs = join(folder, 'outputs');
  const ids = ['llama-2-half', 'gpt-j', 'phi-2'];
  before(async () => {
    const cases = [...ids.map(rope), operator('add-f16'), operator('argmax-ties')];
    await writeGolden(vectors, cases, ['npy', 'safetensors']);
    for (const c of cases) writeOutputs(outputs, c.id, c.outputs);
  });
  /** Outputs of which one is wrong: phi-2 turns pair 3 of position 40 the other way. */
  const wrongOutputs = (): string => {
    const dir = join(folder, 'wrong');
    if (existsSync(dir)) return dir;
    for (const id of ids) writeOutputs(dir, id, rope(id).outputs);
    writeOutputs(dir, 'argmax-ties', operator('argmax-ties').outputs);
    const y = rope('phi-2').outputs.get('y')!;
    const data = y.read() as Float32Array;
    data[2 * 2 * 80 + 3]! *= -1;
    writeOutputs(dir, 'phi-2', new Map([['y', tensorFrom(data, { shape: y.shape })]]));
    writeFile(join(dir, 'phi2/y.npy'), '');
    return dir;
  };

  test('all correct: exit 0, a line for each case, and the report in a file', async () => {
    const file = join(folder, 'all.xml');
    const { status, stdout, stderr } = await ropewalk(
      'verify',
      vectors,
      '--outputs',
      outputs,
      '--report',
      'junit',
      '--out',
      file,
    );
    assert.equal(status, 0, stderr);
    assert.match(
      stdout,
      /^ {2}llama-2-half: +OK {4}max error 1\.\de-7, 0 ulp, 0\.\d+ of the bound, NMSE \d\.\de-1\d, angles float64$/m,
    );
    assert.match(stdout, /^ {2}argmax-ties: +OK {4}exact$/m);
    assert.match(stdout, /\n {2}5\/5 cases passed, 0 failed\n$/);
    assert.match(readFileSync(file, 'utf8'), /^<\?xml [\s\S]* tests="5" failures="0" [\s\S]*<\/testsuites>\n$/);
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.endsWith('.tmp')),
      [],
    );
  });

  test('one wrong, one missing: exit 1, which elements, and what to do next', async () => {
    const keep = join(folder, 'kept for diagnose');
    const { status, stdout } = await ropewalk(
      'verify',
      vectors,
      '--outputs',
      wrongOutputs(),
      '--report',
      'junit',
      '--out',
      join(folder, 'wrong.xml'),
      '--keep',
      keep,
    );
    assert.equal(status, 1);
    assert.match(stdout, /^ {2}phi-2: +FAIL {2}y: 1 of 1920 wrong$/m);
    assert.match(
      stdout,
      /^ {6}y: worst: \[0,2,0,3\], pair 3 \(first\), position 40, head 0, batch 0, \S+ × its bound$/m,
    );
    const alone = await ropewalk('verify', vectors, '--outputs', wrongOutputs(), '--case', 'phi-2');
    assert.match(alone.stdout, /\[0,2,0,3\] +0 +40 +0 +3 +3 +first /);
    assert.match(stdout, /^ {2}add-f16: +FAIL {2}expected the folder .*wrong\/add-f16, or add-f16\.npz/m);
    assert.match(stdout, /note: .*phi2 belongs to no case$/m);
    assert.match(stdout, /\n {2}3\/5 cases passed, 2 failed \(1 with nothing to compare\)\n/);
    // The command that it prints runs unchanged, with the nearest id and with quoted blanks.
    const next = /to see what phi-2 does instead: ropewalk (diagnose .*)/.exec(stdout)![1]!;
    assert.match(
      next,
      /--x \S*phi-2\/x\.npy --y '.*kept for diagnose\/phi-2\/y\.npy' --positions \S*positions\.npy --expect '.*expect\.json'$/,
    );
    const diagnosed = await ropewalk(...splitWords(next, 'next'));
    assert.equal(diagnosed.status, 1, diagnosed.stderr);
    assert.match(diagnosed.stdout, /Head 0 of token 2 of batch 0, dimension 3: /);
  });

  test('a known bug is named, case by case and in the summary; --max-failures; annotations of GitHub', async () => {
    const [dir, bug] = [join(folder, 'bug'), 'second-member-from-first'];
    for (const id of ids.slice(0, 3)) {
      const c = rope(id);
      const { plan, outputs } = bindGolden(c, referenceRunner());
      runMutant(MUTANTS.find((mutant) => mutant.id === bug)!, plan as RopeCall);
      writeOutputs(dir, id, outputs);
    }
    const same = ['verify', vectors, '--outputs', dir, '--op', 'rope'];
    const { status, stdout } = await ropewalk(...same);
    assert.equal(status, 1);
    const named = stdout.split('\n').filter((line) => line.includes(`FAIL  known bug ${bug}; y: `));
    assert.equal(named.length, 3, stdout);
    assert.match(stdout, new RegExp(`^ {2}known bug in 3 of 3 failures: ${bug}\\. Writes the first member .*$`, 'm'));
    assert.doesNotMatch(stdout, /ropewalk diagnose/);
    const one = await ropewalk(...same, '--max-failures', '1');
    assert.match(one.stdout, /note: not run, after 1 failure \(--max-failures\): 2 cases\n/);
    assert.match(one.stdout, /0\/1 cases passed, 1 failed\n$/);
    const junit = await ropewalk(...same, '--max-failures', '1', '--report', 'junit');
    assert.match(junit.stdout, /tests="3" failures="1" errors="0" skipped="2"/);
    assert.match(junit.stdout, /<skipped message="not run, after 1 failure \(--max-failures\)"/);
    const { GITHUB_ACTIONS } = process.env;
    process.env.GITHUB_ACTIONS = 'true';
    const { stderr } = await ropewalk(...same).finally(() => {
      if (GITHUB_ACTIONS === undefined) delete process.env.GITHUB_ACTIONS;
      else process.env.GITHUB_ACTIONS = GITHUB_ACTIONS;
    });
    assert.match(stderr, new RegExp(`^::error title=known bug ${bug}::3 cases: ${ids.slice(0, 3).join(', ')}$`, 'm'));
  });

  test('docs/verify.md: a table of the JSON lines for a spreadsheet', async () => {
    const [, script] = /^node -e '\n([^']+)' < results\.jsonl$/m.exec(
      readFileSync(new URL('../../../docs/verify.md', import.meta.url), 'utf8'),
    )!;
    const { stdout: input } = await ropewalk('verify', vectors, '--outputs', wrongOutputs(), '--json');
    const { stdout, stderr } = spawnSync(process.execPath, ['-e', script!], { input, encoding: 'utf8' });
    assert.equal(stderr, '');
    assert.match(stdout, /^case,status,output,wrong,max_abs,nmse\nllama-2-half,ok,y,0,[\de.-]+,[\de.-]+\n/);
    assert.match(stdout, /^phi-2,fail,y,1,/m);
    assert.match(stdout, /^argmax-ties,ok,max_idx,0,0,0\nargmax-ties,ok,max_val,0,0,0$/m);
  });

  test('JSON lines and JUnit on stdout hold nothing else', async () => {
    const same = ['verify', vectors, '--outputs', wrongOutputs(), '--case', 'phi-2', 'gpt-j'];
    const json = await ropewalk(...same, '--report', 'jsonl');
    assert.equal((await ropewalk(...same, '--json')).stdout, json.stdout);
    assert.match(
      (await ropewalk(...same, '--json', '--report', 'junit')).stderr,
      /--report: --json means --report jsonl/,
    );
    const lines = json.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.equal(json.status, 1);
    assert.deepEqual(
      lines.map((line) => line.id ?? line.summary.ok),
      ['phi-2', 'gpt-j', 1],
    );
    assert.deepEqual([lines[0].tensors[0].worstPair, lines[0].tensors[0].worstPosition], [3, [40]]);
    const { stdout: junit } = await ropewalk('verify', vectors, '--outputs', wrongOutputs(), '--report', 'junit');
    assert.match(junit, /^<\?xml [\s\S]*<\/testsuites>\n$/);
  });

  const refusals: [string, Parameters<typeof verify>, RegExp][] = [
    ['neither source', [vectors, {}], /--outputs: give --outputs DIR or --program "CMD …"/],
    ['both sources', [vectors, { outputs, program: 'x' }], /--program: it does not go with --outputs/],
    ['no folder of outputs', [vectors, { outputs: join(folder, 'nowhere') }], /--outputs: .*nowhere is not a folder/],
    ['no folder of vectors', [join(folder, 'nowhere'), { outputs }], /nowhere: there is no such folder/],
    ['a file', [join(vectors, 'manifest.json'), { outputs }], /manifest\.json: it is a file\. Give its folder\./],
    ['a folder without a manifest', [outputs, { outputs }], /manifest\.json/],
    [
      'an unknown case',
      [vectors, { outputs, case: ['phi2'] }],
      /--case: expected one of the 5 cases in manifest\.json, got "phi2"/,
    ],
    ...['pdf', 'csv', 'html'].map((report): (typeof refusals)[number] => [
      `the report ${report}`,
      [vectors, { outputs, report }],
      new RegExp(`--report: expected console, jsonl or junit, got "${report}"`),
    ]),
    [
      'an unknown table',
      [vectors, { outputs, table: 'f16' }],
      /--table: expected float64, f32 or f32-recurrence, got "f16"/,
    ],
    ['an unknown arithmetic', [vectors, { outputs, arithmetic: 'f8' }], /--arithmetic: expected f32 or native/],
    [
      'a scale of 0',
      [vectors, { outputs, toleranceScale: '0' }],
      /--tolerance-scale: expected a number in \(0, 1000000\], got 0/,
    ],
    ['a scale that is none', [vectors, { outputs, toleranceScale: '' }], /--tolerance-scale/],
    ['a time that is none', [vectors, { program: 'x', timeout: 'soon' }], /--timeout: expected a number, got "soon"/],
    ['a timeout without a program', [vectors, { outputs, timeout: '3' }], /--timeout: it needs --program/],
    [
      'an unknown protocol',
      [vectors, { program: 'x', protocol: 'http' }],
      /--protocol: expected stdio or files, got "http"/,
    ],
    ['a pipe in the command', [vectors, { program: 'a | b' }], /--program: expected words alone/],
  ];
  test('what is refused, and what it says', async () => {
    for (const [name, args, message] of refusals)
      await assert.rejects(verify(...args), { name: 'RopewalkError', message }, name);
    for (const others of [
      ['--outputs', 'x'],
      ['--program', 'x', '--protocol', 'files'],
    ]) {
      const refused = await ropewalk('verify', vectors, '--perf', ...others);
      assert.deepEqual(
        [refused.status, /^ropewalk: verify: --perf: it needs --program/.test(refused.stderr)],
        [2, true],
      );
    }
    const { status, stderr } = await ropewalk('verify', vectors);
    assert.equal(status, 2);
    assert.match(stderr, /^ropewalk: verify: --outputs: give --outputs DIR/);
    const unwritable = await ropewalk(
      'verify',
      vectors,
      '--outputs',
      outputs,
      '--case',
      'gpt-j',
      '--report',
      'junit',
      '--out',
      join(folder, 'no/such/dir.xml'),
    );
    assert.equal(unwritable.status, 2, unwritable.stdout);
  });

  test("a folder that was edited is unreadable, which is not the kernel's failure", async () => {
    const changed = join(folder, 'changed');
    await writeGolden(changed, [adding('add', 5)], ['npy']);
    const file = join(changed, 'add/a.npy');
    const bytes = readFileSync(file);
    bytes[bytes.length - 1]! ^= 1;
    writeFileSync(file, bytes);
    const { status, stderr } = await ropewalk('verify', changed, '--outputs', outputs);
    assert.equal(status, 2);
    assert.match(stderr, /the file was changed after it was written/);
  });

  test('a program: exit 0, and --keep holds outputs that pass again', async () => {
    const program = writeFile(join(folder, 'rope.mjs'), HARNESS);
    const keep = join(folder, 'kept');
    const { status, stdout, stderr } = await ropewalk(
      'verify',
      vectors,
      '--program',
      `"${process.execPath}" ${program}`,
      '--keep',
      keep,
    );
    assert.equal(status, 0, stdout + stderr);
    for (const id of ids) assert.match(stdout, new RegExp(`${id}: +OK .*angles float64`));
    assert.match(stdout, /add-f16: +skipped +op add: this harness has rope only/);
    assert.match(stdout, /3\/3 cases passed, 0 failed, 2 skipped/);
    for (const id of ids) assert.equal(judgeCase(rope(id), readCaseOutputs(keep, rope(id)).tensors).status, 'ok');
  });

  test('--op: only cases of these operators, beside --case', async () => {
    const lines = (...args: string[]) => ropewalk('verify', vectors, '--outputs', outputs, ...args);
    assert.match((await lines('--op', 'add,argmax')).stdout, /: 2 of 5 cases, [\s\S]*2\/2 cases passed/);
    assert.match((await lines('--op', 'rope', '--op', 'add')).stdout, /: 4 of 5 cases, [\s\S]*4\/4 cases passed/);
    assert.match(
      (await lines('--op', 'rope', '--case', 'gpt-j', 'add-f16')).stdout,
      /: 1 of 5 cases, [\s\S]*1\/1 cases passed/,
    );
    const none = await lines('--op', 'add', '--case', 'gpt-j');
    assert.deepEqual([none.status, /nothing was compared/.test(none.stdout)], [1, true]);
    const { status, stderr } = await lines('--op', 'rop');
    assert.deepEqual(
      [status, stderr],
      [2, 'ropewalk: verify: --op: expected rope, add or argmax, got "rop". Did you mean rope?\n'],
    );
  });

  test('Ctrl-C ends the program and what it started, and leaves no report', {
    skip: process.platform === 'win32' ? 'no signals' : false,
  }, async () => {
    const pids = join(folder, 'pids');
    const hang = writeFile(
      join(folder, 'hang.mjs'),
      `import { spawn } from 'node:child_process'; import { writeFileSync } from 'node:fs';
const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
writeFileSync(${JSON.stringify(pids)}, process.pid + ' ' + child.pid); setInterval(() => {}, 1000);`,
    );
    const report = join(folder, 'never.xml');
    const run = spawn(
      process.execPath,
      [...main, 'verify', vectors, '--program', `"${process.execPath}" ${hang}`, '--report', 'junit', '--out', report],
      { cwd: root, stdio: 'ignore' },
    );
    const ended = new Promise<number | null>((resolve) => run.once('exit', resolve));
    const alive = (pid: number): boolean => {
      try {
        process.kill(pid, 0);
        // A zombie has ended.
        return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
      } catch (error) {
        return (error as NodeJS.ErrnoException).code === 'ENOENT' && process.platform !== 'linux';
      }
    };
    let started: number[] = [];
    await until(() => {
      if (existsSync(pids)) started = readFileSync(pids, 'utf8').split(' ').map(Number);
      return run.exitCode !== null || started.length === 2;
    }, 'it runs');
    assert.ok(started.every(alive), 'it runs');
    run.kill('SIGINT');
    assert.equal(await ended, 130);
    await until(() => !started.some(alive), 'both have ended');
    assert.ok(!existsSync(report));
  });

  testBrowser("Chromium's reader of XML reads the JUnit file", { skip: noBrowser }, async () => {
    const { stdout: junit } = await ropewalk('verify', vectors, '--outputs', wrongOutputs(), '--report', 'junit');
    const browser = await openChromium();
    try {
      const opened = await (await browser.newContext({ offline: true })).newPage();
      const tests = await opened.evaluate((text) => {
        const parsed = new DOMParser().parseFromString(text, 'application/xml');
        return (
          parsed.querySelector('parsererror')?.textContent ??
          [...parsed.querySelectorAll('testcase')].map((node) => node.getAttribute('name'))
        );
      }, junit);
      assert.deepEqual(tests, [...ids, 'add-f16', 'argmax-ties']);
    } finally {
      await browser.close();
    }
  });
});
