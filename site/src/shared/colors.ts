/** Reads the theme's colors for canvases, because style sheets do not apply there. @module */
import { useEffect, useState } from 'preact/hooks';

/** Returns a color of style.css, such as `s1` or `line`, in the current theme. */
export function color(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(--${name})`; // the computed style has one color instead of light-dark()
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Counts changes of the theme, so that components which depend on it draw again. */
export function useTheme(): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const changed = (): void => setCount((now) => now + 1);
    addEventListener('themechange', changed);
    return () => removeEventListener('themechange', changed);
  }, []);
  return count;
}
