/**
 * Reads configs beside transformers' own rotary classes, of version 5 and of version 4: frequencies, attention factor,
 * dimensions, layer types; and whether the note about transformers 4 is there where the two versions differ.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import { frequenciesOf, RopewalkError } from 'ropewalk';
import { noPython, runPython } from '../../../test/support/python.js';
import { drawn } from '../../../test/support/size.js';
import { ropeFromConfig } from '../src/huggingface.js';
import type { ModelRope } from '../src/model-rope.js';
import { type Case, drawnCase, PUBLISHED } from './transformers-configs.js';

/** The answer of scripts/python/rope_judge.py. */
interface Answer {
  readonly error?: string;
  readonly layerTypes: readonly string[] | null;
  readonly ropes: Readonly<
    Record<string, { readonly invFreq: number[]; readonly invFreq32: number[]; readonly attentionScaling: number }>
  >;
  readonly saved: unknown;
}

/** Counts the f32 numbers between two numbers that are not negative. */
function ulps(a: number, b: number): number {
  const [x, y] = new Int32Array(Float32Array.of(a, b).buffer);
  return Math.abs(x! - y!);
}

/** Lists how a model differs from an answer, layer by layer. */
function differences({ layers }: ModelRope, { layerTypes, ropes }: Answer): string[] {
  const found = new Set<string>();
  for (const { layer, layerType, rope } of layers) {
    const type = layerTypes?.[layer];
    if (type !== undefined && layerType !== undefined && type !== layerType)
      found.add(`layer ${layer} is ${layerType}, not ${type}`);
    if (!rope) continue;
    const theirs = ropes[''] ?? ropes[type ?? layerType ?? ''];
    assert.ok(theirs, `a rotary object for ${type ?? layerType}`);
    const { invFreq, attentionFactor } = frequenciesOf(rope);
    const pairs = theirs.invFreq.length;
    if (invFreq.length !== pairs) found.add(`${type}: ${invFreq.length} pairs, not ${pairs}`);
    else if (theirs.invFreq.some((value, j) => ulps(value, invFreq[j]!) > 1)) found.add(`${type}: frequencies`);
    // torch rounds the exponent, whose error grows by ln θ, and then each step. YaRN and Llama 3 mix two frequencies
    // by a ramp as steep as they like, which multiplies that error.
    const mixes = rope.scaling?.kind === 'yarn' || rope.scaling?.kind === 'llama3';
    const torch = (Math.log(rope.base) + 16) * 2 ** -24;
    const inTorch = theirs.invFreq.every((value, j) => Math.abs(value - theirs.invFreq32[j]!) <= torch * value);
    assert.ok(mixes || inTorch, 'float32 and float64 in place of it');
    if (Math.abs(attentionFactor - theirs.attentionScaling) > 1e-12 * attentionFactor)
      found.add(`${type}: attention factor`);
  }
  return [...found];
}

/** Checks one case; returns whether transformers 5 read it. */
function check({ name, config, context }: Case, five: Answer, four: Answer): boolean {
  const read = (json: unknown) => ropeFromConfig(json, { context });
  if (five.error !== undefined) {
    try {
      read(config);
    } catch (error) {
      assert.ok(error instanceof RopewalkError, `${error}`);
    }
    return false;
  }
  const ours = read(config);
  assert.deepEqual(differences(ours, five), [], `${name} and transformers 5`);
  assert.deepEqual(differences(read(five.saved), five), [], `${name} as transformers 5 saves it`);
  if (four.error === undefined) {
    const note = ours.notes.some((sentence) => sentence.startsWith('transformers 4 reads this file differently: '));
    const apart = differences(ours, four).length > 0;
    assert.ok(note || !apart, `${name}: transformers 4 reads it differently, and no note says so`);
    // With these scalings, other contexts may show the difference.
    const byContext = ours.layers.some(({ rope }) => /dynamicNtk|longrope/.test(rope?.scaling?.kind ?? ''));
    if (!byContext) assert.ok(apart || !note, `${name}: the note is wrong, transformers 4 reads it alike`);
    // It keeps rope_parameters, which it does not read, beside its own defaults.
    const isOld = !JSON.stringify(config).includes('rope_parameters');
    if (!apart && isOld)
      assert.deepEqual(differences(read(four.saved), four), [], `${name} as transformers 4 saves it`);
  }
  return true;
}

describe('beside transformers 5 and 4', { skip: noPython }, () => {
  const { numRuns, seed } = drawn(200);
  const random = fc.sample(drawnCase, { numRuns, seed });
  const cases = [...PUBLISHED, ...random];
  let answers: Answer[][] = [];
  before(() => {
    const folder = mkdtempSync(join(tmpdir(), 'transformers-'));
    const path = join(folder, 'cases.json');
    writeFileSync(path, JSON.stringify(cases.map(({ config, context }) => ({ config, context }))));
    answers = (['v5', 'v4'] as const).map((version) => JSON.parse(runPython('rope_judge.py', [path], version)).answers);
    rmSync(folder, { recursive: true });
  });
  /** Checks the cases; returns how many of them transformers 5 takes. */
  const taken = (some: readonly Case[], from: number): number =>
    some.filter((one, n) => check(one, answers[0]![from + n]!, answers[1]![from + n]!)).length;

  test(`${PUBLISHED.length} published configs`, () => {
    // transformers has no MiniCPM, GPT-J's class keeps no frequencies, and this Ministral does not name its vision part.
    assert.equal(taken(PUBLISHED, 0), PUBLISHED.length - 3);
  });

  test(`${numRuns} drawn configs`, () => {
    const count = taken(random, PUBLISHED.length);
    assert.ok(count >= 0.8 * numRuns, `transformers 5 takes ${count} of ${numRuns}`);
  });
});
