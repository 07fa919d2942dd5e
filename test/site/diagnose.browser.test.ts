/** Tests the page Diagnose: every kind of dump, the intended RoPE, the report, its pictures and its files. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { describeDiagnosis, diagnose, diagnosisToJson, MUTANTS } from '@ropewalk/diagnose';
import { convertRope } from '@ropewalk/dialects';
import { parseNpy, parseNpz, writeNpy, writeNpz, writeSafetensors } from '@ropewalk/formats';
import { mutantExample } from '@ropewalk/oracle';
import type { Page } from 'playwright-core';
import { type Tensor, tensorFrom } from 'ropewalk';
import { roleOf } from '../../site/src/diagnose/roles.js';
import { noBrowser } from '../support/browser.js';
import { ggufOf } from '../support/model-files.js';
import { openedSite, violations } from '../support/site.js';

const POSITIONS = [0, 1, 40, 511, 8191, 131071];
const SHAPE = [POSITIONS.length, 3, 64];
const SPEC = { headDim: 64, pairing: 'half', base: 10000 } as const;
const RECORD = JSON.stringify(SPEC);
const CONFIG = JSON.stringify({
  model_type: 'llama',
  hidden_size: 192,
  num_attention_heads: 3,
  num_hidden_layers: 2,
  rope_theta: 10000,
});

/** Computes RoPE independently of the library, with wrong pairs if `interleaved` is true. */
function kernel(x: Float32Array, interleaved: boolean): Float32Array {
  const y = new Float32Array(x.length);
  for (let row = 0; row < x.length / 64; row++)
    for (let j = 0; j < 32; j++) {
      const angle = POSITIONS[Math.floor(row / 3)]! * 10000 ** (-j / 32);
      const [i0, i1] = interleaved ? [row * 64 + 2 * j, row * 64 + 2 * j + 1] : [row * 64 + j, row * 64 + j + 32];
      y[i0] = x[i0]! * Math.cos(angle) - x[i1]! * Math.sin(angle);
      y[i1] = x[i0]! * Math.sin(angle) + x[i1]! * Math.cos(angle);
    }
  return y;
}
const input = Float32Array.from({ length: 6 * 3 * 64 }, (_, n) => Math.sin(n * n + 1) + 0.01);
const x = tensorFrom(input, { shape: SHAPE });
const right = tensorFrom(kernel(input, false), { shape: SHAPE });
const wrong = tensorFrom(kernel(input, true), { shape: SHAPE });
const positions = tensorFrom(Int32Array.from(POSITIONS));
const npy = (tensor: Tensor): Uint8Array => writeNpy(tensor.read() as never, tensor);
const raw = (tensor: Tensor): Uint8Array => new Uint8Array((tensor.read() as Float32Array).buffer);

/** Chooses files as a user does. Dropped files go the same way. */
async function choose(page: Page, files: Readonly<Record<string, Uint8Array | string>>): Promise<void> {
  await page
    .locator('input[type=file]')
    .first()
    .setInputFiles(
      Object.entries(files).map(([name, body]) => ({ name, mimeType: '', buffer: Buffer.from(body as Uint8Array) })),
    );
}
const run = (page: Page) => page.getByRole('button', { name: 'Diagnose', exact: true }).click();
const saved = async (page: Page, button: string): Promise<Uint8Array> => {
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: button }).click()]);
  return readFileSync(await file.path());
};
const head = (page: Page) => page.locator('#diagnose-head');

test('arrays get their roles by their names', () => {
  const roles = {
    x: 'x q q_pre hidden_in query',
    y: 'y q_rot q_post q_embed out',
    positions: 'positions pos position_ids pos_ids input_pos',
  };
  for (const [role, names] of Object.entries(roles))
    for (const name of names.split(' ')) assert.equal(roleOf(`layers.0.${name}`), role, name);
});

