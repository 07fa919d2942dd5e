/** `ropewalk export --for DEVICE`: the graph that a device takes. @module */
import { DEVICES, type GraphWishes, type RopeForm, type RopeOnDeviceOptions, ropeOnDevice } from '@ropewalk/devices';
import type { OnnxChoice } from '@ropewalk/devices/internal';
import type { FloatDtype } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { readName } from 'ropewalk/internal';
import { flagOf } from './options.js';

/** The choice of a device, and sentences about it. */
export interface ChosenForm {
  readonly device: string;
  readonly choice: OnnxChoice;
  /** Full sentences about the work that remains, and the precision that is lost. */
  readonly words: readonly string[];
  readonly lost: readonly string[];
}

/**
 * Chooses the values of options that are not given.
 *
 * @param name - a device
 * @param question - the RoPE, with the options of the graph that are given
 * @param dtypes - the dtype of the data that is given, or those to choose from, the best first
 * @throws {RopewalkError} UNSUPPORTED for a device that takes no graphs, or none like this
 */
export function chooseFor(name: string, question: RopeOnDeviceOptions, dtypes: readonly FloatDtype[]): ChosenForm {
  const device = readName(
    name,
    DEVICES.map((one) => one.name),
    '--for',
  );
  const { onnx, lacks } = DEVICES.find((one) => one.name === device)!;
  if (!onnx) {
    const others = DEVICES.filter((one) => one.onnx).map((one) => one.name);
    fail(
      'UNSUPPORTED',
      '--for',
      `${device} takes no ONNX graph. Its calls: ropewalk devices ${device} --model MODEL. Graphs are for ${others.join(', ')}.`,
    );
  }
  const lacking = lacks?.find((one) => one.name === 'RotaryEmbedding');
  const ask = (graph: GraphWishes | undefined, dtype = dtypes[0]!) =>
    ropeOnDevice(device, { ...question, graph, dtype });
  for (const dtype of dtypes) {
    const [form] = ask(question.graph, dtype).forms;
    if (form) return chosenFrom(device, form, lacking);
  }
  const reasons = ask(question.graph).refused.map(({ operator, words }) => `${operator} needs: ${words}`);
  const missing = lacking ? ['it has no RotaryEmbedding'] : [];
  const why = (reasons.length > 0 ? reasons : missing).join('; ');
  // If a single option is the obstacle, the message names it.
  for (const option of ['form', 'angles', 'layout', 'opset'] as const) {
    const given = question.graph?.[option];
    if (given === undefined) continue;
    const [instead] = ask({ ...question.graph, [option]: undefined }).forms;
    if (instead)
      fail(
        'UNSUPPORTED',
        flagOf(option),
        `${device} does not take ${given}${why ? ` (${why})` : ''}. It takes ${instead.onnx![option]}: leave ${flagOf(option)} out.`,
      );
  }
  const other = (['f32', 'f16'] as const).find((dtype) => ask(question.graph, dtype).forms.length > 0);
  if (other)
    fail(
      'UNSUPPORTED',
      '--dtype',
      `${device} does not take ${dtypes[0]} (${why}). It takes ${other}: give --dtype ${other}.`,
    );
  return fail('UNSUPPORTED', '--for', `${device} takes this RoPE in no form: ${why}.`);
}

function chosenFrom(
  device: string,
  { onnx, words, lost }: RopeForm,
  lacking: { readonly source: string } | undefined,
): ChosenForm {
  const why = lacking ? [`There is no RotaryEmbedding: ${lacking.source}.`] : [];
  return { device, choice: onnx!, words: [...why, ...words], lost };
}
