/** Counts the figures that pages show when the site is built, so that they are always current. @module */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MUTANTS } from '@ropewalk/diagnose';
import { extendedCases, goldenOperatorSuite, goldenRopeSuite, publishedCases, vectorCases } from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import type { Plugin } from 'vite';
import models from '../src/explore/models.json' with { type: 'json' };

const ID = 'virtual:figures';
/** The suites whose results a peer's own program computed, as vectors/README.md says. */
const BY_PEERS = new Set(['ggml', 'huggingface', 'onnx', 'onnx-contrib']);

/** The weights of the bundled model: their count, and the bytes of the file. */
function marlineSize(): { readonly weights: number; readonly bytes: number } {
  const file = readFileSync(join(import.meta.dirname, '../../models/marline/model.safetensors'));
  const header = JSON.parse(file.toString('utf8', 8, 8 + Number(file.readBigUInt64LE(0))));
  const shapes = Object.values<{ shape?: number[] }>(header).flatMap(({ shape }) => (shape ? [shape] : []));
  const sizes = shapes.map((shape) => shape.reduce((a, b) => a * b, 1));
  return { weights: sizes.reduce((a, b) => a + b, 0), bytes: file.length };
}

/** The weights of SmolLM2-135M, which is not here, by the shape that its config.json gives: their count, and their bytes in bf16. */
function smolLm2Size(): { readonly weights: number; readonly bytes: number } {
  const { config } = models.find(({ id }) => id === 'HuggingFaceTB/SmolLM2-135M') as {
    config: Record<'hidden_size' | 'num_hidden_layers' | 'num_attention_heads' | 'num_key_value_heads', number>;
  };
  const {
    hidden_size: size,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
  } = config;
  const [vocabulary, inner] = [49152, 1536]; // fields that RoPE does not need are not in the list
  const attention = 2 * size * size + 2 * size * (size / heads) * kvHeads;
  // The head is tied; two norms a layer, and one at the end.
  const weights = vocabulary * size + layers * (attention + 3 * size * inner + 2 * size) + size;
  return { weights, bytes: 2 * weights };
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
      const [marline, smolLm2] = [marlineSize(), smolLm2Size()];
      const found = {
        BY_FORMULAS: peers.length - byPeers,
        BY_PEERS: byPeers,
        CASES: peers.length + own.length,
        DEPENDENCIES: Object.keys(kernel.dependencies ?? {}).length,
        KNOWN_BUGS: MUTANTS.length,
        MARLINE_BYTES: marline.bytes,
        MARLINE_WEIGHTS: marline.weights,
        SMOLLM2_BYTES: smolLm2.bytes,
        SMOLLM2_WEIGHTS: smolLm2.weights,
      };
      return Object.entries(found)
        .map(([name, count]) => `export const ${name} = ${count};`)
        .join('\n');
    },
  };
}
