/**
 * Draws kernels from a grammar: a right kernel, with one to three faults in its steps, on a model, an input and a dtype that
 * are drawn too. The truth about each is known from the draw, and not from the diagnosis. @module
 */
import { type FloatDtype, frequenciesOf, type RopeSpec, roundTo } from 'ropewalk';
import { type RandomStream, randomFrom } from 'ropewalk/internal';
import { MUTANTS } from '../../src/index.js';
import { changed, RopeSteps } from '../../src/kernel/steps.js';
import { runRows } from '../../src/kernel/trial.js';
import { axesOf, callOf } from '../../src/read/expected.js';
import type { Heads } from '../../src/read/observation.js';
import {
  type Aspect,
  type Call,
  callFor,
  exact,
  INPUTS,
  type InputName,
  MODELS,
  type ModelName,
  pairsOf,
  type Rotation,
  type RowAt,
  rotationOf,
  type Stranger,
  type Truth,
} from './kernel.js';

/** A kernel as it is drawn: its rotation, what it does to a pair, and the rows and elements that hold something else. */
interface Drawn {
  rotation: Rotation;
  /** The factors of the four products of a pair, in the order of its two sums; no rotation where they are not all 1. */
  terms: readonly [number, number, number, number];
  /** The factors of cos and sin, where they differ. */
  apart: readonly [cos: number, sin: number] | undefined;
  /** Rows with other contents, and those contents. */
  rows: { is(at: RowAt, call: Call): boolean; write(at: RowAt, call: Call, right: Float64Array): void }[];
  readonly wrong: Set<Aspect>;
}

/** A fault, and the steps that it touches: two faults of a kernel are of different steps. */
interface Fault {
  readonly step: 'frequencies' | 'positions' | 'pairs' | 'direction' | 'magnitude' | 'terms' | 'rows';
  readonly make: (drawn: Drawn, random: RandomStream, spec: RopeSpec) => string;
}

const pick = <T>(random: RandomStream, list: readonly T[]): T => list[random.integer(list.length)]!;

function frequencies(of: (f: readonly number[], random: RandomStream, spec: RopeSpec) => number[]): Fault['make'] {
  return (drawn, random, spec) => {
    drawn.rotation = { ...drawn.rotation, frequency: of(drawn.rotation.frequency, random, spec) };
    drawn.wrong.add('frequencies');
    return 'frequencies';
  };
}

function positions(rule: (random: RandomStream) => Rotation['position'], also: readonly Aspect[] = []): Fault['make'] {
  return (drawn, random) => {
    drawn.rotation = { ...drawn.rotation, position: rule(random) };
    for (const one of ['positions', ...also] as const) drawn.wrong.add(one);
    return 'positions';
  };
}

/** Rows that are chosen by a rule which has a meaning for every shape of x. */
const CHOICES: readonly ((random: RandomStream) => (at: RowAt, call: Call) => boolean)[] = [
  () =>
    ({ seq }, { seq: all }) =>
      seq === all - 1,
  () =>
    ({ head }, { heads }) =>
      head === heads - 1,
  () =>
    ({ head }) =>
      head === 0,
  () =>
    ({ head }) =>
      head % 2 === 1,
  () =>
    ({ seq }) =>
      seq % 2 === 1,
  () =>
    ({ batch }, { batch: all }) =>
      batch === all - 1,
  () =>
    ({ seq }, { seq: all }) =>
      2 * seq >= all,
  (random) => {
    const n = random.integer(97);
    return ({ batch, seq, head }, { seq: tokens, heads }) =>
      (batch * tokens + seq) * heads + head === n % (tokens * heads);
  },
  (random) => {
    const seed = random.integer(1e6);
    return ({ batch, seq, head }) => randomFrom(`${seed} ${batch} ${seq} ${head}`).integer(5) === 0;
  },
];

