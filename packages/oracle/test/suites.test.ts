import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseNpy, writeNpy } from '@ropewalk/formats';
import fc from 'fast-check';
import type { OpPlan, Runner } from 'ropewalk';
import { RopewalkError } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { FIXTURES } from '../../../test/support/fixtures.js';
import { damage, damaged } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { VECTORS } from '../../../test/support/suites.js';
import { vectorFolder } from '../src/folder.node.js';
import { judgeBits, judgeClose, judgeNmse, nmse } from '../src/judge.js';
import { formatLabel, parseLabel } from '../src/label.js';
import { extendedCases, publishedCases } from '../src/published.js';
import { parseRopeLabel, ropeCase, ropeLabel } from '../src/rope-case.js';
import {
  type ConformanceCase,
  countResults,
  formatResult,
  formatSummary,
  resultToJson,
  runCases,
} from '../src/runner.js';
import { vectorCases } from '../src/vectors.js';

const rw = referenceRunner();
async function resultsOf(cases: Iterable<ConformanceCase>, runner: Runner = rw) {
  const results = [];
  for await (const result of runCases(cases, runner)) results.push(result);
  return results;
}
const failures = async (cases: Iterable<ConformanceCase>, runner?: Runner) =>
  (await resultsOf(cases, runner)).filter((r) => r.verdict.status !== 'ok').map(formatResult);

describe('the published and the extended cases', () => {
  test('are the seed’s 96 lines, in its order', () => {
    const lines = [...readFileSync(`${FIXTURES}/cann-2024-run.txt`, 'utf8').matchAll(/^ {2}(ROPE\(.*?\)):/gm)].map(
      (match) => match[1],
    );
    assert.equal(lines.length, 96);
    assert.deepEqual(
      publishedCases().map((one) => one.label),
      lines,
    );
  });
  test('all pass on the reference', async () => {
    assert.equal(publishedCases().length, 96);
    assert.deepEqual(await failures([...publishedCases(), ...extendedCases()]), []);
  });
  test('each label names one case, and makes the same case again', () => {
    const labels = [...publishedCases(), ...extendedCases()].map((one) => one.label);
    assert.equal(new Set(labels).size, labels.length);
    for (const label of labels) assert.equal(ropeLabel(parseRopeLabel(label)), label);
  });
});

describe('a backend that is wrong', () => {
  /** Makes a runner that computes with the reference and spoils the output. */
  const spoiled = (spoil: (out: Float32Array) => void): Runner => ({
    ...rw,
    run(plan: OpPlan) {
      rw.run(plan);
      if (plan.op === 'rope') spoil(plan.parts[0]!.out.storage.host as Float32Array);
    },
  });
  const one = publishedCases().slice(0, 1);
  test('fails with NMSE and threshold', async () => {
    const [line] = await failures(
      one,
      spoiled((out) => out.fill(0)),
    );
    assert.match(
      line!,
      /^ {2}ROPE\(type=f32,ne_a=\[128,32,2,1\],.*\): \[ROPE\] NMSE = 1\.000000000 > 0\.000000100 FAIL$/,
    );
  });
  test('fails when one element is NaN, and when it throws', async () => {
    assert.match(
      (
        await failures(
          one,
          spoiled((out) => (out[7] = Number.NaN)),
        )
      )[0]!,
      /NMSE = NaN > 0\.000000100 FAIL$/,
    );
    const thrown = await failures(
      one,
      spoiled(() => assert.fail('kernel lost')),
    );
    assert.match(thrown[0]!, /AssertionError: kernel lost FAIL$/);
  });
  test('that declines is not supported, with its reason', async () => {
    const results = await resultsOf(one, { ...rw, name: 'half-done', whyNot: () => 'no half pairing' });
    assert.match(formatResult(results[0]!), /: not supported \[no half pairing\]$/);
    assert.equal(formatSummary(countResults(results)).at(-1), '  0/0 cases passed, 0 failed, 1 not supported');
    assert.deepEqual(JSON.parse(resultToJson(results[0]!)), {
      backend: 'half-done',
      suite: 'published',
      case: one[0]!.label,
      status: 'not_supported',
      reason: 'no half pairing',
    });
  });
});

