/**
 * Builds Docs: every Markdown page of the repository as a page of the site, a search index, and the examples.
 *
 * @module
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import diff from 'highlight.js/lib/languages/diff';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import python from 'highlight.js/lib/languages/python';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import MarkdownIt from 'markdown-it';
import MiniSearch from 'minisearch';
import { type Plugin, transformWithEsbuild } from 'vite';
import { DOCS_SEARCH } from '../src/docs/search-options.js';
import type { Page } from './page-list.js';

const ROOT = join(import.meta.dirname, '../..');

for (const [name, language] of Object.entries({ bash, c, cpp, diff, javascript, json, python, typescript, xml, yaml }))
  hljs.registerLanguage(name, language);
/** Maps the language names of our fences to the highlighter's. Other languages are plain text. */
const LANGUAGES: Readonly<Record<string, string>> = {
  c: 'c',
  cpp: 'cpp',
  diff: 'diff',
  html: 'xml',
  js: 'javascript',
  json: 'json',
  jsx: 'javascript',
  python: 'python',
  sh: 'bash',
  ts: 'typescript',
  yaml: 'yaml',
};

/**
 * The side navigation: names of pages below docs/, by group. Pages in no group are listed under their folder's name.
 */
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  Start: ['readme', 'port-a-kernel', 'in-a-page', 'cli', 'site', 'glossary'],
  Workflows: [
    'workflows/ggml-cann',
    'workflows/llaisys',
    'workflows/onnx',
    'workflows/infiniop-ascend',
    'workflows/aclnn',
  ],
  Kernels: ['diagnose', 'verify', 'vectors', 'mutants'],
  Models: ['model', 'trace', 'probe', 'to-gguf', 'convert', 'diff', 'passport', 'permute', 'import', 'export'],
  Backends: ['cpu', 'webgpu', 'webnn', 'onnxruntime', 'kv-caches'],
  NPUs: ['devices', 'aicore', 'aicore-kernels'],
  Project: ['features', 'changelog', 'contributing', 'bench', 'golden-vectors', 'marline'],
};

/** A Markdown file of the repository. */
interface Source {
  /** The path from the repository's root. */
  readonly file: string;
  /** The name of its page, below docs/ of the site. */
  readonly name: string;
  readonly text: string;
}

/** A section of a page, for the search index. */
interface Section {
  readonly id: string;
  readonly page: string;
  readonly title: string;
  readonly text: string;
}

const markdownIn = (folder: string): string[] =>
  readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => `${folder}/${name}`);

/** Lists the file and the name of every page. */
function sources(): Source[] {
  const named: [file: string, name: string][] = [
    ...['README', 'FEATURES', 'CHANGELOG', 'CONTRIBUTING'].map((name): [string, string] => [
      `${name}.md`,
      name.toLowerCase(),
    ]),
    ...markdownIn('docs').map((file): [string, string] => [file, file.slice('docs/'.length, -3)]),
    ...['docs/dialects', 'docs/workflows']
      .flatMap(markdownIn)
      .map((file): [string, string] => [file, file.slice('docs/'.length, -3)]),
    ...readdirSync(join(ROOT, 'packages')).map((name): [string, string] => [
      `packages/${name}/README.md`,
      `packages/${name}`,
    ]),
    ['bench/README.md', 'bench'],
    ['vectors/README.md', 'golden-vectors'],
    ['models/marline/README.md', 'marline'],
    ...(existsSync(join(ROOT, 'docs/api/README.md')) ? markdownBelow('docs/api') : []),
  ];
  return named.map(([file, name]) => ({
    file,
    name,
    // The front matter is removed, because it is for the hub that shows a model's page.
    text: readFileSync(join(ROOT, file), 'utf8').replace(/^---\n[\s\S]*?\n---\n/, ''),
  }));
}

/** Lists the pages of the API reference, which `npm run docs` writes. */
function markdownBelow(folder: string): [file: string, name: string][] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => [`${folder}/${name}`, `api/${name.slice(0, -3)}`.replace(/\/(README|index)$/, '')]);
}

