/** Draws a page. The build does so too: what a page says is there before its script, and without it. @module */
import { render, type VNode } from 'preact';

/**
 * Draws into the page's place, and lets its controls be used, which are disabled until then. What was built is replaced at
 * once: the address, or what the browser keeps, may ask for another view; and taking it over blocked Explore for longer
 * (359 ms for 237, on Lighthouse's phone). It draws in a task of its own: loading the scripts was a long one.
 *
 * @returns the same, which the build makes HTML of
 */
export function draw(page: VNode): VNode {
  if (typeof document !== 'undefined') {
    setTimeout(() => {
      const place = document.querySelector<HTMLFieldSetElement>('#app')!;
      place.replaceChildren();
      render(page, place);
      place.disabled = false;
    });
  }
  return page;
}
