/** Tests the page Write: kernels that are wrong, endless, hostile or right; the ten puzzles; links. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { PUZZLES, startingText } from '../../site/src/write/puzzles.js';
import { invocations, withLimit } from '../../site/src/write/shader.js';
import { noBrowser, openChromium, SOFTWARE_GPU } from '../support/browser.js';
import { ISOLATED, openedSite, serveSite, UNDER, violations, visit } from '../support/site.js';

const PLAIN = startingText('');

/** Replaces parts of the plain kernel. Each part must be there. */
function changed(...edits: readonly (readonly [from: string, to: string])[]): string {
  return edits.reduce((text, [from, to]) => {
    assert.ok(text.includes(from), from);
    return text.replaceAll(from, to);
  }, PLAIN);
}

const ARGUMENTS = ['headDim, base }', 'headDim, base, rotaryDim, rotaryOffset, scaling, axes }'] as const;
const FREQUENCY = 'base ** (-2 * j / headDim)';
const frequency = (code: string) =>
  changed(ARGUMENTS, [FREQUENCY, 'frequency'], ['const angle', `${code}\n        const angle`]);
const axis = (code: string) => changed(ARGUMENTS, ['positions[t]', `positions[(${code}) * tokens + t]`]);

/** A right kernel for each puzzle. */
const SOLUTIONS: Readonly<Record<string, string>> = {
  'llama-2-half': PLAIN,
  'llama-2-interleaved': changed(['row + j, i1 = row + j + half', 'row + 2 * j, i1 = row + 2 * j + 1']),
  'phi-2': changed(ARGUMENTS, ['headDim / 2', 'rotaryDim / 2'], [FREQUENCY, 'base ** (-2 * j / rotaryDim)']),
  'window-trailing': changed(
    ARGUMENTS,
    ['headDim / 2', 'rotaryDim / 2'],
    [FREQUENCY, 'base ** (-2 * j / rotaryDim)'],
    ['i0 = row + j, i1 = row + j + half', 'i0 = row + rotaryOffset + 2 * j, i1 = i0 + 1'],
  ),
  linear: changed(ARGUMENTS, [FREQUENCY, `${FREQUENCY} / scaling.factor`]),
  'dynamic-ntk': changed(ARGUMENTS, [
    FREQUENCY,
    '(base * (scaling.factor * scaling.context / scaling.originalContext - scaling.factor + 1) ** (headDim / (headDim - 2))) ** (-2 * j / headDim)',
  ]),
  'llama-3.1-f32': frequency(`const f = ${FREQUENCY};
        const turns = scaling.originalContext * f / (2 * Math.PI);
        const { lowFreqFactor: low, highFreqFactor: high } = scaling;
        const s = Math.min(1, Math.max(0, (turns - low) / (high - low)));
        const frequency = f * (s + (1 - s) / scaling.factor);`),
  'qwen2.5-yarn': frequency(`const f = ${FREQUENCY};
        const d = (n) => headDim * Math.log(scaling.originalContext / (2 * Math.PI * n)) / (2 * Math.log(base));
        const [low, high] = [Math.floor(d(32)), Math.ceil(d(1))];
        const ramp = Math.min(1, Math.max(0, (j - low) / (high - low)));
        const frequency = f * (1 - ramp) + f / scaling.factor * ramp;`)
    .replace('Math.cos(angle)', 'm * Math.cos(angle)')
    .replace('Math.sin(angle)', 'm * Math.sin(angle)')
    .replace('const half', 'const m = 0.1 * Math.log(scaling.factor) + 1;\n  const half'),
  'qwen2-vl-mrope': axis('j < axes.sections[0] ? 0 : j < axes.sections[0] + axes.sections[1] ? 1 : 2'),
  'qwen3-vl-mrope': axis('j < 60 ? j % 3 : 0'),
};

