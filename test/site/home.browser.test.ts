/** Tests the page Home: its picture turns with the slider, its figures are right, and its links work. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { builtInCases } from '@ropewalk/cli/internal';
import { MUTANTS } from '@ropewalk/diagnose';
import { noBrowser } from '../support/browser.js';
import { openedSite, UNDER, violations } from '../support/site.js';

describe('Home in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();

  test('the picture is there within a second, follows the slider, and the address keeps it', async () => {
    const { page, wrong } = await opened.visit('');
    const painted = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]!.startTime);
    assert.ok(painted < 5000, `${painted} ms`); // it takes a second on a quiet machine, see docs/site.md
    const picture = page.getByRole('img', { name: /pairs \(j, j \+ 8\) at position/ }).first();
    assert.match((await picture.getAttribute('aria-label'))!, /at position 7;/);
    const slider = page.getByRole('slider');
    await slider.focus();
    await page.keyboard.press('ArrowRight');
    assert.match((await picture.getAttribute('aria-label'))!, /at position 8;/);
    await slider.fill('100');
    await page.waitForURL(/position=100/);
    await page.reload();
    await page
      .getByRole('img', { name: /pairs \(j, j \+ 8\) at position 100/ })
      .first()
      .waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('a bug that is chosen spoils the right column, and its dials; the link keeps it', async () => {
    const { page, wrong } = await opened.visit('');
    const fetched: string[] = [];
    page.on('request', (request) => fetched.push(request.url()));
    const texts = page.locator('.two-texts-text');
    const dials = page.locator('.two-texts svg');
    const [right, broken] = await texts.allInnerTexts();
    assert.ok(right!.length > 80 && broken!.length > 80 && right !== broken);
    const angles = async (n: number) => (await dials.nth(n).getAttribute('aria-label'))!.replace(/.*points/, '');
    assert.notEqual(await angles(0), await angles(1));
    assert.deepEqual(
      fetched.filter((url) => /marline|worker/.test(url)),
      [],
      'nothing is fetched before it is asked for',
    );

    const bug = page.getByLabel('Break the model with a known bug');
    await bug.selectOption('exponent-without-two');
    await page.waitForURL(/bug=exponent-without-two/);
    await page.getByText('Both have written.').waitFor({ state: 'attached', timeout: 60_000 });
    const [again, other] = await texts.allInnerTexts();
    assert.equal(again, right, 'the page writes what the build wrote');
    assert.ok(other !== right && other !== broken);
    // The first pair turns alike, as its exponent is 0; all is well at position 0.
    assert.equal(await angles(0), await angles(1));
    const dots = (n: number): Promise<string[]> =>
      dials
        .nth(n)
        .locator('path + path ~ line')
        .evaluateAll((all) => all.map((one) => one.getAttribute('x2')!));
    assert.notDeepEqual(await dots(0), await dots(1));
    await page.getByRole('slider').fill('0');
    await page.waitForFunction(() => {
      const [a, b] = [...document.querySelectorAll('.two-texts svg')].map((svg) =>
        [...svg.querySelectorAll('line')].map((one) => one.getAttribute('x2')).join(),
      );
      return a === b;
    });
    assert.deepEqual(await violations(page), []);

    await page.goto(page.url());
    await page.getByText('Both have written.').waitFor({ state: 'attached', timeout: 60_000 });
    assert.deepEqual(await texts.allInnerTexts(), [again, other], 'who opens the link sees the same');
    assert.equal(
      await page.getByRole('link', { name: 'All about it' }).getAttribute('href'),
      `${opened.site.origin}${UNDER}museum/exponent-without-two/`,
    );
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('its figures are those of the packages', async () => {
    const { page } = await opened.visit('');
    const figure = (of: string): Promise<string> =>
      page.locator('.home-facts div', { hasText: of }).locator('dd').innerText();
    assert.equal(await figure('test cases'), String(builtInCases().length));
    const suites = builtInCases().map(({ suite, label }) => `${suite} ${label}`);
    const byPeers = suites.filter((one) => /^(ggml|huggingface|onnx(-contrib)?) (?!.*gemma)/i.test(one)).length;
    await page.getByText(`results of ${byPeers} are from the peers' own programs`).waitFor();
    assert.equal(await figure('known wrong kernels'), String(MUTANTS.length));
    await page.context().close();
  });

  test('"See it babble" shows where the model babbles', async () => {
    const { page } = await opened.visit('');
    await page.getByRole('link', { name: 'See it babble' }).click();
    await page.waitForFunction(() => {
      const box = document.getElementById('babble')?.getBoundingClientRect();
      return box && box.top >= 0 && box.top < innerHeight;
    });
    await page.context().close();
  });

  test('every link of the page leads somewhere', async () => {
    const { page } = await opened.visit('');
    const links = await page.locator('a[href]').evaluateAll((all) => all.map((a) => (a as HTMLAnchorElement).href));
    for (const link of new Set(links.map((link) => link.replace(/#.*/, ''))))
      assert.equal((await page.request.get(link)).status(), 200, link);
    await page.context().close();
  });
});
