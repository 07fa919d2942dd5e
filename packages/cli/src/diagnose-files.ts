/** The files that `ropewalk diagnose` writes: a picture, and an input that distinguishes more. @module */
import { join } from 'node:path';
import { type Diagnosis, frequencySvg, type NextInput } from '@ropewalk/diagnose';
import { writeNpy } from '@ropewalk/formats';
import { makeFolder, refuseSystem, writeOutput } from '@ropewalk/formats/internal/node';
import type { DiagnoseOptions } from './diagnose-input.js';
import { magnitudesOf } from './plot.js';

/** @returns lines that say what was written */
export function writeFiles(result: Diagnosis, { svg, nextInput }: DiagnoseOptions): string[] {
  const lines: string[] = [];
  if (svg !== undefined) {
    const [found, expected] = magnitudesOf(result.found.pairs, result.expectedFrequencies);
    writeOutput(svg, frequencySvg(found, expected), '--svg');
    lines.push(`Picture: ${svg}`);
  }
  if (nextInput !== undefined)
    lines.push(
      ...(result.next ? writeNext(nextInput, result.next) : ['Next input: none needed, nothing was written.']),
    );
  return lines.length > 0 ? ['', ...lines] : [];
}

function writeNext(folder: string, next: NextInput): string[] {
  try {
    makeFolder(folder);
  } catch (cause) {
    refuseSystem('DEVICE', `--next-input: ${folder}`, 'a folder that can be made', cause);
  }
  const [x, positions] = [join(folder, 'x.npy'), join(folder, 'positions.npy')];
  const [batch, seq] = next.shape;
  writeOutput(x, writeNpy(Float32Array.from(next.x), { dtype: 'f32', shape: next.shape }), '--next-input');
  const shape = next.numAxes > 1 ? [next.numAxes, batch, seq] : [batch, seq];
  writeOutput(positions, writeNpy(BigInt64Array.from(next.positions, BigInt), { dtype: 'i64', shape }), '--next-input');
  return [`Next input: ${x}, ${positions}`];
}
