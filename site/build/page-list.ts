/** Lists every page of the site except those of Docs, which docs.ts makes from Markdown. @module */

/** A page. */
export interface Page {
  /** Its folder below the site's root, without slashes at the ends; '' is Home. */
  readonly path: string;
  /** Its name in the navigation. Pages without it are not in the navigation. */
  readonly nav?: string;
  /** The title of the window, before "Ropewalk"; with a lead also of the page. */
  readonly title: string;
  /** One sentence for search engines and link previews. */
  readonly description: string;
  /** The path of the module that fills <main>, from site/. */
  readonly entry: string;
  /** The sentences under the title, in HTML, of a page that a script fills. */
  readonly lead?: string;
  /** The HTML in <main> of other pages. */
  readonly content?: string;
  /** The picture of link previews, below the site's root. */
  readonly image?: string;
}

/** Escapes a text for HTML. */
export const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');

/** Describes a page with its own folder in site/src, whose entry has the same name. */
const page = (path: string, nav: string, title: string, description: string, rest: Partial<Page>): Page => ({
  path,
  nav,
  title,
  description,
  entry: `src/${path}/${path}.tsx`,
  ...rest,
});

export const PAGES: readonly Page[] = [
  {
    path: '',
    title: 'Rotary position embedding, exact in every dialect',
    description:
      'The operators of a decoder-only transformer in TypeScript, RoPE first: exact, fast, in every dialect.',
    lead: "Ropewalk has the operators of a decoder-only transformer in TypeScript, RoPE first: checked against a float64 reference and the peers' own vectors, on CPU and GPU, as ONNX graphs and through WebNN for NPUs, with tools that say what a kernel does wrong.",
    entry: 'src/home/home.tsx',
  },
  page('learn', 'Learn', 'RoPE explained', 'Rotary position embedding in ten minutes, by things that move.', {
    lead: 'Attention compares tokens, and has no idea of their order. Rotary position embedding gives it one: it turns every query and key by an angle that grows with the position. Ten minutes, and everything here moves.',
  }),
  page(
    'explore',
    'Explore',
    'The RoPE of a model',
    'What RoPE a model really has, layer by layer, in the words of every peer.',
    {
      lead: 'What a model really rotates, layer by layer: how fast each pair turns, what scaling does to it, and the same in the words of twelve peers.',
    },
  ),
  page(
    'diagnose',
    'Diagnose',
    'What a kernel did wrong',
    'Drop the input and output of a RoPE kernel: what it did wrong.',
    {
      lead: 'Give what a RoPE kernel read and wrote. The report says which dimensions it rotated, in which pairs, by which frequencies and positions, and which known bug that is. The kernel may run anywhere, in any language.',
    },
  ),
  page(
    'probe',
    'Probe',
    'What does this server really rotate?',
    'The RoPE, positions and weights of a model server, from its log-probabilities or a recording of them.',
    {
      lead: 'A model server gives log-probabilities, and those by position tell its base, scaling, pairs, window and positions. The model runs in this page, and its files stay on your device.',
    },
  ),
  page(
    'museum',
    'Museum',
    'The museum of wrong kernels',
    'Every known bug of RoPE kernels as a picture, with its threads.',
    { entry: 'src/museum/museum.ts' },
  ),
  page(
    'write',
    'Write',
    'Write a kernel',
    'Write a RoPE kernel in the browser: run on real cases, diagnosed in sentences, with ten puzzles.',
    {
      lead: 'A RoPE kernel of your own, run in this page on the cases of <a href="../docs/verify/">verify</a>. What is wrong with it is said in a sentence.',
    },
  ),
  page('check', 'Check', 'What this browser gets right', 'Runs every suite on the CPU, GPU and NPU of this browser.', {
    lead: 'Every test case that Ropewalk has, run here on the CPU and the GPU, and through WebNN on what the browser has for it: the vectors of ggml, ONNX, InfiniOp, LLAISYS, CANN, HuggingFace and flash-attn, each within its own tolerance.',
  }),
  page(
    'bench',
    'Bench',
    'How fast this browser is',
    'Times the operators in this browser, beside a copy of the same bytes.',
    {
      lead: 'RoPE, linear, attention and norm in this browser, each beside a copy of the same bytes: what memory allows.',
    },
  ),
  page(
    'generate',
    'Generate',
    'Run a model',
    'Runs a language model in this page, from files that never leave your device.',
    {
      lead: 'A decoder for Llama, Qwen, Gemma, DeepSeek, gpt-oss and other families, in a worker of this page. Files that you drop stay on your device.',
    },
  ),
  page(
    'aicore',
    'AI Core',
    'RoPE on the Ascend AI Core',
    'RoPE kernels on a model of the Ascend AI Core, cycle by cycle.',
    {
      lead: 'RoPE kernels, or one of your own, in the calls of AscendC, on a model of the vector core of architecture 2201. It computes, counts cycles, and reports faults. It is a model: no NPU runs here, and times are modelled from 13 public device rows. <a href="../docs/aicore/">How it works</a>',
    },
  ),
];
