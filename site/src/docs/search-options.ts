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

/** Options of MiniSearch. */
export const DOCS_SEARCH: Options = {
  fields: ['title', 'page', 'text'],
  storeFields: ['title', 'page'],
  searchOptions: { boost: { title: 4, page: 2 }, prefix: true, fuzzy: 0.15, combineWith: 'AND' },
};
