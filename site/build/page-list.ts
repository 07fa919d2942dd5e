/** Lists every page of the site except those of Docs, which docs.ts makes from Markdown. @module */

/** A page. */
export interface Page {
  /** Its folder below the site's root, without slashes at the ends; '' is Home. */
  readonly path: string;
  /** Its name in the navigation. Pages without it are not in the navigation. */
  readonly nav?: string;
  /** The title of the window, before "Ropewalk". */
  readonly title: string;
  /** One sentence for search engines and link previews. */
  readonly description: string;
  /** The path of the module that fills <main>, from site/. */
  readonly entry: string;
  /** The HTML in <main> before scripts run. */
  readonly content?: string;
  /** The picture of link previews, below the site's root. */
  readonly image?: string;
}

/** Escapes a text for HTML. */
export const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');

/** Describes a page with its own folder in site/src, whose entry has the same name. */
const page = (path: string, nav: string, title: string, description: string, ending = 'tsx'): Page => ({
  path,
  nav,
  title,
  description,
  entry: `src/${path}/${path}.${ending}`,
});

export const PAGES: readonly Page[] = [
  {
    path: '',
    title: 'Exact RoPE for TypeScript',
    description:
      'The operators of a decoder-only transformer in TypeScript, RoPE first: exact, fast, in every dialect.',
    entry: 'src/home/home.tsx',
  },
  page('learn', 'Learn', 'RoPE explained', 'Rotary position embedding in ten minutes, by things that move.'),
  page(
    'explore',
    'Explore',
    'The RoPE of a model',
    'What RoPE a model really has, layer by layer, in the words of every peer.',
  ),
  page(
    'diagnose',
    'Diagnose',
    'What a kernel did wrong',
    'Drop the input and output of a RoPE kernel: what it did wrong.',
  ),
  page(
    'probe',
    'Probe',
    'What a model server rotates',
    'The RoPE, positions and weights of a model server, from its log-probabilities or a recording of them.',
  ),
  page(
    'museum',
    'Museum',
    'The museum of wrong kernels',
    'Every known bug of RoPE kernels as a picture, with its threads.',
    'ts',
  ),
  page(
    'write',
    'Write',
    'Write a kernel',
    'Write a RoPE kernel in the browser: run on real cases, diagnosed in sentences, with ten puzzles.',
  ),
  page('check', 'Check', 'What this browser gets right', 'Runs every suite on the CPU, GPU and NPU of this browser.'),
  page(
    'bench',
    'Bench',
    'How fast this browser is',
    'Times the operators in this browser, beside a copy of the same bytes.',
  ),
  page(
    'generate',
    'Generate',
    'Run a model',
    'Runs a language model in this page, from files that never leave your device.',
  ),
  page(
    'aicore',
    'AI Core',
    'The timeline of the Ascend AI Core',
    'RoPE kernels on a model of the Ascend AI Core, cycle by cycle.',
  ),
];
