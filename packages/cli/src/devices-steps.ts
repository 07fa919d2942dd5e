/** `ropewalk devices NAME --steps`: what each step of a call on a device costs, and every buffer that it writes. @module */
import { join } from 'node:path';
import type { Cann2024Step, DeviceProfile, StepBuffer } from '@ropewalk/devices';
import { writeNpy } from '@ropewalk/formats';
import { makeFolder, refuseSystem, replaceFile } from '@ropewalk/formats/internal/node';
import { parseRopeLabel } from '@ropewalk/oracle';
import { drawRopeCase } from '@ropewalk/oracle/internal';
import type { ArrayOf } from 'ropewalk';
import { newArray, refuse, storeNumber } from 'ropewalk/backend';
import { asPublished, findCase } from './case-lines.js';
import { builtInCases } from './check.js';
import { EXIT, printResult, sizeText } from './output.js';

/**
 * @param line - a `ROPE(…)` line; a line of the device's published run has the positions of that run
 * @param out - a folder for the buffers: `STEP-name.npy`
 */
export async function devicesSteps(device: DeviceProfile, line: string, out?: string, json?: boolean): Promise<number> {
  const { steps } = device;
  if (!steps) refuse('UNSUPPORTED', '--steps', 'a profile whose steps are known, such as cann-2024', device.name);
  const { one, printed } = asPublished(findCase(line, builtInCases(), '--steps'), device);
  const label = parseRopeLabel(line);
  const { x, plan } = drawRopeCase({
    ...label,
    ...(printed && { pos: printed.positions, ff0: printed.firstFactor }),
  });
  const [, heads, , batch] = label.ne_a;
  const { type } = label;
  if (type !== 'f32' && type !== 'f16') refuse('UNSUPPORTED', '--steps', 'type=f32 or type=f16', type);
  const { spec, positions } = plan.source!;
  const rope = { ...spec, positions: Int32Array.from(plan.tableRows, (row) => positions[row]!) };
  const call = { dtype: type, heads, batch };
  const described = steps.describe(rope, call);
  const buffers = steps.run(rope, { ...call, x: (await x.readNumbers()) as Float64Array });
  const files = out === undefined ? undefined : writeBuffers(out, buffers);
  printResult(json, {
    json: () => ({
      case: one.label,
      positions: [...rope.positions],
      steps: described,
      buffers: buffers.map(({ values: _values, ...rest }, n) => ({ ...rest, file: files?.[n] })),
    }),
    lines: () => [
      `${one.label}`,
      `  positions ${[...rope.positions].slice(0, 8).join(', ')}${rope.positions.length > 8 ? ', …' : ''}`,
      '',
      ...table(described, buffers),
      '',
      files
        ? `${files.length} buffers in ${out}: ${nameOf(buffers[0]!)} … ${nameOf(buffers.at(-1)!)}`
        : 'With --out DIR every buffer is written there.',
    ],
  });
  return EXIT.ok;
}

function table(steps: readonly Cann2024Step[], buffers: readonly StepBuffer[]): string[] {
  const rows = [
    ['step', '', 'calls', 'reads', 'writes', 'buffers', 'first values'],
    ...steps.map(({ step, what, calls, bytesRead, bytesWritten, buffered }) => [
      String(step),
      what,
      String(calls),
      sizeText(bytesRead),
      sizeText(bytesWritten),
      sizeText(buffered),
      buffers
        .filter((buffer) => buffer.step === step)
        .map(
          ({ name, values }) =>
            `${name} ${[...values.slice(0, 3)].map((value) => Number(value.toPrecision(6))).join(' ')}`,
        )
        .join('; '),
    ]),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ')}`.trimEnd());
}

const nameOf = ({ step, name }: StepBuffer): string => `${String(step).padStart(2, '0')}-${name}.npy`;

function writeBuffers(folder: string, buffers: readonly StepBuffer[]): string[] {
  try {
    makeFolder(folder);
    return buffers.map((buffer) => {
      const path = join(folder, nameOf(buffer));
      replaceFile(path, npyOf(buffer));
      return path;
    });
  } catch (cause) {
    return refuseSystem('DEVICE', `--out: ${folder}`, 'a folder that can be written', cause);
  }
}

function npyOf({ shape, dtype, values }: StepBuffer): Uint8Array {
  if (dtype === 'i32') return writeNpy(Int32Array.from(values), { dtype, shape });
  const data = newArray(dtype, values.length);
  for (let n = 0; n < values.length; n++) storeNumber(data, dtype, n, values[n]!);
  return writeNpy(data as ArrayOf['f32' | 'f16'], { dtype, shape });
}