function rows(
  aspects: readonly Aspect[],
  writeOf: (random: RandomStream) => Drawn['rows'][number]['write'],
): Fault['make'] {
  return (drawn, random) => {
    drawn.rows.push({ is: pick(random, CHOICES)(random), write: writeOf(random) });
    for (const one of ['rows', 'heads', 'elements', ...aspects] as const) drawn.wrong.add(one);
    return 'rows';
  };
}

const over = (call: Call, at: RowAt, of: (i: number) => number, every = 1, first = 0): void => {
  const from = call.at(at.batch, at.seq, at.head);
  for (let i = first; i < call.headDim; i += every) call.y[from + i] = of(i);
};

const FAULTS: Readonly<Record<string, Fault>> = {
  'another base': {
    step: 'frequencies',
    make: (drawn, random, spec) => {
      const base = pick(random, [10000, 500000, 1e6, 12345, 2 * spec.base!, 9000]);
      if (base === spec.base) return '';
      return frequencies(() => [...frequenciesOf({ ...spec, base }).invFreq])(drawn, random, spec);
    },
  },
  'without scaling': {
    step: 'frequencies',
    make: (drawn, random, spec) =>
      spec.scaling
        ? frequencies(() => [...frequenciesOf({ ...spec, scaling: { kind: 'none' } }).invFreq])(drawn, random, spec)
        : '',
  },
  'every frequency by a factor': {
    step: 'frequencies',
    make: frequencies((all, random) => {
      const by = pick(random, [0.5, 2, 0.25, 1.001, 3, 1 / 3, 2 * Math.PI, Math.PI / 180]);
      return all.map((f) => f * by);
    }),
  },
  'each frequency by its own factor': {
    step: 'frequencies',
    make: frequencies((all, random) => all.map((f) => f * (1 + 4e-4 * random.uniform(-1, 1)))),
  },
  'some pairs do not rotate': {
    step: 'frequencies',
    make: (drawn, random, spec) => {
      const step = pick(random, [2, 3, 4]);
      const name = frequencies((all) => all.map((f, j) => (j % step === 1 ? 0 : f)))(drawn, random, spec);
      for (const one of ['elements', 'dimensions'] as const) drawn.wrong.add(one);
      return name;
    },
  },
  'frequencies in another order': {
    step: 'frequencies',
    make: frequencies((all, random) => {
      const by = random.integer(3);
      return all.map((_f, j) => (by === 0 ? all[all.length - 1 - j]! : by === 1 ? all[j ^ 1]! : all[j - (j % 4)]!));
    }),
  },
  'exponents over another dimension': {
    step: 'frequencies',
    make: frequencies((all, random, spec) => {
      const dim = pick(random, [spec.headDim, 2 * all.length - 2, 4 * all.length, all.length]);
      return all.map((_f, j) => spec.base! ** ((-2 * j) / dim));
    }),
  },
  'some pairs backward': {
    step: 'direction',
    make: (drawn) => {
      const { frequency } = drawn.rotation;
      drawn.rotation = { ...drawn.rotation, frequency: frequency.map((f, j) => (j % 2 ? -f : f)) };
      for (const one of ['direction', 'elements', 'positions'] as const) drawn.wrong.add(one);
      return 'direction';
    },
  },
  backward: {
    step: 'direction',
    make: (drawn) => {
      drawn.rotation = { ...drawn.rotation, frequency: drawn.rotation.frequency.map((f) => -f) };
      drawn.wrong.add('direction').add('positions');
      return 'direction';
    },
  },
  'shifted positions': {
    step: 'positions',
    make: positions(
      (random) => {
        const by = pick(random, [1, -1, 2, 17, 100]);
        return (p) => p + by;
      },
      ['frequencies'],
    ),
  },
  'clamped positions': {
    step: 'positions',
    make: positions(
      (random) => {
        const end = pick(random, [7, 255, 4095, 2048]);
        return (p) => Math.min(p, end);
      },
      ['rows'],
    ),
  },
  'wrapped positions': {
    step: 'positions',
    make: positions(
      (random) => {
        const end = pick(random, [8, 256, 4096]);
        return (p) => ((p % end) + end) % end;
      },
      ['rows'],
    ),
  },
  'divided positions': { step: 'positions', make: positions(() => (p) => Math.floor(p / 4), ['frequencies', 'rows']) },
  'positions in bf16': { step: 'positions', make: positions(() => (p) => roundTo('bf16', p), ['rows']) },
  'index for position': {
    step: 'positions',
    make: positions(
      () =>
        (_p, { seq }) =>
          seq,
      ['rows'],
    ),
  },
  'head added to position': {
    step: 'positions',
    make: positions(
      () =>
        (p, { head }) =>
          p + head,
      ['heads', 'rows'],
    ),
  },
  'another pairing': {
    step: 'pairs',
    make: (drawn, random, spec) => {
      const names = ['half', 'interleaved', 'interleaved-to-half', 'half-to-interleaved'];
      const other = pick(
        random,
        names.filter((name) => name !== (spec.pairing === 'vision' ? 'half' : spec.pairing)),
      );
      drawn.rotation = { ...drawn.rotation, pairs: pairsOf(other, 2 * drawn.rotation.pairs.length) };
      for (const one of ['pairing', 'dimensions', 'elements'] as const) drawn.wrong.add(one);
      return 'pairs';
    },
  },
  'a window that starts later': {
    step: 'pairs',
    make: (drawn, _random, spec) => {
      const count = 2 * drawn.rotation.pairs.length;
      if (count >= spec.headDim) return '';
      const pairing = spec.pairing === 'vision' ? 'half' : spec.pairing;
      drawn.rotation = { ...drawn.rotation, pairs: pairsOf(pairing, count, spec.headDim - count) };
      for (const one of ['dimensions', 'pairing', 'elements'] as const) drawn.wrong.add(one);
      return 'pairs';
    },
  },
  'another magnitude': {
    step: 'magnitude',
    make: (drawn, random) => {
      const gain = drawn.rotation.gain as number;
      drawn.rotation = { ...drawn.rotation, gain: gain * pick(random, [2, 0.5, 1.01, 1.1386294, 1 / gain, gain]) };
      drawn.wrong.add('magnitude');
      return 'magnitude';
    },
  },
  'cos alone longer': {
    step: 'magnitude',
    make: (drawn, random) => {
      const by = pick(random, [1.1386294, 0.9]);
      drawn.apart = random.integer(2) ? [by, 1] : [1, by];
      for (const one of ['magnitude', 'elements'] as const) drawn.wrong.add(one);
      return 'magnitude';
    },
  },
  'a term left out or with a wrong sign': {
    step: 'terms',
    make: (drawn, random) => {
      const terms: [number, number, number, number] = [1, 1, 1, 1];
      terms[random.integer(4)] = pick(random, [0, -1]);
      drawn.terms = terms;
      for (const one of ['elements', 'pairing', 'direction'] as const) drawn.wrong.add(one);
      return 'terms';
    },
  },
  'rows of zeros': { step: 'rows', make: rows([], () => (at, call) => over(call, at, () => 0)) },
  'rows of NaN': { step: 'rows', make: rows([], () => (at, call) => over(call, at, () => Number.NaN)) },
  'rows of x': {
    step: 'rows',
    make: rows(['input'], () => (at, call) => over(call, at, (i) => call.x[call.at(at.batch, at.seq, at.head) + i]!)),
  },
  'rows of other values': {
    step: 'rows',
    make: rows([], (random) => {
      const seed = random.integer(1e6);
      return (at, call) => {
        const values = randomFrom(`${seed} ${at.batch} ${at.seq} ${at.head}`);
        over(call, at, () => roundTo(call.dtype, values.uniform(-3, 3)));
      };
    }),
  },
  'single elements of other values': {
    step: 'rows',
    make: rows([], (random) => {
      const first = random.integer(7);
      const every = pick(random, [8, 31, 64]);
      return (at, call) => over(call, at, (i) => roundTo(call.dtype, 5 + i / 8), every, first);
    }),
  },
  'rows of the token before': {
    step: 'rows',
    make: rows(['input'], () => ({ batch, seq, head }, call, right) => {
      const from = call.at(batch, Math.max(0, seq - 1), head);
      over(call, { batch, seq, head }, (i) => right[from + i]!);
    }),
  },
};

