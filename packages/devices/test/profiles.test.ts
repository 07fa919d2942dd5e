/** Checks that every rule of every profile can be kept and broken, and has words and a source. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type AttentionUse, DEVICES, deviceNamed, type RopeUse } from '../src/index.js';
import type { DeviceUse } from '../src/profile.js';

const ROPE: RopeUse = {
  op: 'rope',
  dtype: 'f16',
  tables: 'f16',
  tablesOf: 'token',
  layout: 'bsnh',
  batch: 1,
  seq: 512,
  heads: 32,
  kHeads: 8,
  headDim: 128,
  rotaryDim: 128,
  rotaryOffset: 0,
  pairing: 'half',
  ramp: false,
  freqFactors: false,
  attentionFactor: 1,
  attnFactor: 1,
  axes: 1,
  batchPositions: false,
  contiguous: true,
  fixedShapes: true,
};
/** A call that aclnnInplacePartialRotaryMul takes on 950: it differs from ROPE in more fields than `near` changes. */
const PARTIAL_950: RopeUse = { ...ROPE, pairing: 'interleaved', tablesOf: 'head' };
const ATTENTION: AttentionUse = {
  op: 'attention',
  dtype: 'f16',
  batch: 1,
  seq: 512,
  total: 512,
  heads: 32,
  kvHeads: 8,
  headDim: 128,
  valueDim: 128,
  window: undefined,
  softcap: false,
  sinks: false,
};

/** Other values of each field, which some devices take and some do not. */
const OTHERS: { readonly [K in keyof RopeUse | keyof AttentionUse]?: readonly unknown[] } = {
  dtype: ['f32', 'bf16', 'f64'],
  tables: ['f32', 'bf16', 'f64', undefined],
  tablesOf: ['batch', 'head'],
  layout: ['bnsh', 'sbnh', 'tnh'],
  batch: [2, 64, 900, 1000],
  seq: [1, 2, 70000],
  total: [513, 70000],
  heads: [1, 3, 8, 900, 1000],
  kvHeads: [1, 32],
  headDim: [20, 64, 65, 80, 100, 192, 576, 896, 1024, 2048],
  valueDim: [64, 512],
  rotaryDim: [2, 20, 64],
  rotaryOffset: [64],
  pairing: ['interleaved', 'quarter', 'vision', 'interleaved-to-half'],
  ramp: [true],
  freqFactors: [true],
  attentionFactor: [1.4245],
  attnFactor: [1.4245],
  axes: [3, 4],
  batchPositions: [true],
  contiguous: [false],
  fixedShapes: [false],
  window: [128],
  softcap: [true],
  sinks: [true],
};

/** Yields the use, and those that differ from it in at most `most` fields. A head that rotates as a whole stays so. */
function* near<Use extends DeviceUse>(use: Use, most: number, from = 0): Generator<Use> {
  yield use;
  if (most === 0) return;
  const fields = Object.entries(OTHERS);
  for (let f = from; f < fields.length; f++) {
    const [field, values] = fields[f]!;
    if (!(field in use)) continue;
    for (const value of values) {
      const next = { ...use, [field]: value };
      if (next.op === 'rope' && field === 'headDim') Object.assign(next, { rotaryDim: value });
      yield* near(next, most - 1, f + 1);
    }
  }
}

describe('profiles', () => {
  test('names are apart, and words of the command line', () => {
    const names = DEVICES.map(({ name }) => name);
    assert.equal(new Set(names).size, names.length);
    for (const name of names) assert.match(name, /^[a-z0-9]+(-[a-z0-9]+)*$/);
    for (const device of DEVICES) assert.equal(deviceNamed(device.name), device);
  });

  test('another name is refused with the names that there are', () => {
    assert.throws(() => deviceNamed('cann-2023'), {
      code: 'UNSUPPORTED',
      message: /^device: expected .*cann-2024.*, got "?cann-2023/,
    });
  });

  for (const { name, sources, operators } of DEVICES) {
    test(`${name} has sources and rules`, () => {
      assert.ok(sources.length > 0 && operators.length > 0);
    });
    for (const operator of operators) {
      for (const rule of operator.rules) {
        test(`${name}, ${operator.name}: ${rule.words}: one call keeps it, and one breaks only it`, () => {
          assert.ok(rule.words.length > 0 && rule.source.length > 0);
          const rules = operator.rules as readonly { holds(use: DeviceUse): boolean }[];
          const broken = (use: DeviceUse) => rules.filter(({ holds }) => !holds(use));
          const starts: DeviceUse[] = operator.op === 'rope' ? [ROPE, PARTIAL_950] : [ATTENTION];
          let kept: DeviceUse | undefined;
          let breaks: DeviceUse | undefined;
          for (const first of starts)
            for (const use of near(first, 3)) {
              const wrong = broken(use);
              if (wrong.length === 0) kept ??= use;
              if (wrong.length === 1 && (wrong[0] as unknown) === rule) breaks ??= use;
              if (kept && breaks) return;
            }
          assert.ok(kept, 'a call that keeps every rule');
          assert.fail('no call breaks only this rule');
        });
      }
    }
  }
});