/** Makes a heading's id as GitHub does, so that links work in both places. */
const idOf = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replace(/\s/g, '-');

/** Says whether an example runs in a page: it imports only entries for browsers, and reads and fetches no file. */
export function runsInPage(code: string): boolean {
  const imports = [...code.matchAll(/from '([^']+)'/g)].map(([, name]) => name!);
  const forPages = imports.every((name) => /^(ropewalk|@ropewalk\/(?!cli)[a-z]+)(\/reference|\/backend)?$/.test(name));
  return (
    imports.length > 0 &&
    forPages &&
    !/\b(process|Buffer|require|document|readFile|openOnnxruntime|fetch(Source)?)\b|models\/|\.gguf'/.test(code)
  );
}

/** Renders all pages. */
class Docs {
  readonly pages: Page[] = [];
  readonly sections: Section[] = [];
  /** The code of the examples that run in a page, by id. */
  readonly examples = new Map<string, string>();
  /** The files of pictures, from the repository's root, by name. */
  readonly images = new Map<string, string>();
  readonly #byFile: ReadonlyMap<string, Source>;
  readonly #titles = new Map<string, string>();

  constructor() {
    const all = sources();
    this.#byFile = new Map(all.map((source) => [source.file, source]));
    for (const { name, text } of all) this.#titles.set(name, /^# (.+)$/m.exec(text)?.[1]?.replaceAll('`', '') ?? name);
    for (const source of all) this.#render(source);
    this.pages.unshift({
      path: 'docs',
      title: 'Documentation',
      description: 'Every page of the documentation and the API reference, with search that works offline.',
      entry: 'src/docs/docs.ts',
      content: this.#frame('', `<h1>Documentation</h1>${this.#index()}`, ''),
    });
  }

