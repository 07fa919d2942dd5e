/** Adds search, copy buttons and running examples to the pages of Docs, which are already HTML. @module */
import './docs.css';
import { proxy } from 'comlink';
import type MiniSearch from 'minisearch';
import { scrollToHash } from '../shared/hash.js';
import { helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import type { Examples } from './run.worker.js';
import { DOCS_SEARCH, type Found } from './search-options.js';

function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]>,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** The number of results that the page shows. */
const MOST = 12;

/** Adds the search. Its index is fetched when the field is first used, and the service worker caches it. */
function addSearch(place: HTMLElement): void {
  const input = element('input', { type: 'search', placeholder: 'Search the docs', id: 'docs-q' });
  const results = element('ul', { className: 'docs-results' });
  const status = element('p', { className: 'visually-hidden', role: 'status' });
  place.append(
    element('label', { className: 'visually-hidden', htmlFor: 'docs-q' }, 'Search the docs'),
    input,
    status,
    results,
  );
  let index: Promise<MiniSearch> | undefined;
  const load = (): Promise<MiniSearch> =>
    (index ??= Promise.all([
      import('minisearch'),
      fetch(`${BASE}data/docs.json`).then((response) =>
        response.ok ? response.text() : Promise.reject(new Error(`The index answered ${response.status}.`)),
      ),
    ]).then(([{ default: Search }, json]) => Search.loadJSON(json, DOCS_SEARCH)));
  input.addEventListener('focus', () => void load().catch(() => undefined), { once: true });
  const search = async (): Promise<void> => {
    const asked = input.value.trim();
    const url = new URL(location.href);
    if (asked === '') url.searchParams.delete('q');
    else url.searchParams.set('q', asked);
    history.replaceState(null, '', url);
    if (asked === '') {
      results.replaceChildren();
      status.textContent = '';
      return;
    }
    try {
      const found = (await load()).search(asked) as unknown as Found[];
      if (input.value.trim() !== asked) return; // the user has typed more
      status.textContent = `${found.length} sections found`;
      results.replaceChildren(
        ...found.slice(0, MOST).map(({ id, page, title }) => {
          const [name, hash] = id.split('#');
          const link = element('a', { href: `${BASE}docs/${name}/#${hash}` }, title);
          return element('li', {}, link, element('span', {}, page === title ? '' : page));
        }),
        ...(found.length === 0 ? [element('li', {}, 'Nothing found. Try fewer or shorter words.')] : []),
      );
    } catch (error) {
      index = undefined;
      results.replaceChildren(
        element(
          'li',
          {},
          `${error instanceof Error ? error.message : error} Load the page again while you are online.`,
        ),
      );
    }
  };
  input.addEventListener('input', () => void search());
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown') results.querySelector('a')?.focus();
    if (event.key === 'Escape') {
      input.value = '';
      void search();
    }
  });
  results.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const links = [...results.querySelectorAll('a')];
    const next = links[links.indexOf(document.activeElement as HTMLAnchorElement) + step];
    (next ?? input).focus();
  });
  const asked = new URLSearchParams(location.search).get('q');
  if (asked !== null) {
    input.value = asked;
    void search();
  }
}

function addCopy(block: HTMLElement): void {
  const button = element('button', { type: 'button' }, 'Copy');
  button.addEventListener('click', () => {
    Promise.resolve(
      navigator.clipboard?.writeText(block.querySelector('code')!.textContent ?? '') ?? Promise.reject(),
    ).then(
      () => (button.textContent = 'Copied'),
      () => (button.textContent = 'Select it by hand'),
    );
    setTimeout(() => (button.textContent = 'Copy'), 2000);
  });
  block.append(button);
}

/** No example takes as long as a minute. */
const MOST_MS = 60_000;

/** Removes white space, because consoles break lines at different places. */
const unbroken = (text: string | null): string => (text ?? '').replace(/\s+/g, '');

function addRun(block: HTMLElement): void {
  const next = block.nextElementSibling;
  const expected = next?.matches('[data-output]') ? unbroken(next.textContent) : undefined;
  const button = element('button', { type: 'button', className: 'docs-run' }, 'Run');
  const output = element('pre', { className: 'docs-output', hidden: true, tabIndex: 0, ariaLive: 'polite' });
  const verdict = element('p', { className: 'muted', role: 'status' });
  button.addEventListener('click', () => {
    button.disabled = true;
    output.hidden = false;
    output.textContent = '';
    verdict.textContent = 'Running.';
    const worker = helper<Examples>('docs');
    const end = (said: string): void => {
      worker.end();
      clearTimeout(timer);
      output.append(said);
      button.disabled = false;
      verdict.textContent =
        expected === undefined
          ? 'Ran in this page.'
          : unbroken(output.textContent) === expected
            ? 'Ran in this page: the output is the same as below.'
            : 'Ran in this page: the output is not the same as below.';
    };
    const timer = setTimeout(() => end('Stopped after a minute.'), MOST_MS);
    const write = proxy((line: string) => output.append(line));
    worker
      .call((examples) => examples.run(block.dataset.example!, write))
      .then(
        (failed) => {
          output.classList.toggle('failed', failed !== undefined);
          end(failed ?? '');
        },
        (error: Error) => {
          if (button.disabled) end(error.message); // and not by its own end
        },
      );
  });
  block.append(button);
  block.after(output, verdict);
}

addSearch(document.querySelector<HTMLElement>('#docs-search')!);
for (const block of document.querySelectorAll<HTMLElement>('.docs-code')) {
  if (block.dataset.example !== undefined) addRun(block);
  addCopy(block);
}
// Beside the text there is room for the list of pages. On a phone an open one would push the text down.
if (matchMedia('(min-width: 980px)').matches) document.querySelector('.docs-side')?.setAttribute('open', '');
scrollToHash();
addEventListener('hashchange', scrollToHash);
