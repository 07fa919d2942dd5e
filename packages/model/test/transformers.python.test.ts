/**
 * Runs random models that transformers 5 and 4 made and saved in f32 themselves, beside their logits in torch: whole, in
 * steps with a cache, and at the positions of left padding.
 */
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type Ropewalk, ropewalk } from 'ropewalk';
import { ROOT } from '../../../test/support/build.js';
import { floats } from '../../../test/support/published.js';
import { noPython, runPython } from '../../../test/support/python.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { loadModelFolder } from '../src/node.js';
import { writeGguf, writeSafetensorsFolder } from '../src/repack.node.js';

/** Entries of families.py that are no model of transformers, or that no row computes. */
const ELSEWHERE = ['bailing_moe_v2'];
const entries = readFileSync(join(ROOT, 'scripts/python/families.py'), 'utf8').matchAll(/^ {4}"([\w-]+)": \("/gm);
/** The entries of families.py, and forms of saved_models.py behind them. */
const NAMES = [
  ...[...entries].map(([, name]) => name!).filter((name) => !ELSEWHERE.includes(name)),
  ...'llama+shards qwen3+bf16 gpt_oss+bf16 gemma2+bf16 qwen2+f16 mixtral+fresh qwen2_moe+fresh qwen3_moe+fresh'.split(
    ' ',
  ),
  ...'qwen3_vl_moe+fresh deepseek_v3+fresh granitemoe+fresh minimax_m2+fresh ernie4_5_moe+fresh'.split(' '),
  ...'granitemoehybrid-mamba+fresh nemotron_h-moe+fresh phimoe+fresh'.split(' '),
];
/**
 * transformers 4.57 saves no stacked experts, cannot make a StableLM with norms of q and k, this Qwen3-VL-MoE nor a
 * Llama 4 with images, and scales DeepSeek V2's attention without YaRN's factor, which the model's own code and transformers 5 have.
 * Its state spaces of Granite have one norm over all groups, where transformers 5 and llama.cpp have one for each.
 */
const ONLY_FIVE = /^(qwen3_vl_moe|stablelm|deepseek_v2|llama4-images|granitemoehybrid-mamba)$|\+fresh$/;
/**
 * Models whose padding is not masked in transformers itself: 4.57 masks the input of layers with a state only in batches
 * of several rows, and the bias of a projection makes padding other than 0 again.
 */
const padsApart = (name: string, version: 'v5' | 'v4'): boolean =>
  /^(lfm2|granitemoehybrid|falcon_h1)-bias$|^nemotron_h-latent$/.test(name) ||
  (/^(lfm2|qwen3_next|granitemoehybrid-|falcon_h1)/.test(name) && version === 'v4');
/**
 * transformers does not limit the time steps of a state space when it goes token by token with a cache. 4.57's PhiMoE
 * loses tokens of a window there.
 */
const stepsApart = (name: string, version: 'v5' | 'v4'): boolean =>
  name === 'nemotron_h-latent' || (name === 'phimoe-near' && version === 'v4');
/** How it says that it has no such model. */
const UNKNOWN = /has no attribute \w+Config$|^KeyError: '\w+'$/;
const VOCAB = 64;
const PADDING = 2;
const PREFILL = 5;

/**
 * The allowed distance as a share of the logits' spread. Two sums in f32 in another order are apart by 1e-6 of it, and a
 * wrong rule by 1e-2 or more.
 */
const NEAR = 1e-4;

function spreadOf(values: Float32Array): number {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
}

function near(got: Float32Array, want: Float32Array, what: string, within = NEAR): void {
  assert.equal(got.length, want.length, what);
  const worst = want.reduce((most, value, n) => Math.max(most, Math.abs(value - got[n]!)), 0);
  const share = worst / spreadOf(want);
  assert.ok(share <= within, `${what}: off by ${share} of the spread`);
}

/** llama.cpp takes the GELU of these from a table in f16. */
const GELU_TABLE = /^gemma/;
const GELU_NEAR = 1e-2;
/** It also divides the squares of Gemma 3n's gates by one less than their number: with both done in torch, 6e-3 is left. */
const GEMMA3N_NEAR = 6e-2;
/** The number that to-gguf writes. A converter that refuses all of them would pass the rest of the test. */
const LEAST_WRITTEN = 59;
/** And to-safetensors of them, without those that lose windows or images, gpt-oss and Apertus. */
const LEAST_BACK = 49;

let cpu: Ropewalk;
for (const version of ['v5', 'v4'] as const) {
  describe(`transformers ${version === 'v5' ? 5 : '4.57'}`, { skip: noPython }, () => {
    const names = version === 'v5' ? NAMES : NAMES.filter((name) => !ONLY_FIVE.test(name));
    const folder = mkdtempSync(join(tmpdir(), 'saved-'));
    let errors: Record<string, string> = {};
    before(async () => {
      cpu ??= await ropewalk({ backend: 'cpu', threads: 1 });
      const said = runPython('saved_models.py', [folder, ...names], version)
        .trim()
        .split('\n')
        .at(-1)!;
      errors = JSON.parse(said).errors;
      const wrong = Object.entries(errors).filter(([, why]) => version === 'v5' || !UNKNOWN.test(why));
      assert.deepEqual(wrong, []);
    });
    after(() => {
      rmSync(folder, { recursive: true, force: true });
      if (version === 'v4') cpu?.dispose();
    });

    if (version === 'v5')
      test('llama.cpp runs what to-gguf writes, and transformers what to-safetensors writes of it, but for windows', async () => {
        const written: { name: string; made: string; notes: readonly string[] }[] = [];
        const folders: string[] = [];
        for (const name of names.filter((one) => !one.includes('+'))) {
          const made = join(folder, `${name}.gguf`);
          const repacked = await writeGguf(join(folder, name), made, { vocabulary: false }).catch((error) => {
            assert.equal(error.code, 'UNSUPPORTED', `${name}: ${error.message}`);
          });
          if (repacked) written.push({ name, made, notes: repacked.notes });
        }
        assert.ok(written.length >= LEAST_WRITTEN, `${written.length} are written`);
        const files = written.map(({ name, made }) => [
          made,
          ...['tokens', 'llama'].map((file) => join(folder, name, `${file}.npy`)),
        ]);
        runPython('llama.py', ['logits', ...files.flat()]);
        for (const { name, made, notes } of written) {
          const at = (file: string) => join(folder, name, file);
          if (notes.some((note) => /has no windows/.test(note))) continue;
          const within = name === 'gemma3n-gguf' ? GEMMA3N_NEAR : GELU_TABLE.test(name) ? GELU_NEAR : NEAR;
          near(floats(at('llama.npy')), floats(at('plain.npy')), name, within);
          const back = at('back');
          const folderOf = await writeSafetensorsFolder(made, back, { vocabulary: false }).catch((error) => {
            assert.equal(error.code, 'UNSUPPORTED', `${name}: ${error.message}`);
          });
          // transformers would make the whole tower of a published model.
          if (!folderOf || folderOf.notes.some((note) => /no weights for images/.test(note))) continue;
          copyFileSync(at('tokens.npy'), join(back, 'tokens.npy'));
          folders.push(back);
        }
        assert.deepEqual(JSON.parse(runPython('load_folders.py', folders).trim().split('\n').at(-1)!), {});
        for (const back of folders) near(floats(join(back, 'back.npy')), floats(join(back, '../plain.npy')), back);
        assert.ok(folders.length >= LEAST_BACK, `${folders.length} are written back`);
      });

    for (const name of names) {
      test(name, async (t) => {
        if (name in errors) return t.skip('left out: transformers 4.57 has no such model');
        const array = (file: string) => floats(join(folder, name, `${file}.npy`));
        const tokens = Array.from(array('tokens'));
        const options = { backend: cpu, context: 64, tokenizer: numberTokenizer(VOCAB) };
        const model = await loadModelFolder(join(folder, name), options);
        const session = model.openSession();
        try {
          near(await session.append(tokens, { logits: 'all' }), array('plain'), 'whole');
          session.truncate(0);
          const steps = [await session.append(tokens.slice(0, PREFILL), { logits: 'all' })];
          for (const token of tokens.slice(PREFILL)) steps.push(await session.append([token]));
          const [whole, cached] = [array('plain'), array('cached')];
          near(
            Float32Array.from(steps.flatMap((part) => [...part])),
            stepsApart(name, version) ? whole : cached,
            'in steps',
          );
          if (padsApart(name, version)) return;
          session.truncate(0);
          const positions = tokens.map((_token, n) => PADDING + n);
          near(await session.append(tokens, { logits: 'all', positions }), array('padded'), 'after padding');
        } finally {
          session.dispose();
          model.dispose();
        }
      });
    }
  });
}
