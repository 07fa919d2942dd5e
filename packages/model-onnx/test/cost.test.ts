/** Tests of the cost of whole graphs: the table of operators has every operator of the form contrib. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { describeModel, planModel } from '@ropewalk/model/internal';
import { graphCost } from '@ropewalk/onnx';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { DECODER_FORMATS, decoderModel } from '../src/model.js';

describe('a whole graph is counted', async () => {
  const bytes = readFileSync(join(FAMILIES, 'gemma3-q8_0.gguf'));
  const sizes = (seq: number, past: number) => ({
    batch_size: 2,
    sequence_length: seq,
    past_sequence_length: past,
    total_sequence_length: past + seq,
    num_logits: 1,
  });

  test('each weight and each row of the tables is read once, and what a cache has as often as it is long', async () => {
    const description = planModel(await describeModel({ 'model.gguf': new Blob([bytes]) }), {
      formats: DECODER_FORMATS,
    });
    const { config } = description;
    const { decoder } = decoderModel(description, { form: 'contrib' });
    const { graph, constants } = decoder;
    const place = { location: '', byteOffset: 0, sizeBytes: 0 };
    const external = new Map(constants.map(({ name, dtype, shape }) => [name, { dtype, shape, ...place }]));
    const model = { ...graph.model('decoder', 'test'), external };
    const costOf = (past: number) => graphCost(model, sizes(1, past), { num_logits_to_keep: [1] });
    const [short, long] = [costOf(8), costOf(108)];
    assert.equal(short.calls.get('GroupQueryAttention'), config.numLayers);
    const cacheRow = 2 * 2 * config.numLayers * config.numKvHeads * config.headDim * 4; // k and v, two batches, f32
    const mask = 2 * 8; // attention_mask, i64
    const readers = model.nodes.filter(({ inputs, opType }) => inputs.includes('attention_mask') && opType !== 'Shape');
    const grown = long.bytesRead - short.bytesRead;
    assert.ok(grown >= 100 * cacheRow && grown <= 100 * (cacheRow + (readers.length + 2) * mask), `${grown}`);
    const held = [...external.values()].map(({ dtype, shape }) =>
      shape.reduce((a, b) => a * b, dtype === 'u8' ? 1 : 4),
    );
    const weights = held.reduce((sum, size) => sum + size, 0);
    assert.ok(short.bytesRead > weights / 2 && short.bytesRead < 2 * weights, `${short.bytesRead} of ${weights}`);
  });
});
