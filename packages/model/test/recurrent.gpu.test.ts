/** Families whose layers have states, on webgpu: transformers' logits, whole and in pieces (golden/recurrent). */
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseNpz } from '@ropewalk/formats';
import { check } from '../../../test/support/family-vectors.js';
import { noGpu, openShared } from '../../../test/support/gpu.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';

const GOLDEN = fileURLToPath(new URL('golden/recurrent', import.meta.url));

describe('webgpu', { skip: noGpu }, () => {
  for (const file of [
    'lfm2.gguf',
    'lfm2_moe.safetensors',
    'qwen3_next.safetensors',
    'qwen3_5.gguf',
    'granitemoehybrid-mamba.gguf',
    'falcon_h1-norm.gguf',
    'falcon_h1-bias.safetensors',
    'nemotron_h.gguf',
    'nemotron_h-latent.safetensors',
  ])
    test(file, async () => {
      const [name] = file.split('.') as [string];
      const arrays = parseNpz(readFileSync(join(GOLDEN, `${name}.npz`)));
      const logits = arrays.get('logits')!.data as Float32Array;
      const tokens = Array.from(arrays.get('tokens')!.data as Int32Array);
      const folder = mkdtempSync(join(tmpdir(), 'ropewalk-recurrent-'));
      const options = { backend: await openShared('webgpu'), tokenizer: false, context: 64 } as const;
      copyFileSync(join(GOLDEN, `${name}.json`), join(folder, 'config.json'));
      copyFileSync(join(GOLDEN, `${name}.safetensors`), join(folder, 'model.safetensors'));
      const model = await (file.endsWith('.gguf')
        ? loadModelFile(join(GOLDEN, file), options)
        : loadModelFolder(folder, options));
      const session = model.openSession();
      try {
        check(await session.append(tokens, { logits: 'all' }), logits, 1e-4, 'whole');
        session.truncate(0);
        for (const [from, to] of [
          [0, 2],
          [2, 3],
          [3, 24],
        ] as const)
          check(
            await session.append(tokens.slice(from, to), { logits: 'all' }),
            logits.subarray(from * model.config.vocabSize, to * model.config.vocabSize),
            1e-4,
            `from ${from} on`,
          );
      } finally {
        model.dispose();
        rmSync(folder, { recursive: true });
      }
    });
});
