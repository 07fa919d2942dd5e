/** The museum lists each known bug. The build draws the cards, and this script filters them. @module */
import './museum.css';
import { fromAddress, toAddress } from '../shared/address.js';
import { scrollToHash } from '../shared/hash.js';

const form = document.querySelector<HTMLFormElement>('#museum-filter')!;
const rooms = [...document.querySelectorAll<HTMLDetailsElement>('[data-cause]')];
const KEYS = ['q', 'cause', 'step', 'peer'] as const;
const field = (key: string) => form.elements.namedItem(key) as HTMLInputElement | HTMLSelectElement;

function show(): void {
  const [needle, cause, step, peer] = KEYS.map((key) => field(key).value.trim().toLowerCase()) as [
    string,
    string,
    string,
    string,
  ];
  const isSearch = [needle, cause, step, peer].some((word) => word !== '');
  let count = 0;
  let all = 0;
  for (const [n, room] of rooms.entries()) {
    let inRoom = 0;
    for (const { dataset, style } of room.querySelectorAll<HTMLElement>('.museum-card')) {
      const { find = '', steps = '' } = dataset;
      const shown =
        (cause === '' || room.dataset.cause!.toLowerCase() === cause) &&
        (step === '' || steps.split('|').includes(step)) &&
        (peer === '' || ` ${find}`.includes(` ${peer}#`)) &&
        find.includes(needle);
      style.display = shown ? '' : 'none';
      all++;
      if (shown) inRoom++;
    }
    room.hidden = inRoom === 0;
    room.open = isSearch || n === 0;
    room.querySelector('.tag')!.textContent = String(inRoom);
    count += inRoom;
  }
  const found = count > 0 ? `${count} of ${all} are shown.` : 'None is like that. Try another word, or choose all.';
  document.querySelector('#museum-count')!.textContent = isSearch ? found : `Open a kind, or search all ${all}.`;
}

for (const key of KEYS) field(key).value = fromAddress(key) ?? '';
form.hidden = false;
form.addEventListener('submit', (event) => event.preventDefault());
form.addEventListener('input', () => {
  for (const key of KEYS) toAddress(key, field(key).value || undefined);
  show();
});
show();
scrollToHash();
