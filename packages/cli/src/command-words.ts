/** Splits a command into words as a shell does, without a shell. @module */
import { refuse } from 'ropewalk/backend';

/** Characters that only a shell interprets. They are refused, because here they would have no effect. */
const SHELL_ONLY = /[|&;<>()$`]/;

/**
 * Splits a command line into its words: blanks separate, single quotes keep everything, double quotes and backslashes
 * keep blanks and quotes. Nothing is expanded and nothing is run; what only a shell interprets is refused.
 */
export function splitWords(text: string, where: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  for (let at = 0; at < text.length; at++) {
    const c = text[at]!;
    if (c === '\0') refuse('FORMAT', where, 'a command without NUL characters', text);
    if (/\s/.test(c)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (c === "'" || c === '"') {
      const end = closingQuote(text, at);
      if (end < 0) refuse('FORMAT', where, `a closing ${c}`, text.slice(at));
      const inside = text.slice(at + 1, end);
      if (c === '"' && /[$`]/.test(inside.replace(/\\./g, ''))) refuseShell(where, inside);
      word = (word ?? '') + (c === '"' ? inside.replace(/\\(["\\$`])/g, '$1') : inside);
      at = end;
    } else if (c === '\\') {
      if (at + 1 === text.length) refuse('FORMAT', where, 'a character after the last \\', text);
      word = (word ?? '') + text[++at]!;
    } else {
      if (SHELL_ONLY.test(c)) refuseShell(where, text.slice(at));
      word = (word ?? '') + c;
    }
  }
  if (word !== undefined) words.push(word);
  if (words.length === 0 || words[0] === '') refuse('FORMAT', where, 'a command', text);
  return words;
}

function closingQuote(text: string, at: number): number {
  if (text[at] === "'") return text.indexOf("'", at + 1);
  for (let end = at + 1; end < text.length; end++) {
    if (text[end] === '\\') end++;
    else if (text[end] === '"') return end;
  }
  return -1;
}

function refuseShell(where: string, got: string): never {
  return refuse(
    'FORMAT',
    where,
    'words alone, as no shell reads the command',
    got,
    'Put it in single quotes if it is plain text, or start a shell yourself: --program "sh -c \'…\'".',
  );
}
