/** Tests the museum: every entry of the catalogue has its picture, its threads, its page, and a link to its diagnosis. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { MUTANTS } from '@ropewalk/diagnose';
import { C_LINES } from '../../site/build/c-lines.js';
import { escaped } from '../../site/build/page-list.js';
import { TORCH_LINES } from '../../site/build/torch-lines.js';
import { noBrowser } from '../support/browser.js';
import { DIST, openedSite, violations } from '../support/site.js';

describe('The museum in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();

  test('an address with # opens the kind of its entry and shows it', async () => {
    const { id } = MUTANTS.at(-1)!;
    const { page, wrong } = await opened.visit(`museum/#${id}`);
    await page.waitForFunction((id) => {
      const box = document.getElementById(id)?.getBoundingClientRect();
      return box && box.top >= 0 && box.top < innerHeight;
    }, id);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('shows every entry, is searched and filtered, and opens a diagnosis', async () => {
    const { page, wrong } = await opened.visit('museum/');
    await page.getByText(`Open a kind, or search all ${MUTANTS.length}.`).waitFor();
    const all = page.locator('.museum-card');
    const cards = all.filter({ visible: true });
    const inKind = (kind: string) => MUTANTS.filter(({ cause }) => cause === kind).length;
    assert.deepEqual([await all.count(), await cards.count()], [MUTANTS.length, inKind('A')]);
    await page.locator('summary').filter({ hasText: 'B: partial rotary' }).click();
    assert.equal(await cards.count(), inKind('A') + inKind('B'));
    await cards
      .first()
      .getByText(/^llama-2-half: \d+ % of y is off, first at position 1$/)
      .waitFor();
    assert.deepEqual(await violations(page), []);

    await page.getByLabel('Search').fill('NO-SUCH-BUG');
    await page.getByText('None is like that.').waitFor();
    await page.getByLabel('Search').fill('bf16');
    await page.getByLabel('Kind').selectOption('I');
    const about = ({ id, does, needs, threads }: (typeof MUTANTS)[number]) =>
      `${id} ${does} ${needs ?? ''} ${threads.join(' ')}`.toLowerCase();
    const wanted = MUTANTS.filter((one) => one.cause === 'I' && about(one).includes('bf16')).map(({ id }) => id);
    const titles = page.locator('.museum-card h3').filter({ visible: true });
    assert.deepEqual(await titles.allInnerTexts(), wanted);
    await page.waitForURL(/q=bf16&cause=I/);

    await page.getByLabel('Search').fill('');
    await page.getByLabel('Kind').selectOption('');
    await page.getByLabel('Project that reported it').selectOption('ggml-org/llama.cpp');
    const reported = MUTANTS.filter(({ threads }) => threads.some((one) => one.startsWith('ggml-org/llama.cpp#')));
    assert.equal(await cards.count(), reported.length);
    await page.getByLabel('Step that it gets wrong').selectOption('positions');
    assert.ok((await cards.count()) > 0 && (await cards.count()) < reported.length);

    const id = await cards.first().getAttribute('id');
    await cards.first().getByRole('link', { name: 'Diagnose' }).click();
    await page.locator('#diagnose-head').waitFor();
    assert.match(page.url(), new RegExp(`diagnose/\\?bug=${id}`));
    assert.match(await page.locator('.diagnose-verdict').innerText(), new RegExp(id!));
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('each bug has a page that needs no script, with a picture, the first position and a vector that fails', async () => {
    const html = (id: string): string => readFileSync(join(DIST, 'museum', id, 'index.html'), 'utf8');
    for (const { id, threads } of MUTANTS) {
      const page = html(id);
      const preview = /<meta property="og:image" content="\.\.\/\.\.\/(.*?)">/.exec(page)?.[1];
      assert.equal(preview, `data/museum/${id}.png`);
      const png = readFileSync(join(DIST, preview));
      assert.deepEqual([png.toString('latin1', 1, 4), png.readUInt32BE(16), png.readUInt32BE(20)], ['PNG', 1000, 525]);
      for (const part of ['<h2>Where it shows</h2>', '<h2>The wrong line</h2>', 'a vector that fails', ...threads])
        assert.ok(page.replaceAll('<wbr>', '').toLowerCase().includes(part.toLowerCase()), `${id}: ${part}`);
      for (const lines of [TORCH_LINES, C_LINES])
        assert.ok(page.includes(escaped(lines.get(id)!.wrong)), `${id}: ${lines === C_LINES ? 'in C' : 'in torch'}`);
    }
    // These positions follow from the sizes of the types and of the table.
    assert.match(html('position-in-int8'), /first shows at <strong>position 128</);
    assert.match(html('position-in-bf16'), /first shows at <strong>position 257</);
    assert.match(html('table-ends'), /first shows at <strong>position 4096</);
    assert.match(html('last-token-missed'), /first shows at <strong>the last token of a call</);
    assert.match(html('exponent-without-two'), /<th scope="row">frequency<\/th>/);
    assert.doesNotMatch(html('yarn-ignored'), /Break a model/);
  });

  test('the page of a bug shows it in its picture, and is accessible', async () => {
    const { page, wrong } = await opened.visit('museum/pairs-interleaved-for-half/');
    assert.deepEqual(await violations(page), []);
    // On the left nothing is orange; on the right the first row is at position 0, where nothing turns.
    const orange = await page.locator('.bug-picture img').evaluate(async (image: HTMLImageElement) => {
      await image.decode();
      const canvas = document.createElement('canvas');
      [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
      const context = canvas.getContext('2d')!;
      context.drawImage(image, 0, 0);
      const parts: [number, number, number, number][] = [
        [0, 0, 500, 525],
        [500, 0, 500, 100],
        [500, 100, 500, 425],
      ];
      return parts.map((part) => {
        const { data } = context.getImageData(...part);
        return data.filter((red, i) => i % 4 === 0 && red > 240 && data[i + 2]! < 130).length;
      });
    });
    assert.equal(orange[0], 0);
    assert.equal(orange[1], 0);
    assert.ok(orange[2]! > 1000, String(orange));
    await page.getByRole('link', { name: 'Break a model with it' }).click();
    await page.waitForURL(/\/\?bug=pairs-interleaved-for-half$/);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
