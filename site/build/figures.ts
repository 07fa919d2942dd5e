/** Counts the figures that pages show when the site is built, so that they are always current. @module */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MUTANTS } from '@ropewalk/diagnose';
import { extendedCases, goldenOperatorSuite, goldenRopeSuite, publishedCases, vectorCases } from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import type { Plugin } from 'vite';

const ID = 'virtual:figures';
/** The suites whose results a peer's own program computed, as vectors/README.md says. */
const BY_PEERS = new Set(['ggml', 'huggingface', 'onnx', 'onnx-contrib']);

/** The weights of the bundled model: their count, and the bytes of the file. */
function marline(): { readonly weights: number; readonly bytes: number } {
  const file = readFileSync(join(import.meta.dirname, '../../models/marline/model.safetensors'));
  const header = JSON.parse(file.toString('utf8', 8, 8 + Number(file.readBigUInt64LE(0))));
  const shapes = Object.values<{ shape?: number[] }>(header).flatMap(({ shape }) => (shape ? [shape] : []));
  const sizes = shapes.map((shape) => shape.reduce((a, b) => a * b, 1));
  return { weights: sizes.reduce((a, b) => a + b, 0), bytes: file.length };
}

/** Provides the numbers of `virtual:figures`. */
export function figures(): Plugin {
  return {
    name: 'ropewalk:figures',
    resolveId: (id) => (id === ID ? `\0${ID}` : undefined),
    load: (id) => {
      if (id !== `\0${ID}`) return undefined;
      const vectors = vectorFolder(join(import.meta.dirname, '../../vectors'));
      const peers = [...vectorCases(vectors)];
      const own = [publishedCases(), extendedCases(), goldenRopeSuite(), goldenOperatorSuite()].flat();
      // ONNX Runtime has no CPU kernel of GemmaRotaryEmbedding.
      const byPeers = peers.filter(({ suite, label }) => BY_PEERS.has(suite) && !/gemma/i.test(label)).length;
      const kernel = JSON.parse(
        readFileSync(join(import.meta.dirname, '../../packages/ropewalk/package.json'), 'utf8'),
      );
      const { weights, bytes } = marline();
      const found = {
        BY_FORMULAS: peers.length - byPeers,
        BY_PEERS: byPeers,
        CASES: peers.length + own.length,
        DEPENDENCIES: Object.keys(kernel.dependencies ?? {}).length,
        KNOWN_BUGS: MUTANTS.length,
        MARLINE_BYTES: bytes,
        MARLINE_WEIGHTS: weights,
      };
      return Object.entries(found)
        .map(([name, count]) => `export const ${name} = ${count};`)
        .join('\n');
    },
  };
}
