/** Draws a page. The build does so too: what a page says is there before its script, and without it. @module */
import { render, type VNode } from 'preact';

/**
 * Draws into the page's place, and lets its controls be used, which are disabled until then. `render` and not `hydrate`,
 * because the address, or what the browser keeps, may ask for another view than the one that was built.
 *
 * @returns the same, which the build makes HTML of
 */
export function draw(page: VNode): VNode {
  const shown = <div>{page}</div>; // built elements that are not used again are removed below an element only
  if (typeof document !== 'undefined') {
    const place = document.querySelector<HTMLFieldSetElement>('#app')!;
    render(shown, place);
    place.disabled = false;
  }
  return shown;
}
