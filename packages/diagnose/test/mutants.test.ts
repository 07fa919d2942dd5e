import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type MutantsOptions, mutants } from '@ropewalk/cli/internal';
import type { ConformanceCase } from '@ropewalk/oracle';
import {
  extendedCases,
  goldenRopeSuite,
  nmse,
  parseRopeLabel,
  publishedCases,
  ropeCase,
  scoreVectors,
  vectorCases,
} from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import fc from 'fast-check';
import type { FloatDtype, RopeScaling, Runner } from 'ropewalk';
import {
  bindRopeParts,
  type Pairing,
  planRope,
  type RopeCall,
  type RopePlan,
  RopewalkError,
  tensorFrom,
  zeros,
} from 'ropewalk';
import type { AxisRule } from 'ropewalk/internal';
import { countElements, type RopePart } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { ropewalkIn } from '../../../test/support/command.js';
import { FIXTURES } from '../../../test/support/fixtures.js';
import { drawn, FUZZ, some } from '../../../test/support/size.js';
import { VECTORS } from '../../../test/support/suites.js';
import { CAUSES, type Mutant, mutantRunner } from '../src/kernel/mutant.js';
import { changed, RopeSteps } from '../src/kernel/steps.js';
import { MUTANTS } from '../src/mutants/catalogue.js';
import { whyNever } from '../src/mutants/operators.js';

const mutantNamed = (id: string): Mutant =>
  MUTANTS.find((mutant) => mutant.id === id) ?? assert.fail(`no mutant ${id}`);
const pasted = (label: string): ConformanceCase => ropeCase('pasted', parseRopeLabel(label));
const plain = (change = ''): string =>
  `ROPE(type=f32,ne_a=[64,2,3,1],n_dims=64,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0${change})`;

interface Probe {
  readonly call: RopeCall;
  readonly part: RopePart;
  /** The input, as it is before anything is written. */
  readonly x: Float64Array;
}

/** The rotations that a case asks for. */
async function callsOf(one: ConformanceCase): Promise<Probe[]> {
  const calls: Probe[] = [];
  const runner: Runner = {
    name: 'spy',
    allocate: zeros,
    whyNot: () => undefined,
    run(plan) {
      if (plan.op === 'rope') {
        for (const part of plan.parts) calls.push({ call: plan, part, x: part.x.readNumbers() as Float64Array });
      }
      runReference(plan);
    },
    async finish() {},
  };
  await one.run(runner);
  return calls;
}

