/** Tests the page Explore: published models, dropped files, and the tabs Compare, Convert and Export. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { compareModels, convertRope, effectiveRope, huggingface, passportOf } from '@ropewalk/dialects';
import { graphRope, importOnnx, ropeModel, writeOnnxModel } from '@ropewalk/onnx';
import type { Page } from 'playwright-core';
import { published, reachOf } from '../../site/src/explore/model.js';
import { COPIES, MODELS } from '../../site/src/explore/models.js';
import { noBrowser } from '../support/browser.js';
import { ROOT } from '../support/build.js';
import { openedSite, UNDER, violations } from '../support/site.js';

const BOX = join(ROOT, 'models/marline');
const LLAMA = 'meta-llama/Meta-Llama-3.1-8B';
const ropeOf = (id: string) => huggingface.ropeFromConfig(MODELS.find((model) => model.id === id)!.config);

test('about 40 published models, each of which is read as a known one', () => {
  assert.ok(MODELS.length >= 40, `${MODELS.length}`);
  assert.equal(new Set(MODELS.map(({ id }) => id)).size, MODELS.length);
  const kinds = new Set<string>();
  for (const { id, copy, config } of MODELS) {
    assert.ok(Object.hasOwn(COPIES, copy), id);
    const { known, layers } = huggingface.ropeFromConfig(config, { where: id });
    assert.ok(known, id);
    for (const { rope } of layers) kinds.add(rope?.scaling?.kind ?? 'none');
  }
  assert.deepEqual([...kinds].sort(), ['dynamicNtk', 'linear', 'llama3', 'longrope', 'none', 'proportional', 'yarn']);
});

test('pictures end where their RoPE does: the short list, the window, the context', () => {
  const reaches = (id: string, context?: number) => {
    const { groups, maxContext } = published(id)!.read(context);
    return groups.filter(({ rope }) => rope).map(({ rope, window }) => reachOf(rope!, maxContext, window));
  };
  assert.deepEqual(reaches('microsoft/Phi-3.5-mini-instruct'), [{ context: 4096, distance: 4096 }]);
  assert.deepEqual(reaches('microsoft/Phi-3.5-mini-instruct', 5000), [{ context: 131072, distance: 131072 }]);
  assert.deepEqual(reaches('google/gemma-4-26B-A4B'), [
    { context: 262144, distance: 1024 },
    { context: 262144, distance: 262144 },
  ]);
  assert.deepEqual(reaches('google/gemma-3-12b-it'), [
    { context: 131072, distance: 1024 },
    { context: 131072, distance: 131072 },
  ]);
});

describe('Explore in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();
  /** Reads one fact from the list of facts. */
  const fact = (page: Page, name: string): Promise<string> =>
    page
      .locator('.explore-facts > div', { has: page.getByText(name, { exact: true }) })
      .locator('dd')
      .innerText();

  test('a part of the worker that does not come is said, and not waited for', async () => {
    const { page } = await opened.visit('explore/');
    // As after an update on a host whose old files are gone; the service worker would have kept them.
    await page.context().route('**/assets/rope.worker*', (route) => route.abort());
    await page.getByRole('tab', { name: 'Convert' }).click();
    await page.getByText('A worker of this page stopped').waitFor();
    await page.context().close();
  });

  test('a published model: facts, pictures, layers that differ, and an address that opens them again', async () => {
    const { page, wrong } = await opened.visit('explore/');
    const { invFreq } = effectiveRope(ropeOf(LLAMA).layers[0]!.rope!);
    const slow = invFreq.filter((f) => f * 131072 < 2 * Math.PI).length;
    await page.getByText(`${slow} of 64 pairs make less than one turn within 131,072 tokens`).waitFor();
    assert.equal(await fact(page, 'scaling'), 'llama3 factor=8 lowFreqFactor=1 highFreqFactor=4 originalContext=8192');
    await page.getByLabel('First position').fill('1000');
    await page.getByLabel('Show').selectOption('sin');
    const map = page.getByRole('img', { name: /^sin of 64 pairs at 96 positions from 1000, 1 apart$/ });
    await map.hover({ position: { x: 40, y: 100 } });
    const cell = page.getByText(/^position [\d,]+, pair \d+: sin /);
    const [, position, pair, sine] = /^position ([\d,]+), pair (\d+): sin (.*)$/.exec(await cell.innerText())!;
    const p = Number(position!.replaceAll(',', ''));
    assert.ok(p >= 1000 && p < 1096, position);
    assert.equal(sine, Math.sin(p * invFreq[Number(pair)]!).toFixed(6));
    await page.getByRole('img', { name: /factor 8\.0$/ }).waitFor(); // the model's own
    await page.getByLabel('Factor of the rules').fill('40');
    await page.getByRole('img', { name: /factor 16\.0$/ }).waitFor();
    await page.getByText(`YaRN × ${(0.1 * Math.log(16) + 1).toPrecision(4)}`).waitFor();
    await page.getByLabel(/published models/).selectOption('google/gemma-3-1b-it');
    assert.equal(await fact(page, 'base'), '10,000');
    await page.getByRole('radio', { name: 'layers 5, 11, 17, 23' }).check();
    assert.equal(await fact(page, 'base'), '1,000,000');
    await page.waitForFunction(() => location.search.includes('group=1') && location.search.includes('gemma-3-1b'));
    assert.deepEqual(await violations(page), []);
    await page.reload();
    await page.getByRole('heading', { name: 'google/gemma-3-1b-it' }).waitFor();
    assert.equal(await fact(page, 'base'), '1,000,000');
    await page.getByLabel(/published models/).selectOption('microsoft/Phi-3.5-mini-instruct');
    await page.getByText('up to 4096 tokens are assumed').waitFor();
    await page.getByLabel(/^Tokens in use/).fill('100000');
    await page.getByLabel(/^Tokens in use/).blur();
    await page.getByText('context=100000').waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test("dropped: a folder, a GGUF, a file that is no model; two peers' readings of one model", async () => {
    const { page, wrong } = await opened.visit('explore/');
    const input = page.locator('input[type=file]');
    await input.setInputFiles(join(ROOT, 'README.md'));
    const alert = page.getByRole('alert');
    await alert.getByText(/README\.md.*config\.json.*Choose a model of the list/).waitFor();
    await input.setInputFiles(join(BOX, 'model.safetensors'));
    await alert.getByText(/does not say how its model rotates/).waitFor();
    const gguf = join(BOX, 'model-q8_0.gguf');
    await input.setInputFiles(gguf);
    await page.getByRole('heading', { name: 'model-q8_0.gguf' }).waitFor();
    const said = await page.getByText(/^Read /).innerText();
    assert.match(said, /tensors, [\d,]+ parameters in .*Q8_0/);
    await input.setInputFiles(['config.json', 'model.safetensors'].map((name) => join(BOX, name)));
    await page.getByRole('heading', { name: 'config.json' }).waitFor();
    const [, kilobytes, rest] = /^Read ([\d,.]+ \w+) of (.+): headers only/.exec(
      await page.getByText(/headers only/).innerText(),
    )!;
    assert.ok(Number.parseFloat(kilobytes!) < 30, `${kilobytes} of ${rest}`);
    assert.match(rest!, new RegExp(`^${(statSync(join(BOX, 'model.safetensors')).size / 1e6).toFixed(1)}`));
    await page.getByRole('tab', { name: 'Compare' }).click();
    await page.getByLabel('B, read as', { exact: true }).selectOption('float64');
    await page.getByLabel('B, the other model').selectOption('file: model-q8_0.gguf');
    const [a, b] = [await readModelRope(join(BOX, 'config.json')), await readModelRope(gguf)];
    const expected = compareModels({ rope: a, recipe: 'float64' }, { rope: b, recipe: 'float64' }, [1]);
    assert.match(expected.groups[0]!.verdict[0]!, /permuted in GGUF/);
    await page.getByText(expected.groups[0]!.verdict[0]!).waitFor();
    await page.getByText('The same RoPE to the last bit, in another order of dimensions.').waitFor();
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('two models part where the library says', async () => {
    const other = 'Qwen/Qwen3-8B';
    const { page, wrong } = await opened.visit(`explore/?tab=compare&with=${other}&b=float64`);
    const [a, b] = [LLAMA, other].map((id) => ({ rope: ropeOf(id), recipe: 'float64' as const }));
    const { groups, notes } = compareModels(a!, b!, [1]);
    await page.getByText(groups[0]!.verdict[0]!).waitFor();
    await page.getByText(notes[0]!).waitFor();
    assert.deepEqual(await violations(page), []);
    const { position, pair } = groups[0]!.comparison!.apart[2]!;
    await page.getByText(`1 rad: from position ${position!.toLocaleString('en')} on (pair ${pair})`).waitFor();
    await page.getByLabel('B, the other model').selectOption(LLAMA);
    await page.getByText('The same RoPE: both rotate every pair alike.').waitFor();
    await page.getByText('No angle differs').waitFor();
    await page.getByText('same to the last bit').first().waitFor();
    // Two peers read the same model. infiniop's tables have fewer digits than f64.
    await page.getByLabel('B, read as', { exact: true }).selectOption('infiniop');
    const { readBack } = convertRope(a!.rope.layers[0]!.rope!, 'infiniop');
    const read = compareModels(a!, { rope: readBack, recipe: 'float64' }, [1]).groups[0]!.comparison!;
    const first = read.apart.find(({ position: p }) => p !== undefined)!;
    await page.getByText(`${first.rad} rad: from position ${first.position!.toLocaleString('en')} on`).waitFor();
    await page.getByLabel(/published models/).selectOption('Qwen/Qwen3-VL-32B-Instruct');
    await page.getByLabel('B, read as', { exact: true }).selectOption('mlx');
    await page.getByText(/cannot be expressed, because fast.rope counts one position a token/).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('two models with one RoPE are the same, however many layers they have; a head size is not rounding', async () => {
    const { page, wrong } = await opened.visit('explore/?model=Qwen/Qwen3-0.6B&tab=compare&with=Qwen/Qwen3-8B');
    await page.getByText('same to the last bit The same RoPE to the last bit.').waitFor();
    await page.getByText('A has 28 layers and B 36: only the first 28 are compared.').waitFor();
    await page.getByLabel('B, read as', { exact: true }).selectOption('ggml-f32');
    await page.getByText('same but for rounding').first().waitFor();
    await page.getByRole('tab', { name: 'Convert' }).click();
    await page.waitForURL(/tab=convert/);
    await page.goBack();
    await page.getByText('same but for rounding').first().waitFor();
    await page.getByLabel(/published models/).selectOption('meta-llama/Llama-3.2-1B');
    await page.getByLabel('B, the other model').selectOption('meta-llama/Llama-3.2-3B');
    await page.getByText('They part from position 1 on because of head_dim: 64 in A, 128 in B.').waitFor();
    assert.equal(await page.getByText('differ in rounding').count(), 0);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('passport: the readings and findings of the library; the link has the command of a server', async () => {
    const serve = `vllm serve MODEL --hf-overrides '{"rope_scaling":{"rope_type":"linear","factor":4}}'`;
    const config = MODELS.find(({ id }) => id === LLAMA)!.config;
    for (const given of ['', serve]) {
      const { page, wrong } = await opened.visit(`explore/?tab=passport&serve=${encodeURIComponent(given)}`);
      const { readings, findings } = passportOf([{ name: 'config.json', json: config }], {
        ...(given && { serve: [given] }),
      });
      const table = page.getByRole('region', { name: 'Readers' });
      await table.waitFor();
      assert.deepEqual(
        await table.getByRole('rowheader').allInnerTexts(),
        readings.map(({ reader }) => reader),
      );
      const panel = page.getByRole('tabpanel', { name: 'Passport' });
      for (const { says } of findings) assert.ok((await panel.innerText()).includes(says), says);
      assert.equal(await panel.getByRole('listitem').count(), findings.length);
      if (given === '') {
        await page.getByLabel("A server's command").fill('no-server --rope-scale 4');
        await page.getByLabel("A server's command").press('Enter');
        await panel.getByRole('alert').filter({ hasText: 'no-server' }).waitFor();
        assert.deepEqual(await violations(page), []);
      }
      assert.deepEqual(wrong, []);
      await page.close();
    }
  });

  test('a passport and a recording of a server are not read as models: the page says where they open', async () => {
    const { page, wrong } = await opened.visit('explore/');
    const drop = (name: string, text: string): Promise<void> =>
      page
        .locator('input[type=file]')
        .first()
        .setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(text) });
    await drop('rope-passport.json', '{"form":"rope-passport/1"}');
    await page.getByText(/^rope-passport\.json: a passport is held against a model/).waitFor();
    await drop('answers.jsonl', '{}');
    await page.getByText(/^answers\.jsonl: a recording of a server opens in the page Probe/).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('passport: a stamp is held against the model', async () => {
    const { page, wrong } = await opened.visit(`explore/?tab=passport&model=${encodeURIComponent(LLAMA)}`);
    const panel = page.getByRole('tabpanel', { name: 'Passport' });
    const config = MODELS.find(({ id }) => id === LLAMA)!.config as object;
    const stampOf = (json: object) => {
      const { table } = passportOf([{ name: 'config.json', json }]);
      const stamp = { form: 'rope-passport/1', hash: createHash('sha256').update(table!).digest('hex') };
      return { name: 'rope-passport.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(stamp)) };
    };
    await panel.locator('input[type=file]').setInputFiles(stampOf(config));
    await panel.getByText('rope-passport.json is held against the model: it is of this RoPE.').waitFor();
    await panel.locator('input[type=file]').setInputFiles(stampOf({ ...config, rope_theta: 10000 }));
    await panel.getByText(/rope-passport\.json: it was written for another RoPE/).waitFor();
    await panel.getByRole('button', { name: 'Leave it out' }).click();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('passport: several forms, compared with the first; each may be left out', async () => {
    const { page, wrong } = await opened.visit('explore/?tab=passport&forms=not/asked-yet');
    const config = MODELS.find(({ id }) => id === LLAMA)!.config as object;
    const lost = { ...config, rope_theta: 10000 };
    const panel = page.getByRole('tabpanel', { name: 'Passport' });
    await panel.getByText('not/asked-yet is not read yet.').waitFor();
    await panel.getByRole('button', { name: 'Leave it out' }).click();
    const file = { name: 'lost.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(lost)) };
    await panel.locator('input[type=file]').setInputFiles(file);
    const { readings, findings } = passportOf([
      { name: `${LLAMA}/config.json`, json: config },
      { name: 'lost.json', json: lost },
    ]);
    await panel.getByText('file: lost.json is compared with the model.').waitFor();
    await panel.getByRole('rowheader', { name: 'lost.json, transformers 5' }).waitFor();
    assert.deepEqual(
      await panel.getByRole('rowheader').allInnerTexts(),
      readings.map(({ form, reader }) => `${form}, ${reader}`),
    );
    assert.ok(findings.some(({ level }) => level === 'error'));
    for (const { says } of findings) assert.ok((await panel.innerText()).includes(says), says);
    await page.waitForURL(/forms=file.*#files=/);
    const { page: sent } = await opened.visit(page.url().slice((opened.site.origin + UNDER).length));
    await sent.getByRole('rowheader', { name: 'lost.json, transformers 5' }).waitFor();
    await sent.close();
    for (const [hash, words] of [
      ['#files=%%%', /cut or broken/],
      [`#files=${deflateRawSync('{}').toString('base64url')}`, /The link has no list of files/],
      [`#files=${deflateRawSync('[{"file":"a.json","json":{"model_type":3}}]').toString('base64url')}`, /a\.json/],
    ] as const) {
      const { page: broken } = await opened.visit(`explore/${hash}`);
      await broken.getByRole('alert').filter({ hasText: words }).waitFor();
      await broken.close();
    }
    assert.deepEqual(await violations(page), []);
    await panel.getByRole('button', { name: 'Leave it out' }).click();
    await panel.getByRole('rowheader', { name: 'transformers 5', exact: true }).waitFor();
    // Most configs are called config.json.
    for (const theta of [20000, 30000]) {
      const buffer = Buffer.from(JSON.stringify({ ...config, rope_theta: theta }));
      await panel
        .locator('input[type=file]')
        .setInputFiles({ name: 'config.json', mimeType: 'application/json', buffer });
      await panel.getByText(`base ${theta}`).first().waitFor();
    }
    await panel.getByText('file: config.json (2) is compared with the model.').waitFor();
    await panel.getByText('file: config.json is compared with the model.').waitFor();
    assert.deepEqual(wrong, []);
    await page.close();
  });

  test('convert: the arguments of the library, copied; a refusal; tables', async () => {
    const { page, wrong } = await opened.visit('explore/?tab=convert&at=3');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    const { rope } = ropeOf(LLAMA).layers[0]!;
    for (const peer of ['ggml', 'gguf', 'vllm']) {
      await page.getByRole('radio', { name: peer, exact: true }).check();
      const words = page.getByRole('region', { name: `In the words of ${peer}` });
      await words.getByRole('button', { name: 'Copy' }).click();
      await words.getByRole('button', { name: 'Copied' }).waitFor();
      const copied = await page.evaluate(() => navigator.clipboard.readText());
      const options = { heads: 32, modelType: 'llama', maxContext: 131072 };
      assert.deepEqual(JSON.parse(copied), convertRope(rope!, peer, options).arguments, peer);
      if (peer === 'vllm') assert.equal(JSON.parse(copied).max_position, 131072);
    }
    await page.getByRole('radio', { name: 'infiniop' }).check();
    await page.getByText('Tables of cos and sin').click();
    await page.getByLabel('N, rows of tables').fill('16');
    await page.getByLabel('N, rows of tables').blur();
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: /^Save cos_table\.npy/ }).click(),
    ]);
    const { tables } = convertRope(rope!, 'infiniop', { positions: 16 });
    const bytes = readFileSync(await saved.path());
    const { data } = tables.find(({ name }) => name === 'cos_table')!;
    assert.ok(bytes.subarray(-data.byteLength).equals(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)));
    await page.getByText('The matrix by which a head is multiplied').click();
    const matrix = page.getByRole('img', { name: 'The matrix of position 3, 128 × 128: y = R·x' });
    await matrix.focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.getByText(`R[0, 0] = ${Number(Math.cos(3).toPrecision(7))}`).waitFor();
    await page.getByLabel(/published models/).selectOption('Qwen/Qwen3-VL-32B-Instruct');
    await page.getByRole('radio', { name: 'mlx cannot' }).check();
    await page.getByText('Multiply by your own cos and sin arrays').waitFor();
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('export: the graph of the library; what no graph can say is said', async () => {
    const { page, wrong } = await opened.visit('explore/?tab=export&form=primitives');
    await page.getByRole('button', { name: 'Build the model' }).click();
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Save rope.onnx' }).click(),
    ]);
    const spec = ropeOf(LLAMA).layers[0]!.rope!;
    const options = { spec, form: 'primitives', dtype: 'f32', layout: 'bsnh', heads: 32, kvHeads: 8 } as const;
    const title = `RoPE of ${LLAMA}, layers 0–31`;
    const expected = writeOnnxModel(ropeModel(options).graph.model('rope', 'ropewalk', title));
    const got = readFileSync(await saved.path());
    // Browsers and Node differ in the last bit of powers, so the bytes differ.
    assert.equal(got.length, expected.length);
    const { alike, findings } = graphRope(importOnnx(got), 'rope.onnx', spec);
    assert.deepEqual({ alike, findings }, { alike: true, findings: [] });
    await page.getByText(/^q f32 \[batch, seq, 32, 128\]; k f32/).waitFor();
    await page.getByRole('combobox', { name: 'Form', exact: true }).selectOption('standard');
    await page.getByRole('combobox', { name: 'Angles', exact: true }).selectOption('f32-reduced');
    await page.getByRole('button', { name: 'Build the model' }).click();
    await page.getByText(/form standard takes cos and sin from tables/).waitFor();
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
