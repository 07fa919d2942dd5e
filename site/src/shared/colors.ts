/** The theme's colors for what is drawn on a canvas, which no style sheet reaches. @module */
import { useEffect, useState } from 'preact/hooks';

/** A color of style.css, such as `s1` or `line`, in the theme that is on. */
export function color(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(--${name})`; // computed, light-dark() becomes one color
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Counts changes of the theme: what depends on it is drawn again. */
export function useTheme(): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const changed = (): void => setCount((now) => now + 1);
    addEventListener('themechange', changed);
    return () => removeEventListener('themechange', changed);
  }, []);
  return count;
}