  #render(source: Source): void {
    const { file, name, text } = source;
    const up = '../'.repeat(name.split('/').length);
    const md = new MarkdownIt({ html: false, linkify: false });
    const seen = new Map<string, number>();
    const ids = new Set<string>();
    const toc: string[] = [];
    let examples = 0;
    md.renderer.rules.heading_open = (tokens, i) => {
      const inner = tokens[i + 1]!.content;
      const plain = inner.replace(/[`*]/g, '').replace(/\[([^\]]*)\]\([^)]*\)/g, '$1');
      const base = idOf(plain);
      const count = seen.get(base) ?? 0;
      seen.set(base, count + 1);
      const id = count === 0 ? base : `${base}-${count}`;
      ids.add(id);
      const { tag } = tokens[i]!;
      if (tag === 'h2' || tag === 'h3')
        toc.push(`<li class="docs-${tag}"><a href="#${id}">${md.utils.escapeHtml(plain)}</a></li>`);
      this.sections.push({
        id: `${name}#${id}`,
        page: this.#titles.get(name)!,
        title: plain,
        text: sectionText(tokens, i),
      });
      return `<${tag} id="${id}">`;
    };
    md.renderer.rules.fence = (tokens, i) => {
      const { info, content } = tokens[i]!;
      const language = LANGUAGES[info.trim()];
      const code = language ? hljs.highlight(content, { language }).value : md.utils.escapeHtml(content);
      let run = '';
      if (info.trim() === 'ts' && runsInPage(content)) {
        const id = `${name}-${examples++}`;
        this.examples.set(id, content);
        run = ` data-example="${id}"`;
      }
      if (info.trim() === 'text' && tokens[i - 1]?.type === 'fence') run = ' data-output';
      return `<div class="copyable docs-code"${run}><pre tabindex="0"><code>${code}</code></pre></div>`;
    };
    md.renderer.rules.table_open = () => '<div class="scroll" tabindex="0"><table>';
    md.renderer.rules.table_close = () => '</table></div>';
    // An empty header cell is an ordinary cell for screen readers.
    md.renderer.rules.th_open = (tokens, i) =>
      tokens[i + 1]!.content === '' ? '<td>' : `<th scope="col"${alignOf(tokens[i]!)}>`;
    md.renderer.rules.th_close = (tokens, i) => (tokens[i - 1]!.content === '' ? '</td>' : '</th>');
    md.renderer.rules.td_open = (tokens, i) => `<td${alignOf(tokens[i]!)}>`;
    md.renderer.rules.link_open = (tokens, i) => {
      const href = attribute(tokens[i]!, 'href');
      if (/^(https?:|#)/.test(href)) return `<a href="${md.utils.escapeHtml(href)}">`;
      const [path = '', hash = ''] = href.split('#');
      const target = this.#byFile.get(normalize(join(dirname(file), path)).replaceAll('\\', '/'));
      // The file is not a page of the site, so its name stays as text.
      if (target === undefined) return `<span class="docs-file" title="${md.utils.escapeHtml(path)}">`;
      tokens[i]!.meta = { page: true };
      return `<a href="${up}${target.name}/${hash && `#${hash}`}">`;
    };
    md.renderer.rules.link_close = (tokens, i) => {
      for (let k = i - 1; k >= 0; k--)
        if (tokens[k]!.type === 'link_open')
          return tokens[k]!.meta?.page || /^(https?:|#)/.test(attribute(tokens[k]!, 'href')) ? '</a>' : '</span>';
      return '</a>';
    };
    md.renderer.rules.image = (tokens, i) => {
      const path = normalize(join(dirname(file), attribute(tokens[i]!, 'src'))).replaceAll('\\', '/');
      const name = path.split('/').at(-1)!;
      this.images.set(name, path);
      return `<img src="${up}../data/images/${name}" alt="${escapeHtml(tokens[i]!.content)}">`;
    };
    // TypeDoc numbers headings that differ only in case.
    const html = md
      .render(text)
      .replace(/href="#([^"]+?)(-\d+)"/g, (link, id, number) => (ids.has(id + number) ? link : `href="#${id}"`));
    const title = this.#titles.get(name)!;
    const first =
      /<p>(.*?)<\/p>/s
        .exec(html)?.[1]
        ?.replace(/<[^>]+>/g, '')
        .replace(/\s+/g, ' ') ?? title;
    this.pages.push({
      path: `docs/${name}`,
      title,
      description: first.length > 155 ? `${first.slice(0, 152)}…` : first,
      entry: 'src/docs/docs.ts',
      content: this.#frame(
        name,
        name.startsWith('api/') ? folded(html) : html,
        toc.length > 1 ? `<ul>${toc.join('')}</ul>` : '',
      ),
    });
  }

