/**
 * Checks the comments: a comment is one or two whole sentences with a subject and a verb. Some patterns that are none have
 * names here (CONTRIBUTING.md, "Rules").
 *
 * Usage: node scripts/check-comments.mjs [FOLDER…]. Exits 1 and names each line.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fromRoot, ROOT } from './imports.mjs';

const FOLDERS = ['packages', 'site', 'bench', 'test', 'scripts'];

/** How a comment may not start: it has no subject then. */
const STARTS = [
  [/^Of\b/, 'starts with "Of": say what it is, "Marks …", "Counts …"'],
  [/^What (?!(is|are|does|do|happens)\b.*\?$)/, 'starts with "What": name the thing, "The tokens that …"'],
];
/** What may stand nowhere in a comment. */
const ANYWHERE = [
  [/\bunless given\b/, '"unless given": say the default, "Default: 1."'],
  [/\bseed document\b/i, '"seed document": name the published project'],
  [/\b(woven|takeHome|HOPELESS)\b/, 'a word of our own: use the field’s'],
];

/** The comments of a source: each with the number of its first line, and its lines without the marks. */
function* commentsOf(text) {
  let open;
  for (const [index, line] of text.split('\n').entries()) {
    const block = /^\s*(\/\*\*?|\*(?!\/)|\/\/)\s?(.*?)\s*(\*\/)?$/.exec(line);
    const starts = block && block[1] !== '*' && !(block[1] === '//' && open?.mark === '//');
    if (open && (!block || starts)) {
      yield open;
      open = undefined;
    }
    if (block) {
      if (starts) open = { at: index + 1, mark: block[1], lines: [] };
      open?.lines.push(block[2]);
    } else {
      const trailing = /\s\/\/ (.*)$/.exec(line);
      if (trailing) yield { at: index + 1, lines: [trailing[1]] };
    }
  }
  if (open) yield open;
}

const named = process.argv.slice(2);
const files = (named.length > 0 ? named : FOLDERS.map((folder) => join(ROOT, folder))).flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(
      (name) =>
        /\.(tsx?|mjs)$/.test(name) &&
        !/(^|[\\/])(node_modules|dist|fixtures)[\\/]|\.generated\.|check-comments/.test(name),
    )
    .map((name) => join(folder, name)),
);
let problems = 0;
for (const file of files) {
  for (const { at, lines } of commentsOf(readFileSync(file, 'utf8'))) {
    const first = lines.findIndex((line) => line !== '');
    const say = (line, why) => {
      problems++;
      console.error(`${fromRoot(file)}:${at + line}: ${why}`);
    };
    for (const [pattern, why] of STARTS) if (pattern.test(lines[first] ?? '')) say(first, why);
    for (const [index, line] of lines.entries())
      for (const [pattern, why] of ANYWHERE) if (pattern.test(line)) say(index, why);
  }
}
console.log(`check-comments: ${files.length} files, ${problems} problems`);
process.exitCode = problems > 0 ? 1 : 0;