const DTYPES: readonly FloatDtype[] = ['f32', 'f32', 'f32', 'f16', 'bf16', 'f64'];

/** The output of a drawn kernel on any call, before its rounding. */
function outputOf({ rotation, terms, apart, rows: odd }: Drawn, call: Call): Float64Array {
  const plain = exact(call, rotation);
  if (apart || terms.some((one) => one !== 1)) pairByPair(plain, call, rotation, terms, apart ?? [1, 1]);
  const y = Float64Array.from(plain);
  const own = { ...call, y };
  for (const { is, write } of odd) for (const at of rowsOf(call)) if (is(at, call)) write(at, own, plain);
  return y;
}

function pairByPair(
  y: Float64Array,
  call: Call,
  { pairs, frequency, gain, position, axisOfPair }: Rotation,
  [a, b, c, d]: Drawn['terms'],
  [forCos, forSin]: readonly [number, number],
): void {
  for (const at of rowsOf(call)) {
    const from = call.at(at.batch, at.seq, at.head);
    for (const [j, { read, write }] of pairs.entries()) {
      const angle = position(call.position(at.batch, at.seq, axisOfPair?.[j] ?? 0), at) * frequency[j]!;
      const [cos, sin] = [(gain as number) * forCos * Math.cos(angle), (gain as number) * forSin * Math.sin(angle)];
      const [x0, x1] = [call.x[from + read[0]]!, call.x[from + read[1]]!];
      y[from + write[0]] = a * x0 * cos - b * x1 * sin;
      y[from + write[1]] = c * x0 * sin + d * x1 * cos;
    }
  }
}