  /** Makes the list of all pages, as links from docs/ or, with `here`, from a page. */
  #index(here = ''): string {
    const up = here === '' ? '' : '../'.repeat(here.split('/').length);
    const all = [...this.#titles.keys()];
    const named = new Set(Object.values(GROUPS).flat());
    const groups: [string, readonly string[]][] = [
      ...Object.entries(GROUPS).map(([group, names]): [string, readonly string[]] => [
        group,
        names.filter((name) => all.includes(name)),
      ]),
      ['Dialects', all.filter((name) => name.startsWith('dialects/'))],
      ['Packages', all.filter((name) => name.startsWith('packages/'))],
      ['API reference', all.filter((name) => name.startsWith('api'))],
      ['More', all.filter((name) => !name.includes('/') && name !== 'api' && !named.has(name))],
    ];
    const api = all.some((name) => name === 'api')
      ? ''
      : '<section><h2>API reference</h2><p>It is not in this build: <code>npm run docs</code> writes it.</p></section>';
    const lists = groups
      .filter(([, names]) => names.length > 0)
      .map(([group, names]) => {
        const links = names.map((name) => {
          const label = escapeHtml(shortTitle(name, this.#titles.get(name)!));
          return `<li><a href="${up}${name}/"${name === here ? ' aria-current="page"' : ''}>${label}</a></li>`;
        });
        return `<section><h2>${group}</h2><ul>${links.join('')}</ul></section>`;
      });
    return lists.join('') + api;
  }

  #frame(name: string, html: string, toc: string): string {
    const side =
      name === ''
        ? ''
        : `<details class="docs-side"><summary>All pages</summary><nav aria-label="Docs">${this.#index(name)}</nav></details>`;
    const beside = toc && `<nav class="docs-toc" aria-label="On this page"><p>On this page</p>${toc}</nav>`;
    return `<div class="docs${name === '' ? ' docs-home' : ''}"><search id="docs-search" data-docs="${'../'.repeat(name === '' ? 0 : name.split('/').length) || './'}"></search>${side}<article class="docs-text">${html}</article>${beside}</div>`;
  }
}

/** Folds each name of an API page, which would be up to 160 screens long. A link to a part of it unfolds it. */
const folded = (html: string): string =>
  html
    .split(/(?=<h[23] id=)/)
    .map((part) =>
      part.replace(/^(<h3 .*?<\/h3>)(.*)$/s, '<details class="docs-name"><summary>$1</summary>$2</details>'),
    )
    .join('');

const escapeHtml = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

type Token = ReturnType<InstanceType<typeof MarkdownIt>['parse']>[number];
const attribute = (token: Token, name: string): string => String(token.attrGet(name) ?? '');

/** Returns the class of a column that is aligned to the right. */
const alignOf = (token: Token): string => (/right/.test(attribute(token, 'style')) ? ' class="number"' : '');

/** Returns a page's name in lists: its title if that is short. */
function shortTitle(name: string, title: string): string {
  if (/^(packages|dialects)\//.test(name)) return name.split('/')[1]!;
  if (name === 'api') return 'All modules';
  if (name.startsWith('api/')) return name.slice('api/'.length);
  const [first = title] = title.split(/[:;]/);
  return first.length <= 42 ? first : name;
}

/** Returns the plain text of a section, from its heading to the next one. */
function sectionText(tokens: readonly { type: string; content: string }[], heading: number): string {
  const parts: string[] = [];
  for (let i = heading + 3; i < tokens.length && tokens[i]!.type !== 'heading_open'; i++)
    if (['inline', 'fence', 'code_block'].includes(tokens[i]!.type)) parts.push(tokens[i]!.content);
  return parts.join(' ');
}

const docs = new Docs();

/** Every page of Docs. */
export const DOCS_PAGES: readonly Page[] = docs.pages;

/** Serves and builds the search index and the pages' pictures. */
export function docsData(): Plugin {
  const index = (): string => {
    const search = new MiniSearch<Section>(DOCS_SEARCH);
    search.addAll(docs.sections);
    return JSON.stringify(search);
  };
  return {
    name: 'ropewalk:docs',
    configureServer: (server) => {
      server.middlewares.use('/data/docs.json', (_, response) => void response.end(index()));
      for (const [name, path] of docs.images)
        server.middlewares.use(`/data/images/${name}`, (_, response) => {
          response.setHeader('Content-Type', name.endsWith('.svg') ? 'image/svg+xml' : 'image/png');
          response.end(readFileSync(join(ROOT, path)));
        });
    },
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: 'data/docs.json', source: index() });
      for (const [name, path] of docs.images)
        this.emitFile({ type: 'asset', fileName: `data/images/${name}`, source: readFileSync(join(ROOT, path)) });
    },
  };
}

const EXAMPLES = 'virtual:examples';

/** Provides `import { EXAMPLES } from 'virtual:examples'`, a function for each id that runs the example. */
export function examples(): Plugin {
  return {
    name: 'ropewalk:examples',
    resolveId: (id) => (id.startsWith(EXAMPLES) ? `\0${id}` : undefined),
    async load(id) {
      if (id === `\0${EXAMPLES}`) {
        const entries = [...docs.examples.keys()].map(
          (name) => `${JSON.stringify(name)}: () => import(${JSON.stringify(`${EXAMPLES}/${name}`)})`,
        );
        return `export const EXAMPLES = {${entries.join(',')}};`;
      }
      const code = docs.examples.get(id.slice(`\0${EXAMPLES}/`.length));
      if (!id.startsWith(`\0${EXAMPLES}/`) || code === undefined) return undefined;
      return (await transformWithEsbuild(code, 'example.ts', { target: 'es2022' })).code;
    },
  };
}
