/** `ropewalk devices`: the rules of NPUs and their runtimes. @module */
import { DEVICES, type DeviceProfile, deviceNamed } from '@ropewalk/devices';
import { fail } from 'ropewalk/backend';
import type { DevicesModelOptions } from './devices-model.js';
import { Flags, type Texts } from './options.js';
import { counted, EXIT, printResult } from './output.js';

export type DevicesOptions = DevicesModelOptions & Texts<'cases' | 'log' | 'steps' | 'out'>;

/** @param name - the profile to print. Default: a list of all */
export async function devices(name: string | undefined, options: DevicesOptions): Promise<number> {
  const flags = new Flags(options);
  if (options.model !== undefined) {
    flags.refuseAny(
      ['cases', 'log', 'steps', 'out'],
      '--model asks about a model, --cases runs a suite, --log judges a log, --steps runs one call. Give one of them.',
    );
    return (await import('./devices-model.js')).devicesForModel(name, options.model, options);
  }
  flags.refuseAny(['dtype', 'batch', 'batchPositions', 'seq', 'heads', 'kvHeads', 'context'], 'it needs --model.');
  const device = name === undefined ? undefined : deviceNamed(name);
  if (options.cases !== undefined) {
    flags.refuseAny(
      ['log', 'steps', 'out'],
      '--cases runs a suite, --log judges a log, --steps runs one call. Give one.',
    );
    if (!device) fail('FORMAT', 'name', '--cases needs a profile. List them with: ropewalk devices.');
    return (await import('./devices-cases.js')).devicesCases(device, options.cases, options.json);
  }
  if (options.steps !== undefined) {
    flags.refuseAny(['log'], '--log judges a log, --steps runs one call. Give one of them.');
    if (!device) fail('FORMAT', 'name', '--steps needs a profile: ropewalk devices cann-2024 --steps LINE.');
    return (await import('./devices-steps.js')).devicesSteps(device, options.steps, options.out, options.json);
  }
  flags.refuseAny(['out'], 'it needs --steps.');
  if (options.log !== undefined) {
    if (!device) fail('FORMAT', 'name', '--log needs a profile. List them with: ropewalk devices.');
    return (await import('./devices-log.js')).devicesLog(device, options.log, options.json);
  }
  printResult(options.json, {
    json: () => (device ? toJson(device) : { devices: DEVICES.map(toJson) }),
    lines: () => (device ? describe(device) : list()),
  });
  return EXIT.ok;
}

const countRules = ({ operators }: DeviceProfile): number =>
  operators.reduce((sum, { rules }) => sum + rules.length, 0);

function list(): string[] {
  const width = Math.max(...DEVICES.map(({ name }) => name.length));
  return DEVICES.map((device) => {
    const rules = countRules(device);
    const what = `${device.open ? 'computes; ' : ''}${counted(rules, 'rule')}`;
    return `${device.name.padEnd(width)}  ${device.title} (${what})`;
  });
}

function describe(device: DeviceProfile): string[] {
  const { sources, operators, lacks = [], onnx } = device;
  const said: { readonly source: string }[] = [...operators.flatMap(({ rules }) => [...rules]), ...lacks];
  const all = [...new Set([...sources, ...said.map(({ source }) => source), ...(onnx ? [onnx.source] : [])])];
  const cite = (source: string): string => `[${all.indexOf(source) + 1}]`;
  return [
    `${device.name}: ${device.title}`,
    ...all.map((source, n) => `  ${n === 0 ? 'sources' : '       '}  ${cite(source)} ${source}`),
    ...(device.dtype ? [`  data     ${device.dtype} is what its runtime rotates`] : []),
    ...operators.flatMap(({ op, name, rules }) => [
      '',
      `${name} (${op})`,
      ...rules.flatMap(({ words, otherwise, source }) => [
        `  ${words} ${cite(source)}`,
        ...(otherwise === undefined ? [] : [`    otherwise ${otherwise}`]),
      ]),
    ]),
    ...lacks.flatMap(({ name, source }, n) => [...(n === 0 ? ['', 'Not there'] : []), `  ${name} ${cite(source)}`]),
    ...(onnx
      ? [
          '',
          `Of ONNX, of what RoPE may need ${cite(onnx.source)}`,
          `  ${onnx.names.join(', ')}`,
          ...(onnx.halvesF32 ? [`  ${onnx.halvesF32}`] : []),
        ]
      : []),
    '',
    device.open ? `It computes: ropewalk check --backend ${device.name}` : 'Rules only: this profile does not compute.',
  ];
}

function toJson({ name, title, sources, operators, lacks, onnx, open }: DeviceProfile): unknown {
  const told = operators.map(({ op, name: operator, rules }) => ({
    op,
    name: operator,
    rules: rules.map(({ words, source, otherwise }) => ({ words, source, otherwise })),
  }));
  return { name, title, computes: open !== undefined, sources, operators: told, lacks, onnx };
}
