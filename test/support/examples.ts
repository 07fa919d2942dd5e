/** The examples of a documentation page: its fenced blocks. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGES, ROOT } from './build.js';

/** A fenced block, and the block of output that follows it. */
export interface Example {
  readonly page: string;
  /** Page and line. */
  readonly title: string;
  readonly code: string;
  /** What the ```text block after it shows, if there is one. */
  readonly output: string | undefined;
}

/** Every fenced block of a page, in order. */
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
 * @param page - path from the repository's root
 * @param language - as the fence names it
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

/** Every page of the documentation, but those that TypeDoc makes. */
export const PAGES: readonly string[] = [
  'README.md',
  ...[...PACKAGES.keys()].map((name) => join('packages', name, 'README.md')),
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => !/^api[\\/]/.test(name))
    .map((name) => join('docs', name)),
]
  .filter((name) => name.endsWith('.md'))
  .sort();