function* rowsOf({ batch: batches, seq: tokens, heads }: Call): Generator<RowAt> {
  for (let batch = 0; batch < batches; batch++)
    for (let seq = 0; seq < tokens; seq++) for (let head = 0; head < heads; head++) yield { batch, seq, head };
}

/** How far two outputs are from each other, in units of what rounding and angles in f32 may do. */
function distance(y: Float64Array, other: Float64Array, call: Call): number {
  const unit = { f64: 2 ** -53, f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 }[call.dtype];
  const reach = call.positions.reduce((most, p) => Math.max(most, Math.abs(p)), 0);
  const size = call.x.reduce((most, v) => Math.max(most, Math.abs(v)), 0) * Math.max(1, call.magnitude);
  let worst = 0;
  for (const [n, value] of y.entries()) {
    const off = Math.abs(value - other[n]!) / (8 * unit * size + 64 * 2 ** -24 * reach * size + 2 ** -20 * size);
    worst = Math.max(worst, Object.is(value, other[n]) ? 0 : Number.isNaN(off) ? Infinity : off);
  }
  return worst;
}

/** Draws a kernel. The seed and the number say which. */
export function draw(seed: number, n: number): Stranger {
  for (let again = 0; ; again++) {
    const random = randomFrom(`drawn ${seed} ${n} ${again}`);
    const [model, input, dtype] = [pick(random, MODEL_NAMES), pick(random, INPUT_NAMES), pick(random, DTYPES)];
    const spec: RopeSpec = MODELS[model];
    const drawn: Drawn = {
      rotation: rotationOf(spec),
      terms: [1, 1, 1, 1],
      apart: undefined,
      rows: [],
      wrong: new Set(),
    };
    const id = `drawn-${seed}-${n}`;
    const common = { id, model, dtype, input };
    const call = callFor({ ...common, about: '', cause: 0 });
    const wanted = pick(random, [0, 1, 1, 1, 1, 2, 2, 3]);
    const names: string[] = [];
    const steps = new Set<string>();
    let [last, clear] = [outputOf(drawn, call), true];
    while (names.length < wanted && steps.size < 7) {
      const [name, { step, make }] = pick(random, Object.entries(FAULTS));
      if (!steps.has(step) && make(drawn, random, spec) !== '') {
        names.push(name);
        // A fault that this input hardly shows is neither to be found nor to be missed.
        const y = outputOf(drawn, call);
        clear &&= distance(y, last, call) >= 8;
        last = y;
      }
      steps.add(step);
    }
    if (!clear || (names.length > 0 && distance(last, exact(call, rotationOf(spec)), call) < 8)) continue;
    return strangerOf(drawn, { ...common, about: names.join(', and '), cause: names.length === 0 ? 0 : 6 });
  }
}

