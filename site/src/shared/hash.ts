/** Follows the part of the address after #, where a page is drawn late or folded. @module */
import { decoded } from './remote.js';

/** Scrolls to the element that the address names, and unfolds what it is in. */
export function scrollToHash(): void {
  const named = document.getElementById(decoded(location.hash.slice(1)));
  named?.closest('details')?.setAttribute('open', '');
  named?.scrollIntoView();
}
