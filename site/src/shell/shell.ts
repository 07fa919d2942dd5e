/** The parts of every page: styles, theme button, service worker. Every page loads this before its own entry. @module */
import './style.css';
import { BASE } from './base.js';

const button = document.querySelector<HTMLButtonElement>('#theme')!;
const dark = matchMedia('(prefers-color-scheme: dark)');
const { dataset } = document.documentElement;
const themeNow = (): string => dataset.theme || (dark.matches ? 'dark' : 'light');

function label(): void {
  const other = themeNow() === 'dark' ? 'Light' : 'Dark';
  button.textContent = other;
  button.setAttribute('aria-label', `${other} theme`);
}
button.hidden = false;
button.addEventListener('click', () => {
  dataset.theme = themeNow() === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem('theme', dataset.theme);
  } catch {
    // The browser stores nothing, so the choice holds only for this page.
  }
  label();
  dispatchEvent(new Event('themechange'));
});
dark.addEventListener('change', () => {
  label();
  dispatchEvent(new Event('themechange'));
});
label();

if (import.meta.env.PROD && 'serviceWorker' in navigator)
  addEventListener('load', async () => {
    try {
      await navigator.serviceWorker.register(`${BASE}sw.js`);
    } catch {
      // The host has no service worker or does not allow it. The page works, but not offline.
    }
  });
