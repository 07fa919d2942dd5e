import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type KernelName, type KernelRun, runRopeKernel } from '../src/index.js';
import { chromeTrace } from '../src/timeline/chrome-trace.js';
import { type TimelineOptions, timelineSvg } from '../src/timeline/svg.js';

function run(kernel: KernelName, seq = 4): KernelRun {
  const shape = [1, seq, 2, 64] as const;
  const view = () => ({ data: new Float32Array(seq * 128).fill(1), shape, strides: [seq * 128, 128, 64, 1] as const });
  const table = new Float32Array((seq + 1) * 32).fill(0.5);
  return runRopeKernel({
    kernel,
    dtype: 'f32',
    pairing: 'interleaved',
    x: view(),
    y: view(),
    positions: Int32Array.from({ length: seq }, (_, n) => n),
    sin: table,
    cos: table,
    record: [0],
  });
}

interface Event {
  readonly ph: string;
  readonly name: string;
  readonly cat?: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts?: number;
  readonly dur?: number;
  readonly args: Record<string, unknown>;
}

describe('chrome trace', () => {
  for (const kernel of ['baseline', 'correct', 'fast'] as const) {
    test(`${kernel}: every recorded instruction on the thread of its queue, in microseconds of the chip's clock`, () => {
      const recorded = run(kernel);
      const { traceEvents } = JSON.parse(chromeTrace(recorded)) as { traceEvents: Event[] };
      const instructions = recorded.blocks[0]!.instructions!;
      const slices = traceEvents.filter(({ ph }) => ph === 'X');
      assert.equal(slices.length, instructions.length);
      const threads = new Map(
        traceEvents.filter(({ name }) => name === 'thread_name').map(({ tid, args }) => [tid, args.name]),
      );
      assert.deepEqual([...threads.values()], ['S', 'V', 'MTE2', 'MTE3']);
      for (const [n, slice] of slices.entries()) {
        const one = instructions[n]!;
        assert.equal(threads.get(slice.tid), one.queue);
        assert.equal(slice.cat, one.queue);
        assert.ok(Math.abs(slice.ts! * recorded.clockGHz * 1000 - one.start) < 1e-6);
        assert.ok(slice.dur! >= 0);
        assert.equal(slice.args.line, one.line);
      }
    });
  }

  test('one queue does one thing at a time', () => {
    const { traceEvents } = JSON.parse(chromeTrace(run('fast', 32))) as { traceEvents: Event[] };
    for (const tid of [0, 1, 2, 3]) {
      const slices = traceEvents.filter((event) => event.ph === 'X' && event.tid === tid).sort((a, b) => a.ts! - b.ts!);
      for (const [n, slice] of slices.entries()) {
        const next = slices[n + 1];
        if (next) assert.ok(slice.ts! + slice.dur! <= next.ts! + 1e-9, `${slice.name} ends after ${next.name} begins`);
      }
    }
  });
});

describe('svg', () => {
  test('a lane for each queue; bars are inside the picture; names are escaped', () => {
    const recorded = run('baseline');
    const svg = timelineSvg({ ...recorded, kernel: 'a<b&c' });
    assert.match(svg, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"/);
    assert.ok(!svg.includes('a<b') && svg.includes('a&lt;b&amp;c'));
    for (const queue of ['S', 'V', 'MTE2', 'MTE3']) assert.ok(svg.includes(`>${queue}</text>`), queue);
    const bars = [...svg.matchAll(/<rect x="([\d.]+)" y="\d+" width="([\d.]+)" height="40"/g)];
    assert.ok(bars.length > 10, String(bars.length));
    for (const [, x, width] of bars)
      assert.ok(Number(x) >= 64 && Number(x) + Number(width) <= 1184.6, `${x} + ${width}`);
  });

  test('from and to choose the cycles: what ends before or starts after is not drawn', () => {
    const recorded = run('baseline');
    const instructions = recorded.blocks[0]!.instructions!;
    const [from, to] = [2000, 2600];
    const inside = instructions.filter(({ start, end }) => end > from && start < to).length;
    const svg = timelineSvg(recorded, { fromCycle: from, toCycle: to });
    assert.equal([...svg.matchAll(/<g data-index="\d+"><title>/g)].length, inside);
    assert.ok(svg.includes('cycles 2000 to 2600'));
  });

  test('a merge is one bar from wait to wait: GetValue and SetValue of a line, and what the scalar unit waited for', () => {
    for (const kernel of ['baseline', 'correct'] as const) {
      const merges = run(kernel, 1).blocks[0]!.instructions!.filter(({ line }) => line.startsWith('compute: merge'));
      // Each of 32 pairs is read twice and written twice. The merge waits for Sub, and for Add if that still runs.
      assert.equal(
        merges.reduce((sum, { count }) => sum + count, 0),
        4 * 32,
      );
      assert.ok(merges.length <= 2, `${kernel}: ${merges.length}`);
      assert.equal(merges.at(-1)!.name, 'GetValue, SetValue');
      assert.match(merges[0]!.waitsFor?.why ?? '', /automatic V → S/);
      const svg = timelineSvg(run(kernel, 1));
      assert.match(svg, /GetValue, SetValue × 1\d\d/);
      assert.match(svg, /waited for automatic V → S/);
    }
  });

  test('each instruction has its own colour, the same in every picture', () => {
    const colorsOf = (svg: string) =>
      [...svg.matchAll(/width="12" height="12" fill="(#\w+)"\/><text [^>]*>([^<]*)</g)].map(([, c, n]) => [n!, c!]);
    const all = (['baseline', 'correct', 'fast'] as const).flatMap((kernel) => colorsOf(timelineSvg(run(kernel))));
    const byName = new Map(all as [string, string][]);
    assert.ok(byName.size > 10, String(byName.size));
    for (const [name, color] of all) assert.equal(byName.get(name!), color);
    assert.equal(new Set(byName.values()).size, byName.size);
  });

  test('its figures are those of the block that is drawn', () => {
    const uneven = run('correct', 21); // with 42 rows on 40 cores, blocks have one row or two
    const drawn = uneven.blocks[0]!;
    assert.notEqual(drawn.cycles, uneven.blocks[uneven.slowest]!.cycles);
    assert.ok(timelineSvg(uneven).includes(`S ${Math.round((100 * drawn.busy.S) / drawn.cycles)} %,`));
  });

  test('cycles that give an empty picture are refused', () => {
    const recorded = run('fast');
    const refused = (options: TimelineOptions, message: RegExp) =>
      assert.throws(() => timelineSvg(recorded, options), { code: 'RANGE', message });
    refused({ fromCycle: -1 }, /^aicore: fromCycle: expected a cycle >= 0 and <= 2\^40, got -1/);
    refused({ fromCycle: 1e17 }, /^aicore: fromCycle/);
    refused({ fromCycle: Number.NaN }, /^aicore: fromCycle/);
    refused({ fromCycle: 500, toCycle: 500 }, /^aicore: toCycle: expected a cycle > 500 and <= 2\^40, got 500/);
    refused({ toCycle: Number.POSITIVE_INFINITY }, /^aicore: toCycle/);
  });

  test('a run without a record is an empty picture, not an error', () => {
    const { blocks, ...rest } = run('fast');
    const bare = { ...rest, blocks: blocks.map(({ instructions: _, ...block }) => block) };
    assert.ok(timelineSvg(bare).endsWith('</svg>\n'));
  });
});
