/**
 * Tests of whole decoders in ONNX Runtime at each optimisation level: the same logits, and no warnings, with strict
 * inference of types and shapes. A separate process loads them, because the runtime writes warnings to its stderr.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ROOT } from '../../../test/support/build.js';
import { writeDecoder } from '../../../test/support/decoder-folder.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { DECODER_FORMS } from '../src/scope.js';

/** Fused nodes round differently. This is the error of f32 through a few layers, as between our own backends. */
const FLOATS = 1e-4;
/**
 * From `extended` on, products with blocks of form standard become MatMulNBits with activations in int8, with errors of
 * 1/254 of the block's largest at worst. Through four layers 0.015 was measured.
 */
const BLOCKS = 0.03;
const LEVELS = ['disabled', 'basic', 'extended', 'layout', 'all'];

const folder = mkdtempSync(join(tmpdir(), 'levels-'));
after(() => rmSync(folder, { recursive: true }));

/** Loads each folder at each level, runs five tokens, and prints the logits of the last. */
const PROGRAM = `
const { InferenceSession, Tensor } = require('onnxruntime-node');
const i64 = (values, dims) => new Tensor('int64', BigInt64Array.from(values, BigInt), dims);
(async () => {
  const found = [];
  const folder = process.argv[1];
  for (const graphOptimizationLevel of ${JSON.stringify(LEVELS)}) {
      const session = await InferenceSession.create(folder + '/model.onnx', {
        graphOptimizationLevel, logSeverityLevel: 2, intraOpNumThreads: 1,
        extra: { session: { strict_shape_type_inference: '1' } },
      });
      const feeds = {
        input_ids: i64([1, 5, 9, 3, 7], [1, 5]), attention_mask: i64([1, 1, 1, 1, 1], [1, 5]),
        num_logits_to_keep: i64([1], []),
      };
      for (const { name, shape } of session.inputMetadata)
        if (name === 'position_ids') {
          const axes = shape.length === 3 ? shape[0] : 1;
          const ids = Array.from({ length: axes * 5 }, (_, n) => n % 5);
          feeds.position_ids = i64(ids, axes > 1 ? [axes, 1, 5] : [1, 5]);
        } else if (name.startsWith('past'))
          feeds[name] = new Tensor('float32', new Float32Array(0), [1, shape[1], 0, shape[3]]);
      found.push(Array.from((await session.run(feeds)).logits.data));
      await session.release();
    }
  console.log(JSON.stringify(found));
})();`;

describe('whole decoders at every optimisation level', { skip: noOnnxruntime }, () => {
  const models = [
    { name: 'marline', gguf: join(ROOT, 'models/marline/model-q8_0.gguf'), within: BLOCKS },
    ...['gemma3', 'qwen2vl', 'mixtral', 'deepseek2-lite'].map((name) => ({
      name,
      gguf: join(FAMILIES, `${name}.gguf`),
      within: FLOATS,
    })),
  ];
  for (const { name, gguf, within } of models)
    for (const form of DECODER_FORMS)
      test(`${name} in form ${form}`, async () => {
        const to = join(folder, `${name}-${form}`);
        await writeDecoder(gguf, { form }, to);
        const { stdout, stderr } = spawnSync(process.execPath, ['-e', PROGRAM, to], { encoding: 'utf8', cwd: ROOT });
        assert.equal(stderr, '');
        const [plain, ...others]: number[][] = JSON.parse(stdout);
        assert.ok(plain!.every(Number.isFinite));
        const largest = Math.max(...plain!.map(Math.abs));
        for (const [n, logits] of others.entries()) {
          const worst = Math.max(...logits.map((value, i) => Math.abs(value - plain![i]!)));
          assert.ok(worst <= within * largest, `${LEVELS[n + 1]}: ${worst} of ${largest}`);
        }
      });
});
