/** `ropewalk devices [NAME] --model`: whether a model's RoPE runs on a device, and in which form. @module */

import { headsOf } from '@ropewalk/checkpoint/internal/node';
import { readRopeSource } from '@ropewalk/checkpoint/node';
import {
  DEVICES,
  deviceNamed,
  type RopeForm,
  type RopeOnDeviceOptions,
  type RopeRefusal,
  type RopeStep,
  type RopeVerdict,
  ropeOnDevice,
} from '@ropewalk/devices';
import { groupLayers, type ModelRope } from '@ropewalk/dialects';
import { describeGroup } from '@ropewalk/dialects/internal/models';
import { isGraphFolder, onnxFileOf } from '@ropewalk/formats/node';
import { graphRope } from '@ropewalk/onnx';
import { type FloatDtype, type RopeSpec, RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { readGraph } from './inspect-graph.js';
import { FLOATS, Flags, type Switches, type Texts } from './options.js';
import { counted, EXIT, printResult } from './output.js';
import { isRopeLine } from './rope-line.js';
import { type RopeLine, readRope } from './rope-source.js';

export type DevicesModelOptions = Texts<'model' | 'dtype' | 'batch' | 'seq' | 'heads' | 'kvHeads' | 'context'> &
  Switches<'json' | 'batchPositions'>;

/** Layers with one RoPE. */
interface Group {
  /** Undefined for a record, which belongs to no layer. */
  readonly layers: readonly number[] | undefined;
  readonly layerType?: string | undefined;
  readonly spec: RopeSpec | undefined;
  readonly heads?: number;
  readonly kvHeads?: number;
}

interface Model {
  readonly groups: readonly Group[];
  /** The facts of a `ROPE(…)` line. */
  readonly line?: RopeLine | undefined;
  readonly maxContext?: number;
  readonly notes: readonly string[];
}

/** A group, and the answers of the devices. */
interface Judged extends Group {
  readonly verdicts: readonly RopeVerdict[];
}

/** The sizes of a call beside its RoPE. */
interface Call {
  /** Undefined for the dtype that each device's runtime rotates. */
  readonly dtype: FloatDtype | undefined;
  readonly batchPositions: boolean;
  readonly batch: number;
  readonly seq: number;
  readonly context: number;
  readonly contiguous: boolean;
}

/** @returns 1 when a device is named and does not run a layer, or runs it wrong; otherwise 0 */
export async function devicesForModel(
  name: string | undefined,
  path: string,
  options: DevicesModelOptions,
): Promise<number> {
  const names = name === undefined ? DEVICES.map((device) => device.name) : [deviceNamed(name).name];
  const flags = new Flags(options);
  const given = flags.integer('context', 1);
  const [heads, kvHeads] = [flags.integer('heads', 1, 2 ** 16), flags.integer('kvHeads', 1, 2 ** 16)];
  const model = await readModel(path, given);
  const { line } = model;
  const call: Call = {
    dtype: flags.word('dtype', FLOATS) ?? line?.dtype,
    batchPositions: options.batchPositions ?? false,
    batch: flags.integer('batch', 1) ?? (line?.batch || 1),
    seq: flags.integer('seq', 1) ?? (line?.seq || (line ? 1 : 512)),
    context: given ?? line?.context ?? model.maxContext ?? 4096,
    contiguous: line?.contiguous ?? true,
  };
  const judged = model.groups.map((group): Judged => {
    const { spec } = group;
    if (!spec) return { ...group, verdicts: [] };
    const all = heads ?? group.heads ?? fail('RANGE', '--heads', 'nothing says how many heads q has. Give --heads.');
    const kv = kvHeads ?? (heads === undefined ? group.kvHeads : undefined);
    const question = { ...call, spec, heads: all, kvHeads: kv };
    return { ...group, verdicts: names.map((one) => answerOf(one, question)) };
  });
  printResult(options.json, {
    json: () => ({ model: path, ...call, layers: judged.map(({ spec: _spec, ...rest }) => rest) }),
    lines: () => [
      `${path}: ${call.dtype ? `${call.dtype}, ` : ''}batch ${call.batch}${call.batchPositions ? ', each with its own positions' : ''}, ${counted(call.seq, 'token')} a call, positions below ${call.context}`,
      ...model.notes.map((note) => `  note: ${note}`),
      ...judged.flatMap((group) => [
        '',
        titleOf(group),
        ...(!group.spec
          ? ['  no position encoding']
          : name === undefined
            ? table(group.verdicts)
            : describe(group.verdicts[0]!)),
      ]),
      '',
      "By each profile's rules: nothing was run.",
    ],
  });
  const bad = judged.some(({ verdicts }) => verdicts.some(({ forms }) => forms[0]?.right !== true));
  return name !== undefined && bad ? EXIT.failed : EXIT.ok;
}

/** Asks each device. A refusal of the question is the answer of that device; the others still answer. */
function answerOf(device: string, question: RopeOnDeviceOptions): RopeVerdict {
  try {
    return ropeOnDevice(device, question);
  } catch (error) {
    if (!(error instanceof RopewalkError) || error.code !== 'UNSUPPORTED') throw error;
    const refused = [{ operator: 'graph', words: error.message, here: '', source: 'ropewalk export' }];
    return { device, dtype: question.dtype ?? deviceNamed(device).dtype ?? 'f16', forms: [], refused };
  }
}

async function readModel(path: string, context: number | undefined): Promise<Model> {
  if (/\.onnx$/i.test(path) || isGraphFolder(path)) {
    const file = onnxFileOf(path);
    const { rope, notes } = withNotes(graphRope(readGraph(file), file).rope);
    return 'layers' in rope ? groupsOf(rope) : { groups: [{ layers: undefined, spec: rope }], notes };
  }
  if (isRopeLine(path)) {
    const { spec, line, notes } = await readRope(path);
    return { groups: [{ layers: undefined, spec, heads: line?.heads }], line, notes };
  }
  const source = await readRopeSource(path, context);
  if (source.kind === 'record') return { groups: [{ layers: undefined, spec: source.spec }], notes: [] };
  const model = groupsOf(source.model);
  const groups = model.groups.map(async (group) => ({ ...group, ...(await headsOf(source.file, group.layers![0]!)) }));
  return { ...model, groups: await Promise.all(groups) };
}

const withNotes = (rope: ModelRope | RopeSpec): { rope: ModelRope | RopeSpec; notes: readonly string[] } => ({
  rope,
  notes: 'layers' in rope ? rope.notes : [],
});

function groupsOf({ layers, maxContext, notes }: ModelRope): Model {
  // Other properties of a layer, such as a window, do not matter here.
  const alike = groupLayers(layers.map(({ layer, rope }) => ({ layer, rope })));
  const groups = alike.map(({ layers: numbers, rope }) => {
    const types = layers.flatMap(({ layer, layerType }) => (numbers.includes(layer) ? (layerType ?? []) : []));
    return { layers: numbers, layerType: [...new Set(types)].join(', ') || undefined, spec: rope };
  });
  return { groups, maxContext, notes };
}

function titleOf({ layers, layerType }: Group): string {
  return layers ? describeGroup({ layers, layerType, window: undefined }) : 'one RoPE';
}

/** Describes each step in a short line. For tables the line says what is lost with them. */
const SHORT: Readonly<Record<RopeStep, string>> = {
  'tables-by-host': 'tables of the host',
  'window-copied': 'a window copied out and back',
  'weights-permuted': 'weights permuted',
  primitives: 'primitives',
  'tables-repeated': 'tables repeated',
  'two-calls': 'one for q, one for k',
  layout: 'another layout',
  'shapes-fixed': 'fixed shapes',
};

function table(verdicts: readonly RopeVerdict[]): string[] {
  const width = Math.max(...verdicts.map(({ device }) => device.length));
  return verdicts.map((verdict) => {
    const { device, dtype, forms, refused } = verdict;
    const [form] = forms;
    const done = form?.steps.map((step) => SHORT[step]).join(', ') || 'as it is';
    const lost = form && form.lost.length > 0 ? `. Lost: ${form.lost.join(' ')}` : '';
    const said = form
      ? wrongAsIs(verdict)
        ? `wrong as it is called; right, ${count(form)}: ${done}${lost}`
        : `${form.right ? 'runs ' : 'wrong'}  ${count(form).padEnd(8)}  ${done}${lost}`
      : `no     needs: ${[...new Set(refused.map(needOf))].join('; ')}`;
    return `  ${device.padEnd(width)}  ${dtype.padEnd(4)}  ${said}`;
  });
}

/** The rule of a device that is broken, and the value that breaks it. */
const needOf = ({ words, here }: RopeRefusal): string => (here === '' ? words : `${words} (here ${here})`);

/** Finds the form without copies and permuted weights, if its result differs from that of the best form. */
const wrongAsIs = ({ forms }: RopeVerdict): RopeForm | undefined =>
  forms[0]?.right
    ? forms.find(
        ({ operator, right, steps }) =>
          !right &&
          operator === forms[0]!.operator &&
          !steps.includes('window-copied') &&
          !steps.includes('weights-permuted'),
      )
    : undefined;

const count = ({ calls }: RopeForm): string => counted(calls, 'call');

function describe(verdict: RopeVerdict): string[] {
  const { dtype, forms, refused } = verdict;
  const [best, ...others] = forms;
  if (!best) {
    return [
      `  ${dtype} data: does not run in any form. It needs:`,
      ...refused.flatMap((one) => [`    ${one.operator}: ${needOf(one)}`, `      ${one.source}`]),
    ];
  }
  const instead = others.find(({ right, lost }) => right && lost.length < best.lost.length);
  const asIs = wrongAsIs(verdict);
  return [
    ...(asIs ? [`  wrong as it is called: ${asIs.lost.join(' ')} Right with these steps:`] : []),
    `  ${dtype} data: ${best.right ? 'runs' : 'runs, and is wrong'}: ${describeForm(best)}`,
    ...best.words.map((sentence) => `    ${sentence}`),
    ...(best.precision
      ? [
          `    cos and sin at position ${best.precision.position} are off by ${best.right ? 'at most ' : ''}${best.precision.maxError.toExponential(1)}`,
        ]
      : []),
    ...(best.lost.length > 0 ? best.lost.map((sentence) => `    lost: ${sentence}`) : ['    lost: nothing']),
    ...(instead
      ? [`  or with less lost: ${describeForm(instead)}`, ...instead.words.map((line) => `    ${line}`)]
      : []),
  ];
}

function describeForm(form: RopeForm): string {
  const { operator, onnx } = form;
  return onnx
    ? `${operator}, ${count(form)} (nodes): ONNX opset ${onnx.opset}, angles ${onnx.angles}`
    : `${operator}, ${count(form)} a layer`;
}
