/** The search options of the docs, which the build of the index and the page share. @module */
import type { Options } from 'minisearch';

/** A section of a page, as a result shows it. */
export interface Found {
  /** The page's name below docs/, `#`, and the heading's id. */
  readonly id: string;
  /** The page's title. */
  readonly page: string;
  readonly title: string;
}

/** Words of questions that the search ignores: in "half vs interleaved" only the other two words matter. */
const LEFT_OUT = new Set(
  'a an and are between can difference do does for how i in is it my of on or the to versus vs what when which with'.split(
    ' ',
  ),
);
/**
 * The weight of the sections of a page or a folder. Default: 1. The glossary explains words, so it weighs more; records
 * and the API reference mention every word, so they weigh less.
 */
const WEIGHTS: Readonly<Record<string, number>> = {
  glossary: 3,
  changelog: 0.2,
  features: 0.5,
  contributing: 0.5,
  api: 0.3,
};

/** The options of MiniSearch. */
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
