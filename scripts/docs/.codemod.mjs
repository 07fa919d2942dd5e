import { readFileSync, writeFileSync } from 'node:fs';
import ts from 'typescript';
import { messages } from './messages.mjs';
const byFile = new Map();
for (const m of messages()) if (m.prose !== undefined) { const f = m.at.split(':')[0]; if (!byFile.has(f)) byFile.set(f, 1); }
const inner = (n) => ts.isStringLiteral(n) || ts.isNoSubstitutionTemplateLiteral(n) ? n.text.replace(/[`\\]|\$\{/g, (c) => '\\' + c) : ts.isTemplateExpression(n) ? n.getText().slice(1, -1) : '${' + n.getText() + '}';
for (const f of byFile.keys()) {
  const t = readFileSync(f, 'utf8'); const s = ts.createSourceFile(f, t, ts.ScriptTarget.ES2023, true);
  const edits = [];
  const isText = (n) => n && (ts.isStringLiteral(n) || ts.isNoSubstitutionTemplateLiteral(n) || ts.isTemplateExpression(n) || (ts.isConditionalExpression(n) && (isText(n.whenTrue) || isText(n.whenFalse))));
  const visit = (n) => {
    if (ts.isCallExpression(n) && n.expression.getText() === 'refuse' && isText(n.arguments[3])) {
      const [c, w, e, g, x] = n.arguments;
      const next = x === undefined ? '' : `. ${inner(x)}`;
      edits.push([n.getStart(), n.getEnd(), `fail(${c.getText()}, ${w.getText()}, \`expected ${inner(e)}, got ${inner(g)}${next}\`)`]);
    }
    ts.forEachChild(n, visit);
  };
  visit(s);
  let out = t;
  for (const [a, b, r] of edits.sort((p, q) => q[0] - p[0])) out = out.slice(0, a) + r + out.slice(b);
  // imports
  if (!/\bfail\b[^(]*from 'ropewalk\/backend'|import \{[^}]*\bfail\b/.test(t)) out = out.replace(/import \{([^}]*)\brefuse\b([^}]*)\} from 'ropewalk\/backend'/, (all, p, q) => `import {${p}fail, refuse${q}} from 'ropewalk/backend'`);
  if (!/\brefuse\(/.test(out)) out = out.replace(/(import \{[^}]*)\brefuse,?\s*([^}]*\} from 'ropewalk\/backend')/, '$1$2');
  writeFileSync(f, out); console.log(f, edits.length);
}
