/**
 * Lists every message of the packages as it stands in the sources: the CODE, then the sentence with its {expressions}.
 *
 * Usage: node scripts/docs/messages.mjs. Run npm run docs or npm run peers before, which install TypeScript 6, because
 * TypeScript 7 has no interface for programs.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Returns the text of a literal with {expressions}, or undefined if the node is not a literal. */
function textOf(node) {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return node.text;
  if (ts.isTemplateExpression(node))
    return (
      node.head.text + node.templateSpans.map((span) => `{${short(span.expression)}}${span.literal.text}`).join('')
    );
  if (ts.isConditionalExpression(node)) {
    const [yes, no] = [textOf(node.whenTrue), textOf(node.whenFalse)];
    return yes === undefined && no === undefined
      ? undefined
      : `{${yes ?? short(node.whenTrue)} | ${no ?? short(node.whenFalse)}}`;
  }
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    const [a, b] = [textOf(node.left), textOf(node.right)];
    return a === undefined && b === undefined
      ? undefined
      : `${a ?? `{${short(node.left)}}`}${b ?? `{${short(node.right)}}`}`;
  }
  return undefined;
}
const short = (node) => node.getText().replace(/\s+/g, ' ').slice(0, 60);
const said = (node) => (node === undefined ? '' : (textOf(node) ?? `{${short(node)}}`));

/**
 * Finds the calls that make messages.
 *
 * @returns for each call its place, its function, its arguments as text, and the value for `refuse` if it is written
 *   out as words
 */
export function messages() {
  const found = [];
  for (const folder of readdirSync(join(root, 'packages'))) {
    const src = join(root, 'packages', folder, 'src');
    for (const name of readdirSync(src, { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts') || /(^|[\\/])assembly[\\/]|generated/.test(name)) continue;
      const path = join(src, name);
      const file = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.ES2023, true);
      const visit = (node) => {
        if (ts.isCallExpression(node) || ts.isNewExpression(node)) {
          const by = node.expression.getText();
          const [code, where, third, got, next] = node.arguments ?? [];
          const at = `${relative(root, path).replaceAll('\\', '/')}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}`;
          if (file.fileName.endsWith('core/errors.ts')) return; // this file defines the functions
          if (by === 'refuse')
            found.push({
              at,
              by,
              text: `${said(code)} ${said(where)}: expected ${said(third)}, got ${said(got)}${next ? `. ${said(next)}` : ''}`,
              prose: got !== undefined && textOf(got) !== undefined ? textOf(got) : undefined,
            });
          else if (by === 'fail')
            found.push({
              at,
              by,
              text: `${said(code)} ${said(where)}: ${said(third)}`,
              sentence: third && textOf(third),
            });
          else if (by === 'RopewalkError') found.push({ at, by, text: `${said(code)} ${said(where)}` });
        }
        ts.forEachChild(node, visit);
      };
      visit(file);
    }
  }
  return found;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const { at, text } of messages()) console.log(`${at}  ${text}`);
