/** Makes the cases, judges the outputs of the visitor's kernel, and says what it did. @module */
import { diagnose } from '@ropewalk/diagnose';
import { type DiagnosisReport, reportOf } from '@ropewalk/diagnose/internal';
import { judgeCase } from '@ropewalk/oracle';
import { answer, GOLDEN_ROPE, goldenRopeQuestion } from '@ropewalk/oracle/internal';
import { planRope, type RopeSpec, RopewalkError, tensorFrom } from 'ropewalk';
import { runShader } from './shader.js';

/** The arguments of the visitor's `rope`. */
export interface KernelCall {
  /** `[tokens, heads, headDim]` */
  readonly x: Float32Array;
  /** `[tokens]`, or `[axes, tokens]` */
  readonly positions: Float64Array;
  readonly options: RopeSpec & { readonly tokens: number; readonly heads: number; readonly direction: string };
}

/** A case, as the page shows it and the kernel gets it. */
export interface KernelCase {
  readonly about: string;
  readonly call: KernelCall;
}

/** The judgement of a y. */
export interface Judged {
  /** The largest |y − exact| of all elements. */
  readonly maxAbs: number;
  readonly elements: number;
  readonly wrong: number;
  /** The first wrong element in a sentence. */
  readonly first: string | undefined;
  /** The remarks of verify, such as that angles are less precise than in f32. */
  readonly notes: string;
  /** The diagnosis of a wrong kernel; undefined for a right one. */
  readonly report: DiagnosisReport | undefined;
  /** The ids of the known bugs that give this y. */
  readonly bugs: readonly string[];
}

/** Cases of one f32 tensor. Each is run as one batch, so that a kernel needs no loop over batches. */
const CASES = GOLDEN_ROPE.filter(({ parts, dtype }) => parts === undefined && dtype === 'f32');
const POSITIONS = [0, 1, 40, 8192, 131072, 1048575];

function goldenCase(id: string) {
  const found = CASES.find((one) => one.id === id);
  if (!found) throw new RopewalkError('RANGE', `There is no case ${JSON.stringify(id)}. Choose one of the list.`);
  const own = found.positions?.every((one) => typeof one === 'number');
  const tokens = own ? (found.positions as readonly number[]) : POSITIONS;
  const { spec, direction = 'forward', about } = found;
  const question = goldenRopeQuestion({
    ...found,
    batch: 1,
    layout: 'bsnh',
    positionDtype: 'i32',
    positions: tokens,
  });
  const [x, positions] = [question.inputs.get('x')!, question.inputs.get('positions')!];
  return { question, x, positions, spec, direction, about };
}

const kernels = {
  /** Lists the ids of the cases. */
  ids: (): readonly string[] => CASES.map(({ id }) => id),

  /** Makes the arguments of a call. */
  make(id: string): KernelCase {
    const { x, positions, spec, direction, about } = goldenCase(id);
    const [, tokens, heads] = x.shape as [number, number, number];
    const { headDim, rotaryDim = headDim, rotaryOffset = 0 } = spec;
    const options = { ...spec, tokens, heads, rotaryDim, rotaryOffset, direction };
    const numbers = [x, positions].map((tensor) => tensor.readNumbers() as Float64Array);
    return { about, call: { x: Float32Array.from(numbers[0]!), positions: Float64Array.from(numbers[1]!), options } };
  },

  /** Runs a shader on the GPU. */
  shader(id: string, code: string): Promise<Float32Array> {
    const { x, positions, spec, direction } = goldenCase(id);
    return runShader(code, x, planRope({ ...spec, positions, direction }));
  },

  /** Judges a y as verify does. A wrong one is diagnosed. */
  judge(id: string, values: Float32Array): Judged {
    const { question, x, positions, spec, direction } = goldenCase(id);
    const y = tensorFrom(values, { shape: x.shape });
    const { status, notes, tensors } = judgeCase(answer(question), new Map([['y', y]]), { bugs: false });
    const [{ maxAbs, elements, wrong, first }] = tensors as [(typeof tensors)[number]];
    const told = {
      maxAbs,
      elements,
      wrong,
      notes: notes.map((note) => `${note}.`).join(' '),
      first: firstWords(first[0]),
    };
    if (status === 'ok') return { ...told, report: undefined, bugs: [] };
    const diagnosis = diagnose({ x, y, positions, layout: 'bsnh' }, { spec, direction });
    const bugs = diagnosis.named.flatMap(({ mutants }) => mutants.map((bug) => bug.id));
    return { ...told, report: reportOf(diagnosis, id, false), bugs };
  },
};

/** The functions that the page calls. */
export type Kernels = typeof kernels;

type Wrong = ReturnType<typeof judgeCase>['tensors'][number]['first'][number];

function firstWords(one: Wrong | undefined): string | undefined {
  if (!one) return undefined;
  const [, token, head, dimension] = one.index;
  const at = one.place ? ` (position ${one.place.positions.join(', ')})` : '';
  const [got, right] = [one.got.toPrecision(7), one.expected.toPrecision(7)];
  return `The first wrong element: token ${token}${at}, head ${head}, dimension ${dimension}: y is ${got}, right is ${right}, and ${one.bound.toExponential(1)} off is allowed.`;
}

export default kernels;