describe('Diagnose in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();

  test('positions beyond the original context show which frequencies are meant', async () => {
    const { page, wrong: bad } = await opened.visit('diagnose/');
    const factors = (factor: number) => Array.from({ length: 32 }, () => factor);
    const rope_scaling = { type: 'longrope', long_factor: factors(1), short_factor: factors(2), attention_factor: 1 };
    const long = {
      model_type: 'phi3',
      max_position_embeddings: 262144,
      original_max_position_embeddings: 64,
      rope_scaling,
    };
    await choose(page, {
      'x.npy': npy(x),
      'y.npy': npy(right),
      'positions.npy': npy(positions),
      'config.json': JSON.stringify({ ...JSON.parse(CONFIG), ...long }),
    });
    await run(page);
    await head(page).waitFor();
    const report = new TextDecoder().decode(await saved(page, 'Save as text'));
    assert.match(
      report,
      new RegExp(`^AS EXPECTED \\(the JSON, layer 0, ${Math.max(...POSITIONS) + 1} tokens in use\\)`),
    );
    assert.deepEqual(bad, []);
    await page.context().close();
  });

  test('another kind of layer with which y is right is told', async () => {
    const { page, wrong: bad } = await opened.visit('diagnose/?layer=5');
    const gemma = { model_type: 'gemma3_text', head_dim: 64, num_hidden_layers: 12, rope_theta: 1e6 };
    await choose(page, {
      'x.npy': npy(x),
      'y.npy': npy(right), // as layers with a window, and layer 5 has none
      'positions.npy': npy(positions),
      'config.json': JSON.stringify({ ...JSON.parse(CONFIG), ...gemma, rope_local_base_freq: 10000 }),
    });
    await run(page);
    await page.getByText('Other options: y is right with layer 0. The report is on the fields as given.').waitFor();
    assert.deepEqual(bad, []);
    await page.context().close();
  });

  test('three .npy and a config.json: the bug is named, with the report that the library gives', async () => {
    const { page, wrong: bad } = await opened.visit('diagnose/');
    await choose(page, {
      'x.npy': npy(x),
      'y.npy': npy(wrong),
      'positions.npy': npy(positions),
      'config.json': CONFIG,
    });
    assert.match(await page.getByLabel('x: what the kernel read').inputValue(), /^x\.npy$/);
    assert.match(await page.getByLabel('y: what it wrote').inputValue(), /^y\.npy$/);
    await run(page);
    await head(page).waitFor();
    assert.equal(await head(page).innerText(), 'pairs-interleaved-for-half');
    const found = diagnose({ x, y: wrong, positions }, { spec: SPEC });
    const from = 'the JSON, layer 0';
    assert.equal(
      new TextDecoder().decode(await saved(page, 'Save as text')),
      `${describeDiagnosis(found, from, { all: true }).join('\n')}\n`,
    );
    // The last bits of measured numbers depend on each engine's Math.
    const parts = (text: string) => {
      const { verdict, tier, layout, expected, named, differences } = JSON.parse(text);
      return { verdict, tier, layout, expected, named, differences };
    };
    assert.deepEqual(
      parts(new TextDecoder().decode(await saved(page, 'Save as JSON'))),
      parts(JSON.stringify(diagnosisToJson(found, from))),
    );
    const thread = page.locator('.diagnose-verdict a').first();
    assert.equal(await thread.getAttribute('href'), 'https://github.com/huggingface/transformers/issues/25199');
    // In the pictures, token 0 is at position 0, where nothing turns, and the last token is wrong.
    const other = (found.worst!.head + 1) % 3; // the page shows the worst head first
    await page.getByRole('spinbutton', { name: 'Head' }).fill(`${other}`);
    await page.getByRole('heading', { name: `Head ${other}: size of the error` }).waitFor();
    const map = page.getByRole('img', { name: /^Size of the error/ });
    await map.evaluate((canvas) => canvas.scrollIntoView({ block: 'center' }));
    const box = (await map.boundingBox())!;
    await page.mouse.move(box.x + 2, box.y + 2);
    const first = Number(input[64 * other]!.toPrecision(4));
    await page.getByText(`token 0 (position 0), dimension 0: y ${first}, expected ${first}`, { exact: true }).waitFor();
    await page.mouse.move(box.x + box.width - 3, box.y + box.height - 3);
    await page.getByText(/^token 5 \(position 131071\), dimension 63: /).waitFor();
    await page.getByLabel('Show').selectOption('error');
    await page.getByRole('img', { name: /^Error: y − expected/ }).waitFor();
    await page.waitForURL((url) => url.search.includes('view=error') && url.search.includes(`head=${other}`));
    assert.match(page.url(), /meant=text/);
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(bad, []);
    await page.context().close();
  });

  test('.npz, safetensors, raw files, a record, a model, and nothing', async () => {
    const { page, wrong: bad } = await opened.visit('diagnose/');
    const named = new Map<string, Tensor>([
      ['x', x],
      ['y', right],
      ['positions', positions],
    ]);
    await choose(page, { 'dump.npz': writeNpz(named), 'spec.json': RECORD });
    await run(page);
    await head(page).waitFor();
    assert.match(await head(page).innerText(), /^AS EXPECTED \(the JSON\)/);
    await page.getByText('grey: within the tolerance').first().waitFor();
    await page
      .getByText(/^Every element of this head is (within its tolerance|as expected, to the last bit)\./)
      .waitFor();

    await page.getByRole('tab', { name: 'Not known' }).click();
    await choose(page, { 'dump.safetensors': writeSafetensors(named) });
    await page.getByLabel('y: what it wrote').selectOption('dump.safetensors:y');
    await run(page);
    await page.getByRole('heading', { name: 'A ROTATION: half, base 10000.' }).waitFor();

    await page.getByRole('tab', { name: 'Model', exact: true }).click();
    await run(page);
    await page
      .getByRole('alert')
      .getByText(/x: its heads have 64 dimensions, those of the model have 128/)
      .waitFor();

    await page.getByRole('tab', { name: 'Config or record' }).click();
    await page.getByRole('textbox', { name: /config\.json/ }).fill(RECORD);
    await choose(page, { 'x.bin': raw(x), 'y.bin': raw(wrong), 'positions.bin': raw(positions) });
    for (const [label, id] of [
      ['x: what the kernel read', 'x.bin'],
      ['y: what it wrote', 'y.bin'],
      ['positions', 'positions.bin'],
    ])
      await page.getByLabel(label!, { exact: true }).selectOption(id!);
    await run(page);
    await page
      .getByRole('alert')
      .getByText(/raw file does not say what it holds\. Give dtype/)
      .waitFor();
    await page.getByLabel('Dtype of raw x and y').selectOption('f32');
    await page.getByLabel('Shape of raw x and y').fill('6,3,64');
    await page.getByLabel('Dtype of raw positions').selectOption('i32');
    await run(page);
    await page.getByRole('heading', { name: 'pairs-interleaved-for-half' }).waitFor();
    assert.deepEqual(bad, []);
    await page.context().close();
  });

  test('a folder that is dragged onto the page, with a GGUF that says what was meant; cells read with the keyboard', async () => {
    const { page, wrong: bad } = await opened.visit('diagnose/');
    const folder = mkdtempSync(join(tmpdir(), 'ropewalk-drop-'));
    const model = ggufOf([], {
      'general.architecture': 'qwen2',
      'qwen2.block_count': 2,
      'qwen2.embedding_length': 192,
      'qwen2.attention.head_count': 3,
      'qwen2.rope.freq_base': 10000,
    });
    const files = { 'x.npy': npy(x), 'y.npy': npy(wrong), 'positions.npy': npy(positions), 'model.gguf': model };
    for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
    const box = (await page.locator('.drop').boundingBox())!;
    const session = await page.context().newCDPSession(page);
    for (const type of ['dragEnter', 'dragOver', 'drop'] as const)
      await session.send('Input.dispatchDragEvent', {
        type,
        x: box.x + 20,
        y: box.y + 20,
        data: { items: [], files: [folder], dragOperationsMask: 1 },
      });
    await page.getByLabel('y: what it wrote').waitFor();
    assert.equal(await page.getByRole('textbox', { name: /^A model/ }).inputValue(), 'model.gguf');
    await run(page);
    await head(page).waitFor();
    assert.match(new TextDecoder().decode(await saved(page, 'Save as JSON')), /model\.gguf, layer 0/);
    const map = page.getByRole('img', { name: /token by dimension/ });
    await map.focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowRight');
    await page
      .getByText(/token 1.*dimension 1/)
      .first()
      .waitFor();
    assert.deepEqual(bad, []);
    await page.context().close();
    rmSync(folder, { recursive: true });
  });

  test('arguments of a peer and their tables say what was meant', async () => {
    const { page, wrong: bad } = await opened.visit('diagnose/');
    const { arguments: own, tables } = convertRope(SPEC, 'infiniop', { positions: 512 });
    const names = Object.fromEntries(tables.map(({ name }) => [name, `${name}.npy`]));
    const text = JSON.stringify({ target: 'infiniop', arguments: own, tables: names });
    const dumps = { 'x.npy': npy(x), 'y.npy': npy(wrong), 'positions.npy': npy(positions) };
    await choose(page, { ...dumps, 'rope.json': text });
    await run(page);
    await page.getByText(/^sin_table\.npy: the JSON names this table\. Drop the file too/).waitFor();
    await choose(
      page,
      Object.fromEntries(
        tables.map(({ name, shape, data }) => [`${name}.npy`, writeNpy(data, { dtype: 'f32', shape })]),
      ),
    );
    await run(page);
    await head(page).waitFor();
    assert.match(await page.locator('.diagnose-result').innerText(), /neighbours|interleaved/);
    assert.deepEqual(bad, []);
    await page.context().close();
  });

  test('a bad file is said, and the page goes on; the example shows a report', async () => {
    const { page, wrong: bad } = await opened.visit('diagnose/');
    await choose(page, { 'x.npy': 'hello', 'picture.png': 'PNG' });
    await page
      .getByRole('alert')
      .getByText(/x\.npy: /)
      .waitFor();
    await page.getByText(/picture\.png: expected a \.npy, \.npz/).waitFor();
    await page.getByRole('button', { name: 'See an example' }).click();
    await page.getByRole('heading', { name: 'frequencies-over-head-dim' }).waitFor();
    await page.getByText(/^This input is an example: phi-2/).waitFor();
    const about = page.getByRole('link', { name: 'All about frequencies-over-head-dim' });
    assert.match((await about.getAttribute('href'))!, /museum\/frequencies-over-head-dim\/$/);
    await page.waitForURL(/demo=1/);
    assert.doesNotMatch(await page.locator('main').innerText(), /(^|\s)--[a-z]/, 'a page has fields, no options');
    assert.deepEqual(bad, []);
    await page.context().close();
  });

  test('a bug in the address is run and diagnosed; one that does not exist is said', async () => {
    const mutant = MUTANTS.find(({ id }) => id === 'batch-for-sequence')!;
    const { observation, expected, from } = mutantExample(mutant);
    const found = diagnose(observation, expected);
    const { page, wrong: bad } = await opened.visit(`diagnose/?bug=${mutant.id}`);
    await head(page).waitFor();
    assert.equal(await head(page).innerText(), describeDiagnosis(found, from, { all: true })[0]);
    await page.getByText('batch-for-sequence ran on it.').waitFor();
    const next = parseNpz(await saved(page, 'Save the next input'), 'next');
    assert.deepEqual(next.get('x')!.shape, found.next!.shape);
    assert.ok(parseNpy(npy(x), 'x').shape.length === 3 && next.has('positions'));
    await page.goto(page.url().replace(/bug=[^&]*/, 'bug=no-such'));
    await page
      .getByRole('alert')
      .getByText(/There is no known bug "no-such"/)
      .waitFor();
    assert.deepEqual(bad, []);
    await page.context().close();
  });
});
