/** Counts the figures that pages show when the site is built, so that they are always current. @module */
import { join } from 'node:path';
import { MUTANTS } from '@ropewalk/diagnose';
import { extendedCases, goldenOperatorSuite, goldenRopeSuite, publishedCases, vectorCases } from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import type { Plugin } from 'vite';

const ID = 'virtual:figures';

/** Provides `import { CASES, KNOWN_BUGS } from 'virtual:figures'`. */
export function figures(): Plugin {
  return {
    name: 'ropewalk:figures',
    resolveId: (id) => (id === ID ? `\0${ID}` : undefined),
    load: (id) => {
      if (id !== `\0${ID}`) return undefined;
      const vectors = vectorFolder(join(import.meta.dirname, '../../vectors'));
      const cases = [
        ...publishedCases(),
        ...extendedCases(),
        ...goldenRopeSuite(),
        ...goldenOperatorSuite(),
        ...vectorCases(vectors),
      ];
      return `export const CASES = ${cases.length}; export const KNOWN_BUGS = ${MUTANTS.length};`;
    },
  };
}
