/** Microseconds: the fit on the public device rows, repeated; and the search for a tiling. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  CHIPS,
  calibrate,
  measureRopeKernel,
  prepareRope,
  searchTiling,
  TIME,
} from '../../packages/ascend/src/index.js';

describe('calibration', () => {
  const { fit, rows } = calibrate();

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
  const work = (run: typeof b3) => (run.microseconds - TIME.task) * run.clockGHz;
  assert.ok(Math.abs(work(b3) - work(b4)) < 1e-9 && b4.microseconds > b3.microseconds);
  const [low, high] = b3.microsecondsBand;
  assert.deepEqual([low, high], [b3.microseconds * (1 - TIME.band), b3.microseconds * (1 + TIME.band)]);
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