test('a limit is in each loop, whatever its header, and in no comment', () => {
  const step =
    /\{ ropewalk_steps \+= 1u; if \(ropewalk_steps > 262144u\) \{ atomicStore\(&ropewalk_late, 1u\); break; \}/g;
  const of = (code: string): string => withLimit(code).replace(step, '{!').split('\nvar<private>')[0]!;
  assert.equal(
    of('for (var i = (1); i < 2; i++) { loop { while i < 3 { } } }'),
    'for (var i = (1); i < 2; i++) {! loop {! while i < 3 {! } } }',
  );
  assert.equal(of('/* for { */ fn f(loop_count: u32) { if a { } }'), '   fn f(loop_count: u32) { if a { } }');
});

test('the size of a workgroup is read outside comments, which may be nested', () => {
  const size = '@compute @workgroup_size(8, 4u) fn rope() {}';
  for (const [code, want] of [
    [size, 32],
    [`// @workgroup_size(7)\n${size}`, 32],
    [`// /*\r${size}`, 32],
    [`/* /* a */ @workgroup_size(7) */ ${size}`, 32],
    [`/* // */ ${size}`, 32],
    [`/* //* */ */ ${size}`, 32],
    [`${size} /* // */ /* without an end`, 32],
    ['@workgroup_size /* x */ (64, /* 2, */ 3)', 192],
    ['@workgroup_size(SIZE)', 1],
    ['/* @workgroup_size(7)', 1],
  ] as const)
    assert.equal(invocations(code), want, code);
});

describe('Write in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite({ flags: SOFTWARE_GPU });

  // The browser's own editing puts a style on text that replaces other text; the policy refuses it, and nothing is lost.
  const bad = (wrong: readonly string[]) => wrong.filter((words) => !/Applying inline style/.test(words));
  const result = (page: Page) => page.getByRole('region', { name: 'What it did' });
  const edit = async (page: Page, text: string): Promise<void> => {
    await page.getByRole('textbox', { name: 'The kernel' }).click();
    await page.keyboard.press('Control+A');
    await page.keyboard.insertText(text);
  };
  const run = (page: Page) => page.getByRole('button', { name: 'Run', exact: true }).click();

  test('a wrong kernel is named, and mended as it is typed; ten puzzles are solved and stay so', async () => {
    const { page, wrong } = await opened.visit('write/');
    const { y, height } = (await page.getByRole('button', { name: 'Run', exact: true }).boundingBox())!;
    assert.ok(y + height < 900, 'Run is in sight without scrolling');
    await run(page);
    await result(page).getByRole('paragraph').getByText('KNOWN BUG: position-plus-one', { exact: true }).waitFor();
    await result(page)
      .getByText(/The first wrong element: token 0 \(position 0\), head 0, dimension 0: y is -?[\d.]+, right is/)
      .waitFor();
    const about = result(page).getByRole('link', { name: 'All about position-plus-one' });
    assert.match((await about.getAttribute('href'))!, /museum\/position-plus-one\/$/);
    assert.deepEqual(await violations(page), []);
    for (const [n, { id, title }] of PUZZLES.entries()) {
      if (n > 0) await page.getByRole('button', { name: `${n + 1} ${title}`, exact: true }).click();
      await page.getByRole('heading', { name: `Puzzle ${n + 1}: ${title}` }).waitFor();
      await edit(page, SOLUTIONS[id]!);
      if (n > 0) await run(page); // after the first run, a change runs by itself
      await result(page).getByText('Right', { exact: true }).waitFor();
    }
    await page.reload();
    await page.getByRole('button', { name: 'solved: Interleaved M-RoPE' }).waitFor();
    assert.equal(await page.getByRole('button', { name: /solved/ }).count(), 10);
    await page.getByLabel('Case').selectOption('stablelm-3b'); // a case that is no puzzle
    await page.getByRole('heading', { name: 'stablelm-3b' }).waitFor();
    await run(page);
    await result(page).getByRole('paragraph').getByText('KNOWN BUG: whole-head-rotated', { exact: true }).waitFor();
    assert.deepEqual(bad(wrong), []);
    await page.context().close();
  });

  test('a kernel loops without end, throws, returns too little, or reaches for what is not its own', async () => {
    const { page, wrong } = await opened.visit('write/');
    const says = async (text: string, words: RegExp): Promise<void> => {
      await edit(page, text);
      await run(page);
      await result(page).getByRole('alert').getByText(words).waitFor();
    };
    await says('function rope() {\n  for (;;);\n}', /ended after 5 seconds/);
    const more = 'const all = [];\n  for (;;)';
    await says(
      `function rope(x) {\n  ${more} all.push(new Float64Array(2 ** 20).fill(1));\n}`,
      /^RangeError: .* 256 MB/,
    );
    await says(`function rope(x) {\n  ${more} all.push(x.slice());\n}`, /^RangeError: .* 256 MB/);
    await says('function rope() {\n  return missing;\n}', /^Line 2: ReferenceError: missing/);
    await says('function rope( {', /^Line \d: SyntaxError/);
    await says('const rope = () => [1, 2];', /y of length 2; x has 1536 numbers/);
    await says('postMessage({ y: "?" });', /sent a message of its own/);
    const there = `${opened.site.origin}${UNDER}reached`;
    for (const [n, reach] of [
      `await fetch('${there}')`,
      `await new Promise((_, no) => { new WebSocket('${there.replace('http', 'ws')}').onerror = no; })`,
      `importScripts('${there}')`,
      `const inner = URL.createObjectURL(new Blob(["fetch('${there}').then(() => postMessage(1), () => postMessage(0))"]));
       await new Promise((yes, no) => { new Worker(inner).onmessage = ({ data }) => (data ? yes() : no()); })`,
      `await import('${there}')`,
      "eval('1')",
      "await caches.open('a')",
      "indexedDB.open('a')",
    ].entries()) {
      // The text keeps the call to itself and answers in its own words.
      const code = `(async () => { ${reach}; })().then(() => 'reached', () => 'refused')`;
      const own = "addEventListener('message', (call) => call.stopImmediatePropagation());";
      await says(`${own} ${code}.then((word) => postMessage({ error: word + ${n} }));`, new RegExp(`refused${n}`));
    }
    assert.ok(!opened.site.asked.some((path) => path.includes('reached')));
    // The browser writes each refusal on the console.
    assert.deepEqual(
      wrong.filter((words) => !/Content Security Policy|reached/.test(words)),
      [],
    );
    await page.context().close();
  });

  test('a shader on the GPU: a bug, an error with its line, a right one, other bindings; no WebGPU is said', async () => {
    const { page, wrong } = await opened.visit('write/?language=wgsl&case=qwen2.5-yarn');
    const shader = startingText('', 'wgsl');
    await run(page);
    await result(page)
      .getByRole('paragraph')
      .getByText('KNOWN BUG: second-member-from-first', { exact: true })
      .waitFor();
    const says = async (text: string, words: RegExp): Promise<void> => {
      await edit(page, text);
      await run(page);
      await result(page).getByText(words).first().waitFor();
    };
    await says(shader.replace('let half', 'let half:'), /^Line \d+: /);
    await says(shader.replaceAll('y[i0] *', 'x[i0] *').replaceAll('y[i1] *', 'x[i1] *'), /^Right$/);
    await says(shader.replace('binding(3)', 'binding(9)'), /^The shader's bindings are not those of this page/);
    const looping = (loop: string) => shader.replace('let t =', `${loop}\n  let t =`);
    await says(
      looping('loop { y[0] += 1.0; if (y[0] < -1e30) { break; } }'),
      /^The loops of the shader ran more than 262144/,
    );
    await says(
      looping('for (var n = 0; n < 1000; n++) { while (y[0] < 1e6) { y[0] += 0.0; } }'),
      /^The loops of the shader/,
    );
    // Run once more, while a shader holds the GPU: the second one is judged, and the first is not heard of again. The first
    // holds it for 7 s here; what it holds it for after its worker's end counts in the 20 s of the second.
    const held = shader.replace(
      /if \(row >= .*/,
      'for (var n = 0; n < 100000; n++) { y[0] += 1.0; workgroupBarrier(); }',
    );
    await edit(page, held);
    await run(page);
    await page.locator('.write-result[aria-busy=true]').waitFor();
    await says(shader, /^KNOWN BUG: second-member-from-first$/);
    await page.locator('.write-result[aria-busy=false]').waitFor();
    assert.equal(await result(page).getByRole('alert').innerText(), '');
    assert.deepEqual(bad(wrong), []);
    await page.context().close();
    const plain = await openChromium(['--disable-gpu']);
    const { page: without } = await visit(plain, opened.site, 'write/?language=wgsl');
    await run(without);
    await without.getByRole('alert').getByText('has no WebGPU').waitFor();
    await plain.close();
  });

  test('a link brings its kernel, which waits for Run; a broken, a long and a swollen link say so', async () => {
    const { page, wrong } = await opened.visit('write/?case=phi-2');
    await edit(page, `${SOLUTIONS['phi-2']}// é 旋`);
    await page.waitForURL(/#code=/);
    const link = page.url();
    const isolated = await serveSite(ISOLATED);
    const { page: other, wrong: also } = await visit(
      opened.browser,
      isolated,
      link.slice((opened.site.origin + UNDER).length),
    );
    await other.getByText('Nothing of it runs before you press Run').waitFor();
    await other.getByText('// é 旋').waitFor();
    await result(other).getByText('Not run yet.').waitFor();
    await run(other);
    await result(other).getByText('Right', { exact: true }).waitFor();
    const packed = await page.evaluate(async () => {
      const stream = new Blob([' '.repeat(4_000_000)]).stream().pipeThrough(new CompressionStream('deflate-raw'));
      return btoa(String.fromCharCode(...new Uint8Array(await new Response(stream).arrayBuffer())));
    });
    for (const [code, words] of [
      [link.split('#code=')[1]!.slice(0, 60), /cut or broken/],
      ['%%%', /cut or broken/],
      ['A'.repeat(9000), /longer than 8192 characters/],
      [packed.replaceAll('+', '-').replaceAll('/', '_'), /longer than 32768 bytes/],
    ] as const) {
      await other.goto('about:blank');
      await other.goto(`${isolated.origin}${UNDER}write/#code=${code}`);
      await other.getByRole('alert').getByText(words).waitFor();
    }
    assert.deepEqual(bad([...wrong, ...also]), []);
    await page.context().close();
    await other.context().close();
    isolated.close();
  });
});