describe('the catalogue', () => {
  test('has at least 63 entries, each named once, and at least three for every cause', () => {
    assert.ok(MUTANTS.length >= 63, `${MUTANTS.length}`);
    assert.equal(new Set(MUTANTS.map(({ id }) => id)).size, MUTANTS.length);
    assert.equal(new Set(MUTANTS.map(({ does }) => does)).size, MUTANTS.length);
    for (const cause of Object.keys(CAUSES)) {
      const count = MUTANTS.filter((mutant) => mutant.cause === cause).length;
      assert.ok(count >= 3, `${cause}: ${count}`);
    }
  });
  test('says in a sentence what each does, and which threads report it', () => {
    for (const { id, does, threads } of MUTANTS) {
      assert.match(id, /^[a-z0-9]+(-[a-z0-9]+)*$/, id);
      assert.match(does, /^[A-Z].*[^.]\.$/, id);
      assert.ok(threads.length > 0, id);
      for (const thread of threads) assert.match(thread, /^[\w.-]+\/[\w.-]+#\d+$/, id);
    }
  });
  test('names threads that the notes on peers list', () => {
    const text = readFileSync(`${FIXTURES}/threads.txt`, 'utf8');
    /** Threads that the notes do not list. */
    const elsewhere = [
      'ModelTC/LightLLM#1582',
      'huggingface/text-generation-inference#2078',
      'lablup/mlxcel#1358',
      'bkitano/llama-from-scratch#8',
      'rasbt/LLMs-from-scratch#410',
      'hkproj/pytorch-llama#3',
      'labmlai/annotated_deep_learning_paper_implementations#313',
      'NVIDIA/physicsnemo#1522',
      'oppiliappan/eva#38',
      'RobLoach/raylib-cpp#271',
      'lucidrains/vit-pytorch#129',
      'hw-native-sys/pypto-lib#1014',
      'flagos-ai/FlagGems#5142',
      'deepspeedai/DeepSpeed#2782',
      'ggml-org/llama.cpp#17543',
      'bojone/rerope#17',
      'modelscope/ms-swift#8325',
      'PrimeIntellect-ai/prime-rl#1525',
      'vllm-project/vllm-ascend#10404',
      'vllm-project/vllm-ascend#1267',
      'ROCm/aiter#2566',
      'tenstorrent/tt-metal#19882',
      'tenstorrent/tt-metal#33971',
      'chessai/nix-std#14',
      'chessai/nix-std#66',
      'ICME-Lab/jolt-atlas#183',
      'karpathy/nanochat#489',
      'stanford-cs336/assignment1-basics#22',
    ];
    const numbers = new Set([...text.matchAll(/#(\d+)/g)].map((match) => match[1]));
    for (const { id, threads } of MUTANTS) {
      for (const thread of threads)
        if (!elsewhere.includes(thread)) assert.ok(numbers.has(thread.split('#')[1]), `${id}: ${thread}`);
    }
  });
});

describe('the steps', () => {
  test('with nothing changed are the reference', async () => {
    for (const one of goldenRopeSuite()) {
      const right = await one.run({
        ...mutantRunner({ ...mutantNamed('rotated-twice'), change: () => undefined }),
        name: 'steps',
      });
      assert.equal(right.status, 'ok', `${one.label}: ${JSON.stringify(right)}`);
    }
  });
});

describe('each mutant', () => {
  const suites = [...publishedCases(), ...extendedCases(), ...vectorCases(vectorFolder(VECTORS)), ...goldenRopeSuite()];

  test('is killed by our suites', async () => {
    let steps = 0;
    const drawnMutants = some(MUTANTS);
    const score = await scoreVectors(suites, drawnMutants, () => steps++);
    assert.equal(steps, suites.length + drawnMutants.length);
    assert.deepEqual(
      score.mutants
        .filter(({ outcome }) => outcome !== 'killed')
        .map((one) => `${one.mutant.id}: ${'why' in one ? one.why : ''}`),
      [],
    );
    // Nothing is left out but what is about a peer's own arithmetic: the right kernel passes the rest.
    assert.deepEqual(
      score.leftOut.filter(({ why }) => !/^about (ggml|hf)-f32/.test(why)),
      [],
    );
  });

  test('is wrong by far more than rounding somewhere, and no two are the same everywhere', async () => {
    // The golden cases have everything, and enough of the extended ones have other shapes: small ones, so that all of
    // it is quick.
    const probes: Probe[] = [];
    for (const one of [...goldenRopeSuite(), ...extendedCases().filter(({ label }) => /type=f32/.test(label))]) {
      probes.push(...(await callsOf(one)).filter(({ x }) => x.length > 0 && x.length <= 6200));
    }
    const drawnMutants = some(MUTANTS);
    const direction = Float64Array.from({ length: 6200 }, (_, i) => Math.sin(i * i + 1));
    /**
     * For each mutant, one number for each probe: its output seen from a fixed direction; undefined where it is right.
     */
    const seen = new Map<Mutant, (number | undefined)[]>(drawnMutants.map((mutant) => [mutant, []]));
    const wrong = new Map<Mutant, number>(drawnMutants.map((mutant) => [mutant, 0]));
    for (const { call, part, x } of probes) {
      const steps = new RopeSteps(call.plan, part);
      const right = steps.all(x);
      for (const mutant of drawnMutants) {
        const change = mutant.change(steps);
        const y = change && changed(steps, change).all(x);
        const error = y ? nmse(y, right) : 0;
        wrong.set(mutant, Math.max(wrong.get(mutant)!, Number.isNaN(error) ? Infinity : error));
        seen
          .get(mutant)!
          .push(y && error !== 0 ? y.reduce((sum, value, i) => sum + value * direction[i]!, 0) : undefined);
      }
    }
    for (const [mutant, error] of wrong) assert.ok(error > 1e-9, `${mutant.id}: NMSE ${error}`);
    const same = (a: number | undefined, b: number | undefined): boolean =>
      a === b ||
      (Number.isNaN(a) && Number.isNaN(b)) ||
      (a !== undefined && b !== undefined && Math.abs(a - b) <= 1e-7 * (1 + Math.abs(a)));
    for (const [m, a] of drawnMutants.entries()) {
      for (const b of drawnMutants.slice(m + 1)) {
        const [ofA, ofB] = [seen.get(a)!, seen.get(b)!];
        assert.ok(
          ofA.some((value, n) => !same(value, ofB[n])),
          `${a.id} and ${b.id} are the same`,
        );
      }
    }
  });

  test('works on any rotation that can be planned', () => {
    const pick = <T>(...values: T[]) => fc.constantFrom(...values);
    const scaling = fc.record({
      kind: pick('none', 'linear', 'dynamicNtk', 'yarn', 'longrope', 'llama3', 'proportional'),
      factor: pick(0.5, 1, 4, 40),
      original: pick(0, 1, 64, 4096, 131072),
      context: pick(1, 4096, 20000),
      extras: pick(
        {},
        { truncate: false },
        { extFactor: 0 },
        { extFactor: 0.5, attnFactor: 0.9 },
        { mscale: 0.9, mscaleAllDim: 0.7 },
      ),
      share: pick(0, 0.25, 1),
    });
    const call = fc.record({
      headDim: pick(2, 6, 7, 16, 20, 64),
      share: pick(0.25, 0.5, 1),
      offset: pick(0, 1, 4),
      pairing: pick<Pairing>('half', 'interleaved', 'interleaved-to-half', 'vision'),
      base: pick(1.5, 10000, 5000000),
      scaling,
      factors: fc.boolean(),
      rule: pick<AxisRule | undefined>(undefined, 'sections', 'interleaved', 'interleaved-ggml', 'vision'),
      sections: pick([1, 0, 0], [1, 1, 1, 0], [3, 2, 1], [2, 2, 2, 2]),
      batch: pick(0, 1, 3),
      seq: pick(0, 1, 4),
      own: fc.boolean(),
      direction: pick<'forward' | 'backward'>('forward', 'backward'),
      heads: pick(0, 1, 3),
      norm: fc.boolean(),
      dtype: pick<FloatDtype>('f32', 'f16', 'bf16'),
      positions: fc.array(pick(0, 1, 2, 40, 5000, 40000, 1048575, 2147483647, -1, -8192, -2147483648), {
        minLength: 48,
        maxLength: 48,
      }),
    });
    let planned = 0;
    const applied = new Set<Mutant>();
    fc.assert(
      fc.property(call, (c) => {
        const rotaryDim = Math.max(2, 2 * Math.floor((c.headDim * c.share) / 2));
        const pairs = rotaryDim / 2;
        const { kind, factor, original, context, extras, share } = c.scaling;
        const list = Array.from({ length: pairs }, (_, j) => 1 + j / 8);
        const spec = {
          headDim: c.headDim,
          rotaryDim,
          rotaryOffset: Math.min(c.offset, c.headDim - rotaryDim),
          pairing: c.pairing,
          base: c.base,
          scaling: {
            kind,
            ...(kind !== 'none' && { factor }),
            ...(['dynamicNtk', 'yarn', 'longrope', 'llama3'].includes(kind) && { originalContext: original }),
            ...(['dynamicNtk', 'longrope'].includes(kind) && { context }),
            ...(kind === 'yarn' && extras),
            ...(kind === 'longrope' && { shortFactor: list, longFactor: list.map((f) => f * f) }),
            ...(kind === 'llama3' && { lowFreqFactor: 1, highFreqFactor: 4 }),
            ...(kind === 'proportional' && { rotatedPairs: Math.floor(pairs * share) }),
          } as RopeScaling,
          ...(c.factors ? { freqFactors: list } : {}),
          ...(c.rule ? { axes: { rule: c.rule, sections: c.sections } } : {}),
        };
        const numAxes = c.rule ? c.sections.length : 1;
        const dims = [...(numAxes > 1 ? [numAxes] : []), ...(c.own ? [c.batch] : []), c.seq];
        const ids = Int32Array.from(c.positions.slice(0, countElements(dims)));
        let plan: RopePlan;
        try {
          plan = planRope({
            ...spec,
            positions: tensorFrom(ids, { dtype: 'i32', shape: dims }),
            direction: c.direction,
          });
        } catch (error) {
          assert.ok(error instanceof RopewalkError, String(error));
          return;
        }
        planned++;
        const shape = [c.batch, c.seq, c.heads, c.headDim];
        const x = zeros(c.dtype, shape);
        const weight = zeros('f32', [c.headDim]);
        const part = { x, out: zeros(c.dtype, shape), ...(c.norm ? { norm: { weight, eps: 1e-6 } } : {}) };
        const steps = new RopeSteps(plan, bindRopeParts(plan, [part]).parts[0]!);
        const heads = Float64Array.from({ length: countElements(shape) }, (_, i) => Math.sin(i + 1));
        for (const mutant of MUTANTS) {
          const change = mutant.change(steps);
          if (!change) continue;
          applied.add(mutant);
          assert.equal(changed(steps, change).all(heads).length, heads.length, mutant.id);
        }
      }),
      drawn(600),
    );
    assert.ok(planned >= drawn(600).numRuns / 3, `${planned} planned`);
    if (FUZZ === 10) assert.ok(applied.size >= MUTANTS.length - 3, `${applied.size} applied`);
  });
  test('leaves a call alone that lacks what it needs', async () => {
    const [{ call, part }] = (await callsOf(
      pasted('ROPE(type=f32,ne_a=[2,1,1,1],n_dims=2,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0,pos=[0])'),
    )) as [Probe];
    const could = (id: string): boolean => mutantNamed(id).change(new RopeSteps(call.plan, part)) !== undefined;
    for (const id of [
      'pairs-interleaved-for-half',
      'yarn-betas-swapped',
      'position-in-int16',
      'position-plus-head',
      'norm-missing',
    ])
      assert.ok(!could(id), id);
    for (const id of ['position-plus-one', 'cos-and-sin-swapped', 'rotated-twice']) assert.ok(could(id), id);
  });
});

describe('scoring', () => {
  const scoreOf = async (cases: ConformanceCase[], id: string) =>
    (await scoreVectors(cases, [mutantNamed(id)])).mutants[0]!;

  test('names the first case that failed, the smallest first', async () => {
    const small = pasted(plain(',pos=[1,2,3]'));
    const score = await scoreOf([publishedCases()[0]!, small], 'position-plus-one');
    assert.equal(score.outcome, 'killed');
    assert.equal(score.outcome === 'killed' && score.by.label, small.label);
    assert.match(score.outcome === 'killed' ? score.by.detail : '', /NMSE = 0\.\d+ > 0\.000000100/);
  });
  test('distinguishes what could not go wrong from what survived, and says why', async () => {
    const cases = [pasted(plain(',pos=[0,0,0]')), pasted(plain(',pos=[1,2,300]'))];
    assert.deepEqual(await scoreOf(cases, 'yarn-betas-swapped'), {
      mutant: mutantNamed('yarn-betas-swapped'),
      applies: 0,
      outcome: 'idle',
      reason: 'no-case',
      why: 'no case has YaRN, two different betas, an original context and a factor other than 1',
    });
    const zero = await scoreOf(cases.slice(0, 1), 'frequencies-in-f16');
    assert.deepEqual([zero.outcome, zero.applies, 'reason' in zero && zero.reason], ['survived', 1, 'no-case']);
    assert.equal(
      'why' in zero && zero.why,
      'it applies in 1 of 1 cases, with positions up to 0, and changes nothing there',
    );
    const close = await scoreOf(cases, 'angle-recurrence-in-f32');
    assert.deepEqual([close.outcome, 'reason' in close && close.reason], ['survived', 'tolerance']);
    assert.match(
      'why' in close ? close.why : '',
      /^it applies in 2 of 2 cases, with positions up to 300, and changes their output by an NMSE of at most \d\.\de-1\d, which they tolerate \(judged there: NMSE .+\)$/,
    );
  });
  test('says what cannot happen to an operator, and what another case of it would show', async () => {
    const why = async (id: string, ...names: string[]): Promise<readonly [string, string]> => {
      const cases = names.flatMap((name) => vectorCases(vectorFolder(join(VECTORS, name))));
      const score = await scoreOf(cases, id);
      return 'reason' in score ? [score.reason, score.why] : assert.fail(`${id} is killed by ${names}`);
    };
    assert.deepEqual(await why('base-default', 'onnx'), [
      'cannot-happen',
      'it cannot happen: the kernel is given its table, and this bug needs a table that the kernel computes and a base other than 10000',
    ]);
    assert.deepEqual(await why('shift-skipped', 'infiniop'), [
      'cannot-happen',
      'it cannot happen: the kernel is given its table, and this bug needs a negative position, as a shift of cached keys has',
    ]);
    assert.deepEqual(await why('llama3-ignored', 'llaisys'), [
      'cannot-happen',
      'it cannot happen: LLAISYS’s rope cannot be asked for llama3 scaling',
    ]);
    assert.deepEqual(await why('norm-missing', 'onnx', 'llaisys'), [
      'cannot-happen',
      'it cannot happen: LLAISYS’s rope cannot be asked for a norm before the rotation; ONNX’s RotaryEmbedding cannot be asked for a norm before the rotation',
    ]);
    assert.deepEqual(await why('window-at-start', 'llaisys', 'huggingface'), [
      'no-case',
      'no case has a rotated window that starts past dimension 0 (in 9 of 22 it cannot happen)',
    ]);
    assert.deepEqual(await why('table-ends', 'infiniop'), ['no-case', 'no case has a position beyond 4095']);
    const [reason, words] = await why('output-rounded-down', 'llaisys');
    assert.equal(reason, 'tolerance');
    assert.match(words, /by an NMSE of at most \d\.\de-\d, which they tolerate \(judged there: max error .+\)$/);
  });
  test('an operator that lacks something has no case of it, so nothing that can happen is said not to', async () => {
    for (const name of ['ggml', 'onnx', 'infiniop', 'llaisys', 'huggingface']) {
      for (const one of vectorCases(vectorFolder(join(VECTORS, name)))) {
        for (const { call, part } of await callsOf(one)) {
          const given = call.plan.source === undefined;
          const steps = new RopeSteps(call.plan, part);
          for (const mutant of MUTANTS)
            if (mutant.change(steps))
              assert.equal(whyNever(mutant, one.suite, given), undefined, `${one.label}: ${mutant.id}`);
        }
      }
    }
  });
  test('does not count what the right kernel does not pass', async () => {
    const broken: ConformanceCase = {
      suite: 'broken',
      label: 'ROPE(broken)',
      async run(runner) {
        await pasted(plain()).run(runner);
        return { status: 'fail', detail: 'the expected file is wrong' };
      },
    };
    const score = await scoreVectors([broken], [mutantNamed('position-plus-one')]);
    assert.deepEqual(score.leftOut, [
      { suite: 'broken', label: 'ROPE(broken)', why: 'the right kernel does not pass it: the expected file is wrong' },
    ]);
    assert.deepEqual([score.cases, score.rotating, score.mutants[0]!.outcome], [1, 1, 'idle']);
    assert.equal('why' in score.mutants[0]! && score.mutants[0].why, 'no case rotates');
  });
  test('does not take a mutant’s own error for a kill', async () => {
    const thrower: Mutant = {
      ...mutantNamed('rotated-twice'),
      change: () => ({ turn: () => assert.fail('a bug of ours') }),
    };
    await assert.rejects(scoreVectors([pasted(plain())], [thrower]), /a bug of ours/);
  });
  test('of no cases misses everything', async () => {
    const score = await scoreVectors([], MUTANTS);
    assert.ok(score.mutants.every(({ outcome }) => outcome === 'idle'));
  });
});

describe('ropewalk mutants', () => {
  const root = fileURLToPath(new URL('../../..', import.meta.url));
  const folder = mkdtempSync(join(tmpdir(), 'mutants-'));
  after(() => rmSync(folder, { recursive: true }));
  async function ropewalk(...args: string[]) {
    const { status, stdout, stderr } = await ropewalkIn(root, 'mutants', ...args);
    return { status, stdout, stderr, lines: stdout.trimEnd().split('\n') };
  }

  test('scores a folder: exit 1, a row for each cause, each missed bug with its reason, the verdict last', async () => {
    const { status, stdout, stderr, lines } = await ropewalk('--vectors', join(VECTORS, 'onnx'));
    assert.equal(status, 1, stderr);
    assert.match(lines.at(-1)!, /^these vectors kill (\d+) of (\d+) known bugs; (\d+) missed$/);
    const [killed, all, missed] = lines.at(-1)!.match(/\d+/g)!.map(Number);
    assert.equal(all, MUTANTS.length);
    assert.equal(killed! + missed!, all);
    assert.equal(lines.filter((line) => /^ {4}missed: /.test(line)).length, missed);
    let sum = 0;
    for (const [cause, words] of Object.entries(CAUSES)) {
      const row = lines.find((line) => line.startsWith(`${cause}  ${words}`)) ?? assert.fail(cause);
      sum += Number(row.match(/(\d+) +\d+$/)![1]);
    }
    assert.equal(sum, killed);
    assert.match(
      stdout,
      /^ {2}yarn-betas-swapped \(E\)\n.*\n {4}pytorch\/torchtitan#3787\n {4}missed: it cannot happen: the kernel is given its table, and this bug needs YaRN/m,
    );
    assert.ok(!stdout.includes('\u001b'), 'no terminal codes in a pipe');
    const row =
      page.split('\n').find((line) => line.startsWith('| `vectors/onnx` | 14 |')) ??
      assert.fail('docs/mutants.md has no row for onnx');
    assert.ok(row.endsWith(`| ${killed} | ${missed} |`), row);
  });
  const page = readFileSync(join(root, 'docs', 'mutants.md'), 'utf8');
  test('docs/mutants.md has a row for each', () => {
    const rows = [...page.matchAll(/^\| `([a-z][a-z0-9-]+)` \|/gm)].map((match) => match[1]);
    assert.deepEqual(
      rows,
      MUTANTS.map(({ id }) => id),
    );
  });
  test('--json: a line for each mutant, then the summary', async () => {
    const { status, lines } = await ropewalk('--json', '--vectors', join(VECTORS, 'onnx'));
    assert.equal(status, 1);
    const parsed = lines.map((line) => JSON.parse(line));
    assert.equal(parsed.length, MUTANTS.length + 1);
    const killed = parsed.filter((line) => line.outcome === 'killed').length;
    for (const { id, outcome, reason, why } of parsed.slice(0, -1)) {
      if (outcome === 'killed') assert.equal(reason, undefined, id);
      else
        assert.match(
          `${reason} ${why}`,
          /^(cannot-happen it cannot happen: |no-case no case |tolerance it applies )/,
          id,
        );
    }
    assert.deepEqual(parsed.at(-1), {
      summary: { killed, missed: MUTANTS.length - killed, cases: 14, rotating: 14, leftOut: [] },
    });
    assert.deepEqual(Object.keys(parsed.find((line) => line.outcome === 'killed').by), ['suite', 'label', 'detail']);
  });
  test('--list: every entry, by cause', async () => {
    const { status, stdout, lines } = await ropewalk('--list');
    assert.equal(status, 0);
    assert.equal(lines.at(-1), `${MUTANTS.length} known bugs`);
    for (const { id, does } of MUTANTS) assert.ok(stdout.includes(`   ${id}\n      ${does}\n`), id);
  });
  test('wrong usage: exit 2 and the next step', async () => {
    const empty = join(folder, 'empty');
    mkdirSync(empty);
    const still = join(folder, 'still');
    mkdirSync(still);
    const manifest = JSON.parse(readFileSync(join(VECTORS, 'ggml', 'manifest.json'), 'utf8'));
    writeFileSync(join(still, 'manifest.json'), JSON.stringify({ ...manifest, cases: [] }));
    const lost = join(folder, 'lost');
    mkdirSync(lost);
    writeFileSync(join(lost, 'manifest.json'), JSON.stringify({ ...manifest, cases: manifest.cases.slice(0, 1) }));
    const cases: [MutantsOptions, RegExp][] = [
      [{ vectors: join(folder, 'nowhere') }, /nowhere: there is no such folder/],
      [{ vectors: empty }, /empty: it has no manifest\.json/],
      [{ vectors: still }, /--vectors: the right kernel passes no case that rotates \(0 cases, 0 rotate\)/],
      [{ vectors: lost }, /lost\/.*: there is no such file/],
      [{ list: true, vectors: empty }, /--vectors.*--list/],
      [{ list: true, filter: 'x' }, /--filter.*--list/],
      [{ filter: '(' }, /--filter: expected a regular expression, got "\("/],
      [{ filter: 'nothing-like-it' }, /--filter: expected a pattern that matches one of \d+ cases/],
    ];
    for (const [options, message] of cases) await assert.rejects(mutants(options), { name: 'RopewalkError', message });
    for (const args of [
      ['--vectors', empty],
      ['--vector', empty],
    ]) {
      const { status, stdout, stderr } = await ropewalk(...args);
      assert.equal(status, 2, args.join(' '));
      assert.match(stderr, /empty: it has no manifest\.json|unknown option/);
      assert.equal(stdout, '');
    }
  });
});
