/** `ropewalk harness`: writes a program for `verify --program`, ready to paste a kernel into. @module */
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { basename, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeWhole } from '@ropewalk/formats/node';
import { fail } from 'ropewalk/backend';
import { oneOf, type Switches, type Texts } from './options.js';
import { EXIT, printResult } from './output.js';

export type HarnessOptions = Texts<'out'> & Switches<'force' | 'json'>;

/** A language: what its program needs, and how it is built and run. FILE is its name, BASE that without the ending. */
interface Language {
  /** The template, and the name to write it under. */
  readonly file: string;
  readonly what: string;
  readonly build?: string;
  readonly run: string;
  /** Why nobody here has run it. */
  readonly untried?: string;
}

const LANGUAGES = {
  c: { file: 'rope.c', what: 'C99', build: 'cc -std=c99 -O2 FILE -o BASE -lm', run: './BASE' },
  numpy: { file: 'rope_numpy.py', what: 'Python with numpy', run: 'python3 FILE' },
  torch: { file: 'rope_torch.py', what: 'Python with PyTorch', run: 'python3 FILE cpu' },
  js: { file: 'rope.mjs', what: 'JavaScript', run: 'node FILE' },
} as const satisfies Record<string, Language>;

/** Templates lie beside src and beside dist. */
const TEMPLATES = fileURLToPath(new URL('../harness/', import.meta.url));

/** @param name - the language; all are listed without one */
export async function harness(name: string | undefined, { out, force, json }: HarnessOptions): Promise<number> {
  const names = Object.keys(LANGUAGES) as (keyof typeof LANGUAGES)[];
  if (name === undefined) {
    if (out !== undefined) fail('FORMAT', '--out', `it needs a language: ${names.join(', ')}.`);
    const languages = names.map((one) => ({ language: one, ...commandsOf(LANGUAGES[one]) }));
    printResult(json, { json: () => ({ languages }), lines: () => languages.flatMap(describe) });
    return EXIT.ok;
  }
  const language: Language = LANGUAGES[oneOf(name, names, 'harness: language')];
  const text = textOf(language, basename(out ?? language.file));
  if (out === undefined) {
    printResult(json, { json: () => ({ language: name, text }), lines: () => [text.trimEnd()] });
    return EXIT.ok;
  }
  // `import torch` in torch.py would import itself.
  const hidden = language.file.endsWith('.py') && new RegExp(`^import ${basename(out, '.py')}\\b`, 'm').test(text);
  if (hidden) fail('FORMAT', '--out', `${out} would hide the module that it imports. Call it ${language.file}.`);
  const sizeBytes = Buffer.byteLength(text);
  await writeWhole(out, { sizeBytes, inputs: [], force, kind: 'file' }, (temporary) => writeFile(temporary, text));
  const { build, run } = commandsOf(language, basename(out));
  const next = [...(build ? [build] : []), 'ropewalk vectors golden', `ropewalk verify golden --program "${run}"`];
  printResult(json, { json: () => ({ language: name, out, next }), lines: () => [out, ...next.map((l) => `  ${l}`)] });
  return EXIT.ok;
}

/** The program: what it is and how it is run, then the template with the files that it includes. */
function textOf(language: Language, file: string): string {
  const template = readFileSync(join(TEMPLATES, language.file), 'utf8').replace(
    /^(?:#include "(.*)"|# include (.*))\n/gm,
    (line, c, python) => {
      const name = c ?? python;
      return name === 'rope.h' || name.startsWith('protocol.') ? readFileSync(join(TEMPLATES, name), 'utf8') : line;
    },
  );
  const mark = file.endsWith('.py') ? '#' : '//';
  const { build, run } = commandsOf(language, file);
  const head = [
    ...(language.untried ? [language.untried] : []),
    `RoPE in ${language.what} for ropewalk verify (docs/verify.md): paste your kernel into rope(). Build and run:`,
    ...[build, 'ropewalk vectors golden', `ropewalk verify golden --program "${run}"`].flatMap((line) =>
      line === undefined ? [] : [`  ${line}`],
    ),
  ];
  return `${head.map((line) => `${mark} ${line}\n`).join('')}\n${template}`;
}

/** A language's commands, for a file of this name. */
function commandsOf({ what, build, run, file }: Language, name: string = file) {
  const filled = (text: string): string =>
    text.replaceAll('FILE', name).replaceAll('BASE', basename(name, extname(name)));
  return { what, file: name, build: build && filled(build), run: filled(run) };
}

function describe({ language, what, build, run }: { language: string } & ReturnType<typeof commandsOf>): string {
  return `  ${language.padEnd(12)} ${what}: ${build ? `${build} && ` : ''}${run}`;
}
