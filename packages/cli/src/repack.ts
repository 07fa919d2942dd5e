/** `ropewalk to-gguf` and `ropewalk to-safetensors`: a model's folder as a GGUF file, and back. @module */
import { type Repacked, WRITTEN_TYPES, writeGguf, writeSafetensorsFolder } from '@ropewalk/model/repack';
import { countLayers } from 'ropewalk/internal';
import { untilInterrupted } from './interrupt.js';
import { checkFolderName, Flags, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar, printResult, sizeText, thousands } from './output.js';

export type RepackCommandOptions = Texts<'type'> & Switches<'vocabulary' | 'force' | 'json'> & { readonly out: string };

/** @param model - a HuggingFace folder */
export function toGguf(model: string, options: RepackCommandOptions): Promise<number> {
  return repack('to-gguf', model, options, writeGguf);
}

/** @param model - a .gguf file, or a folder with one */
export async function toSafetensors(model: string, options: RepackCommandOptions): Promise<number> {
  checkFolderName(options.out, '--out', "It gets config.json, model.safetensors and the tokenizer's files.");
  return repack('to-safetensors', model, options, writeSafetensorsFolder);
}

async function repack(
  command: string,
  model: string,
  options: RepackCommandOptions,
  write: typeof writeGguf,
): Promise<number> {
  const { out, vocabulary, force, json } = options;
  const type = new Flags(options).word('type', WRITTEN_TYPES);
  const bar = openPercentBar('written and read back', json);
  const made = await untilInterrupted(command, (signal) =>
    write(model, out, { type, vocabulary, force, signal, onProgress: (share) => bar.to(share) }),
  ).finally(() => bar.stop());
  if (made === undefined) return EXIT.failed;
  printResult(json, {
    json: () => ({ out, architecture: made.config.architecture, ...withoutConfig(made) }),
    lines: () => describe(made, out),
  });
  return EXIT.ok;
}

function withoutConfig({ config: _config, ...rest }: Repacked): object {
  return rest;
}

function describe({ config, files, types, permuted, notes }: Repacked, out: string): string[] {
  const width = Math.max(...files.map(({ name }) => name.length));
  const total = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return [
    `${config.architecture}, ${countLayers(config.numLayers)}: ` +
      types.map(({ type, tensors, sizeBytes }) => `${sizeText(sizeBytes)} in ${tensors} of ${type}`).join(', '),
    ...(permuted ? ['  rows of q and k are in the order of the new pairing'] : []),
    ...notes.map((note) => `  note: ${note}`),
    ...(files.length > 1
      ? files.map(({ name, sizeBytes }) => `  ${name.padEnd(width)} ${thousands(sizeBytes).padStart(15)} bytes`)
      : []),
    `Wrote ${out}, ${thousands(total)} bytes, and read every tensor back.`,
  ];
}
