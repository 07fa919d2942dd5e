/** Checks the calibration of microseconds, by repeating the fit on the public device rows, and the search for a tiling. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { calibrate } from '../src/calibration.js';
import { CHIPS, measureRopeKernel } from '../src/index.js';
import { prepareRope } from '../src/measure.js';
import { searchTiling } from '../src/search.js';
import { TIME } from '../src/time.js';

describe('calibration', () => {
  const { fit, rows, withoutCycles } = calibrate();

  test('the constants are those of the fit', () => {
    assert.deepEqual([fit.task.toFixed(2), fit.factor.toFixed(2)], [TIME.task.toFixed(2), TIME.factor.toFixed(2)]);
    assert.ok(fit.task > 4 && fit.task < 8, 'a task costs about 6 µs');
    assert.ok(fit.factor >= 1, 'the device is not faster than the published costs');
  });

  test('each row, predicted from the other 12, is within 35 %, and the band holds them all', () => {
    assert.equal(rows.length, 13);
    for (const { name, error } of rows) assert.ok(Math.abs(error) <= 0.35, `${name}: ${error}`);
    const most = Math.max(...rows.map(({ error }) => Math.abs(error)));
    assert.equal(TIME.band.toFixed(2), most.toFixed(2));
  });

  test('cycles predict better than a constant for each pairing', () => {
    const worst = (errors: readonly number[]) => (100 * Math.max(...errors.map(Math.abs))).toFixed(0);
    assert.deepEqual([worst(rows.map(({ error }) => error)), worst(withoutCycles)], ['22', '42']);
    assert.equal(withoutCycles.filter((error) => Math.abs(error) <= 0.35).length, 12);
  });

  test('no row reaches the shared limit of memory, so the fit cannot see it', () => {
    for (const { name, shape, cycles } of rows) {
      const bytes = 2 * 2 * shape.reduce((product, n) => product * n, 1);
      const work = (cycles * TIME.factor) / (CHIPS['910B2'].clockGHz * 1000);
      assert.ok(bytes / TIME.sharedBytes < work, name);
    }
  });
});

test('microseconds: a task, then cycles by the clock; a chip of fewer gigahertz takes longer', () => {
  const call = { shape: [1, 16, 8, 64], dtype: 'f16', pairing: 'half', rotaryDim: 64, base: 10000 } as const;
  const rope = prepareRope({ ...call, batchPositions: false, tableLen: 16 });
  const [b3, b4] = [rope.measure('fast', { chip: '910B3' }).run, rope.measure('fast', { chip: '910B4' }).run];
  assert.equal(b3.cycles, b4.cycles);
  const work = (run: typeof b3) => (run.microseconds! - TIME.task) * run.clockGHz;
  assert.ok(Math.abs(work(b3) - work(b4)) < 1e-9 && b4.microseconds! > b3.microseconds!);
});

test('a band is given for runs like the measured rows, and for no other', () => {
  const given = { shape: [1, 4, 64, 128], dtype: 'f16', pairing: 'half', rotaryDim: 128, base: 10000 } as const;
  const bandOf = (
    changed: object,
    how: Parameters<typeof measureRopeKernel>[2],
    kernel: 'fast' | 'correct' = 'fast',
  ) => {
    const call = { ...given, tableDtype: 'f32', batchPositions: false, tableLen: 200, ...changed } as const;
    const { microseconds, microsecondsBand } = measureRopeKernel(kernel, call, how).run;
    return typeof microsecondsBand === 'object' ? microsecondsBand.map((n) => n / microseconds!) : microsecondsBand;
  };
  const measured = { chip: '910B2', tiling: { buffers: 1 } } as const;
  const band = bandOf({}, measured) as number[];
  for (const [n, share] of [1 - TIME.band, 1 + TIME.band].entries()) assert.ok(Math.abs(band[n]! - share) < 1e-9);
  const others = [
    bandOf({}, measured, 'correct'),
    bandOf({}, { chip: '910B2' }),
    bandOf({}, { tiling: { buffers: 1 } }),
    bandOf({ tableDtype: 'f16' }, measured),
    bandOf({ pairing: 'interleaved' }, measured),
    bandOf({ dtype: 'f32' }, measured),
    bandOf({ shape: [1, 128, 64, 128] }, measured),
  ];
  assert.deepEqual(others, Array(7).fill('extrapolated'));
});

test('search: never worse than its own choice, repeatable, and above the limit', () => {
  const call = { shape: [1, 16, 8, 64], dtype: 'f16', pairing: 'half', rotaryDim: 64, base: 10000 } as const;
  const given = { ...call, batchPositions: false, tableLen: 16 };
  for (const kernel of ['fast', 'correct'] as const) {
    let tries = 0;
    const found = searchTiling(kernel, given, { cores: 8, onTry: () => tries++ });
    assert.equal(found.tried.length, tries);
    assert.ok(found.measured.run.cycles <= found.tried[0]!.cycles);
    assert.equal(found.measured.run.cycles, Math.min(...found.tried.map(({ cycles }) => cycles)));
    assert.ok(found.limitCycles < found.measured.run.cycles);
    assert.deepEqual(searchTiling(kernel, given, { cores: 8 }).tried, found.tried);
    const again = measureRopeKernel(kernel, given, { cores: 8, tiling: found.best });
    assert.equal(again.run.cycles, found.measured.run.cycles);
  }
});
