/** Shows what a model writes with the right kernel, and beside it with one that has a known bug. @module */
import './two-texts.css';
import { PROMPT } from 'virtual:broken';
import { MARLINE_BYTES } from 'virtual:figures';
import { proxy } from 'comlink';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { BASE } from '../shell/base.js';
import type { BrokenModel } from './broken-model.worker.js';
import { Failure } from './failure.js';
import { type Helper, helper } from './worker.js';

/** Starts a worker that can write and rotate with a bug. */
export const openBroken = (): Helper<BrokenModel> => helper<BrokenModel>('broken-model');

/** A model of another host: the address of its folder, and what the visitor is asked for. */
export interface OtherModel {
  readonly address: string;
  /** Such as `269 MB from huggingface.co`. */
  readonly costs: string;
}

/**
 * Both texts, and the button that lets them be written.
 *
 * @param asked - how often the page has asked for them, besides the button; with 0 nothing is fetched
 * @param before - the texts before anything has run
 * @param model - writes in place of the bundled one; it is fetched once, and writes one text after the other
 * @param right, wrong - are shown below the texts
 */
export function TwoTexts(props: {
  readonly bug: string;
  readonly asked?: number;
  readonly before?: readonly [right: string, wrong: string];
  readonly model?: OtherModel | undefined;
  readonly onAsk?: () => void;
  readonly right?: ComponentChildren;
  readonly wrong?: ComponentChildren;
}) {
  const { bug, asked = 0, before = ['', ''], model } = props;
  const costs = model?.costs ?? `${(MARLINE_BYTES / 1e6).toFixed(1)} MB from this site`;
  const [texts, setTexts] = useState(before);
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState(false);
  const [loaded, setLoaded] = useState(0);
  const [error, setError] = useState<unknown>();
  const workers = useRef<readonly Helper<BrokenModel>[]>([]);
  const run = useRef(0);
  const end = (): void => {
    for (const worker of workers.current) worker.end();
    workers.current = [];
  };
  useEffect(() => end, []);
  async function write(): Promise<void> {
    const mine = ++run.current;
    end();
    setBusy(true);
    setDone(false);
    setError(undefined);
    setTexts(['', '']);
    setLoaded(0);
    // A large model is loaded once; two workers write with the small one side by side.
    const parts = model ? [[undefined, bug]] : [[undefined], [bug]];
    workers.current = parts.map(openBroken);
    try {
      await Promise.all(
        parts.map((bugs, part) => {
          const onText = proxy((n: number, text: string) => {
            const column = part + n;
            if (mine === run.current)
              setTexts((now) => (column === 0 ? [now[0] + text, now[1]] : [now[0], now[1] + text]));
          });
          const onProgress = proxy((share: number) => mine === run.current && setLoaded(share));
          const from = model ? { address: model.address } : { base: BASE };
          return workers.current[part]!.call((worker) => worker.write(from, bugs, onText, onProgress));
        }),
      );
      if (mine === run.current) setDone(true);
    } catch (failure) {
      if (mine === run.current) setError(failure);
    } finally {
      if (mine === run.current) {
        end();
        setBusy(false);
      }
    }
  }
  useEffect(() => {
    if (asked > 0) void write();
  }, [asked]);
  const same = done && texts[0] === texts[1];
  const column = (title: string, n: 0 | 1, more: ComponentChildren) => (
    <section aria-label={title} class={n === 1 ? 'two-texts-wrong' : ''}>
      <p class="two-texts-title">{title}</p>
      <p class="two-texts-text">
        <span class="muted">{PROMPT}</span>
        {texts[n]}
      </p>
      {more}
    </section>
  );
  return (
    <>
      <div class="two-texts">
        {column('With the right kernel', 0, props.right)}
        {column('With the wrong one', 1, props.wrong)}
      </div>
      <div class="actions">
        <button
          type="button"
          class="primary"
          disabled={busy}
          onClick={() => (props.onAsk ? props.onAsk() : void write())}
        >
          {busy ? 'Writing …' : 'Let both write'}
        </button>
        <span class="muted">
          {busy && texts[0] === ''
            ? `Fetching the model, ${costs} …${model && loaded > 0 ? ` ${Math.round(100 * loaded)} %` : ''}`
            : same
              ? 'Both wrote the same: this bug does not show in so short a text.'
              : `${run.current === 0 && before[0] !== '' ? 'Written when this site was built; here it takes ' : ''}${costs}, and runs in this page.`}
        </span>
      </div>
      <Failure error={error} />
      <p role="status" class="visually-hidden">
        {done && 'Both have written.'}
      </p>
    </>
  );
}
