/** `ropewalk export --whole`: a model as a folder that other programs load. @module */

import { DECODER_FORMS } from '@ropewalk/model-onnx/internal';
import { type ExportedDecoder, exportDecoder } from '@ropewalk/model-onnx/node';
import { ANGLE_MODES, type AnglePrecision, anglePrecision } from '@ropewalk/onnx';
import { PRECISION_POSITIONS } from '@ropewalk/onnx/internal';
import { fail } from 'ropewalk/backend';
import { countLayers } from 'ropewalk/internal';
import type { ExportOptions } from './export.js';
import { untilInterrupted } from './interrupt.js';
import { checkFolderName, Flags } from './options.js';
import { EXIT, openPercentBar, printResult, thousands } from './output.js';
import { VERSION } from './version.js';

/** The options that apply. */
const OWN = [
  'whole',
  'form',
  'angles',
  'context',
  'quantize',
  'widenHalves',
  'activations',
  'out',
  'force',
  'json',
] as const;

/** @param model - a folder of HuggingFace's files, or a .gguf file */
export async function exportWhole(model: string | undefined, options: ExportOptions): Promise<number> {
  const flags = new Flags(options);
  flags.refuseAllBut(OWN, '--whole');
  const { out, json } = options;
  if (model === undefined) fail('FORMAT', 'model', '--whole needs a model: a HuggingFace folder, or a .gguf file.');
  if (out === undefined) fail('FORMAT', '--out', 'it is missing. Name the folder to write.');
  checkFolderName(out, '--out', 'It gets the graph, its weights, configs and the tokenizer.');
  const form = flags.word('form', DECODER_FORMS);
  if (form !== undefined && form !== 'contrib')
    flags.refuseAny(
      ['activations'],
      'it is for form contrib: standard leaves it to the runtime, primitives are exact.',
      'UNSUPPORTED',
    );
  const settings = {
    form,
    angles: flags.word('angles', ANGLE_MODES),
    context: flags.integer('context', 1),
    quantize: flags.word('quantize', ['q8_0', 'q4_0']),
    widenHalves: options.widenHalves,
    activations: flags.word('activations', ['q8', 'f32']),
    force: options.force,
    producer: `ropewalk ${VERSION}`,
  };
  const bar = openPercentBar('of the weights written', json);
  const onProgress = ({ doneBytes, totalBytes }: { doneBytes: number; totalBytes: number }): void =>
    bar.to(doneBytes / totalBytes);
  const made = await untilInterrupted('export', (signal) =>
    exportDecoder(model, out, { ...settings, signal, onProgress }),
  ).finally(() => bar.stop());
  if (made === undefined) return EXIT.failed;
  const precision = precisionOf(made);
  printResult(json, {
    json: () => toJson(made, out, precision),
    lines: () => describe(made, out, precision),
  });
  return EXIT.ok;
}

/** The largest error of cos and sin in any layer. */
function precisionOf({ config, decoder }: ExportedDecoder): AnglePrecision[] {
  const { angles, context } = decoder.settings;
  const ropes = new Set(config.layers(context).flatMap(({ rope }) => rope ?? []));
  const positions = [...PRECISION_POSITIONS.filter((p) => p < context - 1), context - 1];
  const each = Array.from(ropes, (spec) => anglePrecision(spec, angles, positions, 'f32'));
  const worst = (n: number): AnglePrecision =>
    each.map((rows) => rows[n]!).reduce((a, b) => (b.maxError > a.maxError ? b : a));
  return each.length === 0 ? [] : positions.map((_position, n) => worst(n));
}

function describe(made: ExportedDecoder, out: string, precision: AnglePrecision[]) {
  const { config, decoder, model, files, loadedIn, notes } = made;
  const { form, angles, context } = decoder.settings;
  const size = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const width = Math.max(...files.map(({ name }) => name.length));
  return [
    `${config.architecture}, ${countLayers(config.numLayers)}: ONNX opset ${model.opset}, form ${form}, angles ${angles}, context ${context}`,
    `  nodes ${model.nodes.length}`,
    ...files.map(({ name, sizeBytes }) => `  ${name.padEnd(width)} ${thousands(sizeBytes).padStart(15)} bytes`),
    ...(loadedIn ? [`  loaded once in onnxruntime-node ${loadedIn}`] : []),
    ...notes.map((note) => `  note: ${note}`),
    ...(precision.length > 0 ? ['', '  position     cos, sin off by at most'] : []),
    ...precision.map(({ position, maxError }) => `  ${String(position).padEnd(12)} ${maxError.toExponential(1)}`),
    '',
    `Wrote ${out}, ${thousands(size)} bytes.`,
  ];
}

function toJson(made: ExportedDecoder, out: string, precision: AnglePrecision[]) {
  const { config, decoder, model, files, loadedIn = null, notes } = made;
  const { form, angles, context } = decoder.settings;
  const bytes = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const { opset, inputs, outputs, nodes } = model;
  const { architecture } = config;
  return {
    folder: out,
    architecture,
    form,
    opset,
    angles,
    context,
    bytes,
    files,
    inputs,
    outputs,
    nodes: nodes.length,
    precision,
    loadedIn,
    notes,
  };
}