const MODEL_NAMES = Object.keys(MODELS) as ModelName[];
const INPUT_NAMES = Object.keys(INPUTS) as InputName[];

function strangerOf(drawn: Drawn, common: Omit<Stranger, 'run' | 'truth'>): Stranger {
  const { rotation, terms, apart, rows: odd, wrong } = drawn;
  const noRotation = terms.some((one) => one !== 1);
  const [low, high] = [Math.min(...(apart ?? [1])), Math.max(...(apart ?? [1]))];
  const gain = rotation.gain as number;
  return {
    ...common,
    run(call) {
      const y = outputOf(drawn, call);
      for (const [i, value] of y.entries()) call.y[i] = call.round(value);
    },
    truth: (call): Truth => ({
      wrong: [...wrong],
      precision: /./,
      isName: (id, rows) => isName(id, common, drawn, rows),
      ...(noRotation ? {} : { rotation: apart ? { ...rotation, gain: [gain * low, gain * high] } : rotation }),
      ...(odd.length > 0 ? { except: (at) => odd.some(({ is }) => is(at, call)) } : {}),
    }),
  };
}

/** Whether the bugs with these ids give what the kernel gives, on inputs that the diagnosis has not seen. */
function isName(
  id: string,
  common: Omit<Stranger, 'run' | 'truth'>,
  drawn: Drawn,
  rows: readonly RowAt[] | undefined,
): boolean {
  const bugs = id.split('+').map((one) => MUTANTS.find((mutant) => mutant.id === one)!);
  // One of several faults may hide another on every input of the same shape.
  const inputs =
    rows || common.about.includes(', and ') ? [common.input] : (['far', 'many sequences', 'image'] as const);
  return inputs.every((input) => {
    const call = callFor({ ...common, id: `${common.id} again`, input, dtype: 'f32', cause: 0 });
    const y = outputOf(drawn, call);
    const { batch, seq, heads, headDim, x, positions, axes, spec } = call;
    const all: Heads = {
      ...{ batch, seq, heads, headDim, x, y, positions, dtype: 'f32', storage: 'f32', ownPositions: batch > 1 },
      ...{ numAxes: Math.max(axes, axesOf({ spec })), norm: undefined },
      rows: Array.from({ length: batch * seq * heads }, (_, r) => r),
    };
    const { plan, parts } = callOf({ spec }, all);
    const steps = bugs.reduce((of, bug) => changed(of, bug.change(of) ?? {}), new RopeSteps(plan, parts[0]!));
    const made = runRows(steps, all, all.rows);
    // Rows that hold something else are told apart, and so are those that the name is not about.
    const named = rows && new Set(rows.map(({ batch, seq, head }) => call.at(batch, seq, head) / headDim));
    const odd = all.rows.map((r) => drawn.rows.some(({ is }) => is(steps.placeOf(r), call)) || named?.has(r) === false);
    return y.every(
      (value, n) =>
        odd[Math.floor(n / headDim)] ||
        Object.is(value, made[n]) ||
        Math.abs(value - made[n]!) <= 1e-4 * (1 + Math.abs(value)),
    );
  });
}
