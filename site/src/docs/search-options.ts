/** How the docs are searched: the same where the index is made and where it is read. @module */
import type { Options } from 'minisearch';

/** A section of a page, as a result shows it. */
export interface Found {
  /** The page's name below docs/, `#`, and the heading's id. */
  readonly id: string;
  /** The page's title. */
  readonly page: string;
  readonly title: string;
}

/** Words of questions, which are no words of a page: "half vs interleaved" asks for the other two. */
const LEFT_OUT = new Set(
  'a an and are between can difference do does for how i in is it my of on or the to versus vs what when which with'.split(
    ' ',
  ),
);
/**
 * How much the sections of a page, or of a folder, weigh where not 1: the glossary explains a word; records and the API
 * reference mention every word.
 */
const WEIGHTS: Readonly<Record<string, number>> = {
  glossary: 3,
  changelog: 0.2,
  features: 0.5,
  contributing: 0.5,
  api: 0.3,
};

/** Options of MiniSearch. */
export const DOCS_SEARCH: Options = {
  fields: ['title', 'page', 'text'],
  storeFields: ['title', 'page'],
  processTerm: (term) => (LEFT_OUT.has(term.toLowerCase()) ? null : term.toLowerCase()),
  searchOptions: {
    boost: { title: 4, page: 2 },
    prefix: true,
    fuzzy: 0.15,
    combineWith: 'AND',
    boostDocument: (id: string) => WEIGHTS[id.split(/[#/]/)[0]!] ?? 1,
  },
};