describe('labels', () => {
  test('a parsed label is written the same', () => {
    const value = fc.oneof(
      fc.integer(),
      fc.array(fc.integer(), { maxLength: 4 }),
      fc.stringMatching(/^[a-z0-9_./-]{1,12}$/),
    );
    fc.assert(
      fc.property(fc.dictionary(fc.stringMatching(/^[a-z_]{1,8}$/), value, { maxKeys: 6 }), (values) => {
        const label = formatLabel('ROPE', values);
        const { name, values: parsed } = parseLabel(label);
        assert.equal(formatLabel(name, Object.fromEntries(parsed)), label);
      }),
      drawn(),
    );
  });
  test('a verdict behind the label does not matter', () => {
    const label = publishedCases()[7]!.label;
    assert.equal(ropeLabel(parseRopeLabel(`  ${label}: [ROPE] NMSE = 0.463321724 > 0.000000100 FAIL`)), label);
  });
  test('fuzz: any line is a case or a clear error', () => {
    const line = publishedCases()[3]!.label;
    const mutated = fc
      .tuple(fc.nat(line.length), fc.nat(8), fc.string({ maxLength: 6 }))
      .map(([at, cut, text]) => line.slice(0, at) + text + line.slice(at + cut));
    fc.assert(
      fc.property(fc.oneof(mutated, fc.string({ maxLength: 80 })), (text) => {
        try {
          parseRopeLabel(text);
        } catch (error) {
          assert.ok(error instanceof RopewalkError, String(error));
        }
      }),
      drawn(3000),
    );
  });
  test('refusals name the key', () => {
    const line = (change: string) =>
      `ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0${change})`;
    const cases: [string, RegExp][] = [
      ['ROPE', /line: expected a line such as ROPE\(/],
      [line(',fb=x'), /ROPE\(…\): fb: expected a finite number, got "x"/],
      [line(',type=f16'), /ROPE\(…\): the key type is given twice/],
      [line(',what=1'), /ROPE\(…\): there is no key "what"\. It takes type, ne_a, .*, ff0\./],
      [line(',n_dim=64'), /ROPE\(…\): there is no key "n_dim"\. Did you mean n_dims\?/],
      [
        'ROPE(ne_a=[128,4,6,1],n_dims=128,mode=2,af=0)',
        /ROPE\(…\): with af=0 every element of y is 0, and a case tests nothing\. Give af=1\./,
      ],
      [line(',freq_base=5e5'), /ROPE\(…\): there is no key "freq_base"\. Did you mean fb\?/],
      ['ROPE(type=f32)', /ROPE\(…\): ne_a: expected /],
      ['ROPE(ne_a=[128,4,6,1],mode=2)', /ROPE\(…\): n_dims: expected /],
      ['ROPE(ne_a=[128,4,6,1],n_dims=128)', /ROPE\(…\): mode: expected /],
      [line(',pos=[1]'), /ROPE\(…\): pos: expected 2 positions, got 1/],
      [line(',ff0=1'), /ROPE\(…\): ff0: expected a number > 0 beside ff=1, got 1/],
      [line(',inplace=2'), /ROPE\(…\): inplace: expected an integer in \[0, 1\], got 2/],
      [
        line(',sections=[1,2]').replace('mode=0', 'mode=8'),
        /ROPE\(…\): sections: expected four integers for modes 8, 24 and 40/,
      ],
      [line('').replace('[128,32,2,1]', '[128,999999,9999,1]'), /ROPE\(…\): ne_a: expected at most 134217728 elements/],
      [line('').replace('type=f32', 'type=q8_0'), /ROPE\(…\): type: expected f32, f16, bf16, f64, got "q8_0"/],
    ];
    for (const [text, message] of cases) assert.throws(() => parseRopeLabel(text), { name: 'RopewalkError', message });
  });
  test('keys that are left out have the defaults of test-backend-ops', () => {
    assert.equal(
      ropeLabel(parseRopeLabel('ROPE(ne_a=[128,4,6,1],n_dims=128,mode=2)')),
      'ROPE(type=f32,ne_a=[128,4,6,1],n_dims=128,mode=2,n_ctx=512,fs=1.000000,ef=0.000000,af=1.000000,ff=0,v=0)',
    );
    // Upstream's line of M-RoPE has no sections, and mode 24 rotates half of its n_dims.
    const read = (n_dims: number, mode: number) => {
      const { sections, n_dims: rotated } = parseRopeLabel(`ROPE(ne_a=[80,16,2,1],n_dims=${n_dims},mode=${mode})`);
      return [rotated, sections];
    };
    assert.deepEqual(read(20, 8), [20, [6, 6, 6, 0]]);
    assert.deepEqual(read(64, 40), [64, [21, 21, 21, 0]]);
    assert.deepEqual(read(80, 24), [40, [20, 20, 0, 0]]);
  });
  test('a pasted case with parameters that do not give a rotation fails clearly', async () => {
    const params = parseRopeLabel('ROPE(type=f32,ne_a=[8,1,1,1],n_dims=7,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)');
    assert.match(
      (await failures([ropeCase('pasted', params)]))[0]!,
      /ggml_rope: n_dims: expected an even integer in \[2, ne0=8\], got 7 FAIL$/,
    );
  });
});

describe('comparing', () => {
  test('nmse: 0 for equal zeros, NaN for NaN', () => {
    assert.equal(nmse([0, 0], [0, 0]), 0);
    assert.ok(Number.isNaN(nmse([Number.NaN], [1])));
    assert.equal(judgeNmse('X', [1], [1, 2], 1).status, 'fail');
  });
  test('nmse: equal NaN and infinities do not count, huge and tiny squares neither overflow nor vanish', () => {
    const odd = [Number.NaN, Infinity, -Infinity];
    assert.equal(judgeNmse('X', [...odd, 1], [...odd, 1], 0).status, 'ok');
    assert.equal(nmse([...odd, 2], [...odd, 1]), 1);
    for (const [got, want] of [
      [Infinity, -Infinity],
      [Number.NaN, Infinity],
      [0, Infinity],
      [Infinity, Number.NaN],
    ] as const)
      assert.ok(Number.isNaN(nmse([got, 1], [want, 1])), `${got} for ${want}`);
    assert.equal(nmse([2e300, Number.MAX_VALUE], [1e300, Number.MAX_VALUE]) > 0, true);
    assert.equal(nmse([2e300], [1e300]), 1);
    assert.equal(nmse([2e-300], [1e-300]), 1);
    assert.equal(nmse([-Number.MAX_VALUE], [Number.MAX_VALUE]), Infinity);
    assert.equal(nmse([Infinity, 1], [65520, 1], 'f16'), 0);
    assert.ok(Number.isNaN(nmse([Infinity, 1], [65000, 1], 'f16')) && Number.isNaN(nmse([Infinity, 1], [65520, 1])));
  });
  test('judgeClose: NaN and infinities equal themselves and do not affect the rest; first and worst are named', () => {
    const t = { atol: 0.1, rtol: 0.1 };
    assert.equal(judgeClose('X', [Infinity, 1.05], [Infinity, 1], t).status, 'ok');
    assert.equal(judgeClose('X', [Number.NaN], [Number.NaN], t).status, 'ok');
    for (const [got, want] of [
      [Number.NaN, 1],
      [5, Infinity],
      [-Infinity, Infinity],
      [Number.NaN, Infinity],
      [Infinity, Number.NaN],
    ] as const) {
      const detail = `[X] 1 of 1 outside tolerance; first at 0: got ${got}, expected ${want}${want === 1 ? ' ± 2.00e-1' : ''}; worst at 0: off by Infinity`;
      assert.deepEqual(judgeClose('X', [got], [want], t), { status: 'fail', detail });
    }
    for (const bound of [Number.NaN, Infinity]) {
      assert.equal(judgeClose('X', [1, Number.NaN], [1, Number.NaN], () => bound).status, 'ok');
      assert.equal(judgeClose('X', [2], [1], () => bound).status, 'fail');
    }
    assert.equal(judgeClose('X', [Infinity], [70000], { atol: 0, rtol: 1e-3 }, 'f16').status, 'ok');
    assert.equal(judgeClose('X', [Infinity], [70000], { atol: 0, rtol: 1e-3 }, 'f32').status, 'fail');
    assert.deepEqual(judgeClose('X', [0, 1.2, 5], [0, 1, 1], { atol: 0.1, rtol: 0 }), {
      status: 'fail',
      detail: '[X] 2 of 3 outside tolerance; first at 1: got 1.2, expected 1 ± 1.00e-1; worst at 2: off by 4',
    });
  });
  test('a limit or tolerance that is not a finite number >= 0 is refused', () => {
    for (const bad of [Number.NaN, Infinity, -1, '1', undefined]) {
      const limit = bad as number;
      const expected = { name: 'RopewalkError', code: 'RANGE' };
      const got = typeof bad === 'string' ? `"${bad}"` : (bad ?? 'none');
      const as = (what: string) => ({ ...expected, message: `X: ${what}: expected a finite number >= 0, got ${got}` });
      assert.throws(() => judgeNmse('X', [9, 1], [1, 1], limit), as('limit'));
      assert.throws(() => judgeClose('X', [5], [1], { atol: limit, rtol: 0 }), as('tolerance.atol'));
      assert.throws(() => judgeClose('X', [5], [1], { atol: 0, rtol: limit }), as('tolerance.rtol'));
    }
    assert.throws(() => judgeClose('X', [5], [1], null as never), {
      code: 'RANGE',
      message: /^X: tolerance: expected an object/,
    });
  });
  test('judgeBits: the payload of a computed NaN does not matter', () => {
    const [got, want] = [Uint32Array.of(0xffc00000, 1), Uint32Array.of(0x7fc00000, 1)].map(
      (bits) => new Float32Array(bits.buffer),
    ) as [Float32Array, Float32Array];
    assert.equal(judgeBits('X', got, want).status, 'fail');
    assert.equal(judgeBits('X', got, want, 'f32').status, 'ok');
  });
  test('judgeBits: −0 is not +0', () => {
    assert.deepEqual(judgeBits('X', Float32Array.of(-0), Float32Array.of(0)), {
      status: 'fail',
      detail: '[X] 1 of 1 elements differ in bits; first at 0: got 0x80000000, expected 0x0',
    });
  });
});

describe('folders of vectors', () => {
  const folder = mkdtempSync(join(tmpdir(), 'vectors-'));
  after(() => rmSync(folder, { recursive: true }));
  const copy = (name: string): string => {
    const to = join(folder, name);
    rmSync(to, { recursive: true, force: true });
    cpSync(join(VECTORS, name), to, { recursive: true });
    return to;
  };

  test('another program’s folder in the same form runs', async () => {
    const cases = vectorCases(vectorFolder(copy('onnx')));
    assert.equal(cases.length, 14);
    assert.deepEqual(await failures(cases), []);
  });

  test('a changed vector fails, a missing or short file is unreadable input', async () => {
    const to = copy('llaisys');
    const file = join(to, 'embedding/repeat.f32.out.expected.npy');
    const bytes = readFileSync(file);
    bytes[bytes.length - 1]! ^= 1;
    writeFileSync(file, bytes);
    const one = () => vectorCases(vectorFolder(to)).filter((c) => c.label.includes('embedding/repeat/f32'));
    assert.match((await failures(one()))[0]!, /1 of 128 elements differ in bits; first at 127/);
    writeFileSync(file, bytes.subarray(0, 100));
    await assert.rejects(failures(one()), { code: 'FORMAT' });
    rmSync(file);
    await assert.rejects(failures(one()), {
      code: 'FORMAT',
      message: /llaisys\/embedding\/repeat\.f32\.out\.expected\.npy: there is no such file or folder/,
    });
  });

  test('llaisys: −0 in a manifest is a number, as a text too', async () => {
    const to = copy('llaisys');
    const manifest = JSON.parse(readFileSync(join(to, 'manifest.json'), 'utf8'));
    manifest.cases = manifest.cases.filter(({ id }: { id: string }) => id === 'argmax/tie_far/f32');
    const [one] = manifest.cases;
    const vals = new Float32Array(2).fill(-0);
    writeFileSync(join(to, one.inputs.vals.file), writeNpy(vals, { dtype: 'f32', shape: [2] }));
    one.inputs.vals.shape = [2];
    one.outputs.max_idx.value = 0;
    for (const value of ['-0', '-0.0', 0]) {
      one.outputs.max_val.value = value;
      writeFileSync(join(to, 'manifest.json'), JSON.stringify(manifest));
      assert.deepEqual(await failures(vectorCases(vectorFolder(to))), []);
    }
    one.outputs.max_val.value = 'minus zero';
    writeFileSync(join(to, 'manifest.json'), JSON.stringify(manifest));
    await assert.rejects(failures(vectorCases(vectorFolder(to))), {
      code: 'FORMAT',
      message: /a number, "nan", "inf", "-inf" or "-0"/,
    });
  });

  test('onnx: an x that holds infinities and NaN', async () => {
    const to = copy('onnx');
    const manifest = JSON.parse(readFileSync(join(to, 'manifest.json'), 'utf8'));
    const [one] = manifest.cases; // test_rotary_embedding: f32, halves
    writeFileSync(join(to, 'manifest.json'), JSON.stringify({ ...manifest, cases: [one] }));
    const change = ({ file }: { file: string }, set: (data: Float32Array) => void): void => {
      const { data, dtype, shape } = parseNpy(Uint8Array.from(readFileSync(join(to, file))), file);
      set(data as Float32Array);
      writeFileSync(join(to, file), writeNpy(data as never, { dtype, shape }));
    };
    const outputs = [one.output_f64, one.output];
    change(one.inputs.X, (data) => {
      data[0] = Number.NaN;
    });
    const half = one.inputs.cos_cache.shape.at(-1);
    for (const output of outputs) {
      change(output, (data) => {
        data[0] = Number.NaN;
        data[half] = Number.NaN;
      });
    }
    assert.deepEqual(await failures(vectorCases(vectorFolder(to))), []);
    for (const output of outputs) {
      change(output, (data) => {
        data[1]! += 1;
      });
    }
    assert.match((await failures(vectorCases(vectorFolder(to))))[0]!, /1 of \d+ outside tolerance/);
  });

  test('a manifest cannot reach outside its folder', async () => {
    const to = copy('onnx');
    const manifest = readFileSync(join(to, 'manifest.json'), 'utf8').replace(
      'test_rotary_embedding/x.npy',
      '../../secret.npy',
    );
    writeFileSync(join(to, 'manifest.json'), manifest);
    await assert.rejects(failures(vectorCases(vectorFolder(to)).slice(0, 1)), {
      code: 'FORMAT',
      message: /expected a file path inside the folder, got "\.\.\/\.\.\/secret\.npy"/,
    });
  });

  test('a manifest cannot ask for more memory or time than a vector needs', async () => {
    const to = copy('ggml');
    const manifest = JSON.parse(readFileSync(join(to, 'manifest.json'), 'utf8'));
    manifest.cases[0].ne[1] = 2 ** 31;
    manifest.cases[0].view.nb = [4, 0, 0, 0];
    writeFileSync(join(to, 'manifest.json'), JSON.stringify(manifest));
    await assert.rejects(failures(vectorCases(vectorFolder(to)).slice(0, 1)), {
      code: 'FORMAT',
      message: /cases\[0\]\.ne: expected at most 134217728 elements/,
    });
  });

  test('no manifest, an empty one, one in another form', () => {
    const at = (text: string | undefined): void => {
      const to = join(folder, 'odd');
      rmSync(to, { recursive: true, force: true });
      mkdirSync(to);
      if (text !== undefined) writeFileSync(join(to, 'manifest.json'), text);
      vectorCases(vectorFolder(to));
    };
    assert.throws(() => at(undefined), {
      code: 'FORMAT',
      message: /odd: it has no manifest\.json, and no folder directly in it has one\./,
    });
    assert.throws(() => at(''), { code: 'FORMAT', message: /odd\/manifest\.json: expected JSON/ });
    assert.throws(() => at('[]'), { code: 'FORMAT', message: /manifest\.json: expected an object/ });
    assert.throws(() => at('{"hello": 1}'), {
      code: 'FORMAT',
      message:
        /expected the form of the ggml, onnx, llaisys, infiniop, huggingface, cann, flash-attn or onnx-contrib vectors, got \["hello"\]/,
    });
    assert.throws(() => vectorFolder(join(folder, 'nowhere')), {
      code: 'FORMAT',
      message: /nowhere: there is no such folder/,
    });
  });

  test('fuzz: damaged manifests and arrays end in a verdict or a RopewalkError', async () => {
    const rounds: [string, Uint8Array][] = [];
    for (const name of ['ggml', 'onnx', 'llaisys', 'infiniop', 'huggingface', 'cann', 'flash-attn', 'onnx-contrib']) {
      const text = readFileSync(join(VECTORS, name, 'manifest.json'), 'utf8');
      // A few cases are enough, and run quickly.
      const json = JSON.parse(text) as Record<string, unknown[]>;
      for (const key of ['cases', 'rope', 'mrope']) if (Array.isArray(json[key])) json[key] = json[key].slice(0, 2);
      rounds.push([name, new TextEncoder().encode(JSON.stringify(json))]);
    }
    const values = [null, -1, 0, 1e308, 2 ** 53, 'x', '../../x', [], {}, [1, 2, 3, 4], true];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...rounds),
        damage,
        fc.boolean(),
        fc.nat(),
        fc.constantFrom(...values),
        async ([name, bytes], steps, structured, at, value) => {
          let file = damaged(bytes, steps);
          if (structured) {
            // One value somewhere in the tree is replaced.
            const json = JSON.parse(new TextDecoder().decode(bytes)) as object;
            const places: [Record<string, unknown>, string][] = [];
            const visit = (node: unknown): void => {
              if (typeof node !== 'object' || node === null) return;
              for (const key of Object.keys(node)) {
                places.push([node as Record<string, unknown>, key]);
                visit((node as Record<string, unknown>)[key]);
              }
            };
            visit(json);
            const [node, key] = places[at % places.length]!;
            node[key] = value;
            file = new TextEncoder().encode(JSON.stringify(json));
          }
          const real = vectorFolder(join(VECTORS, name));
          try {
            const cases = vectorCases({
              ...real,
              name,
              read: (path) => (path === 'manifest.json' ? file : real.read(path)),
              has: (path) => path === 'manifest.json',
            });
            // A TypeError inside a case would be a bug in the reader.
            for (const { verdict } of await resultsOf(cases.slice(0, 4)))
              if (verdict.status === 'fail') assert.doesNotMatch(verdict.detail, /^(Type|Range|Reference)Error/);
          } catch (error) {
            assert.ok(error instanceof RopewalkError, `${name}: ${error instanceof Error ? error.stack : error}`);
          }
        },
      ),
      drawn(600),
    );
  });
});
