/** Reads the examples of a documentation page, which are its fenced blocks. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGES, ROOT } from './build.js';

/** A fenced block and the block of output after it. */
export interface Example {
  readonly page: string;
  /** The page and the line. */
  readonly title: string;
  readonly code: string;
  /** The content of the ```text block after it, if there is one. */
  readonly output: string | undefined;
}

/** Lists every fenced block of a page, in order. */
export function blocksOf(page: string): { readonly language: string; readonly title: string; readonly code: string }[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  return Array.from(text.matchAll(/^```([^\n]*)\n(.*?)^```$/gms), ({ 1: language, 2: code, index }) => ({
    language: language!,
    title: `${page}:${text.slice(0, index).split('\n').length}`,
    code: code!,
  }));
}

/**
 * Finds the blocks of one language on a page, each with the ```text block after it.
 *
 * @param page - the path from the repository's root
 * @param language - the language in the fence
 */
export function examplesOf(page: string, language: string): Example[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  const blocks = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`\\n(?:\\s*^\`\`\`text\\n(.*?)^\`\`\`)?`, 'gms');
  return Array.from(text.matchAll(blocks), (match) => ({
    page,
    title: `${page}:${text.slice(0, match.index).split('\n').length}`,
    code: match[1]!,
    output: match[2],
  }));
}

/** Every page of the documentation except those that TypeDoc makes. */
export const PAGES: readonly string[] = [
  'README.md',
  ...[...PACKAGES.keys()].map((name) => join('packages', name, 'README.md')),
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => !/^api[\\/]/.test(name))
    .map((name) => join('docs', name)),
]
  .filter((name) => name.endsWith('.md'))
  .sort();
