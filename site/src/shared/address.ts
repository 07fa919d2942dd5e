/** Keeps state in the address, so that a user can send a view to somebody. @module */
import { useEffect, useState } from 'preact/hooks';

/** The keys of the address. The build, which has none, draws what a page shows without them. */
const pending = new URLSearchParams(globalThis.location?.search);
let timer: ReturnType<typeof setTimeout> | undefined;

/** Writes the address after a delay, because browsers refuse more than about three changes a second. */
function write(): void {
  clearTimeout(timer);
  timer = setTimeout(() => history.replaceState(null, '', address()), 300);
}

function address(): string {
  const text = pending.toString();
  return `${location.pathname}${text && `?${text}`}${location.hash}`;
}

/** Reads a key of the address. A person may have typed its value. */
export const fromAddress = (key: string): string | null => pending.get(key);

/** Sets or removes a key of the address. */
export function toAddress(key: string, value: string | undefined): void {
  if (value === undefined) pending.delete(key);
  else pending.set(key, value);
  write();
}

/**
 * Keeps a text in the address.
 *
 * @param key - the name in the address
 * @param initial - the value when the address does not have the key; this value is never written there
 * @param valid - the texts that are accepted from the address; others become `initial`
 */
export function useAddress(key: string, initial: string): [string, (value: string) => void];
export function useAddress<T extends string>(
  key: string,
  initial: NoInfer<T>,
  valid: (text: string) => text is T,
): [T, (value: T) => void];
export function useAddress(
  key: string,
  initial: string,
  valid: (text: string) => boolean = () => true,
): [string, (value: string) => void] {
  const [value, setValue] = useState<string>(() => {
    const given = pending.get(key);
    return given !== null && valid(given) ? given : initial;
  });
  useEffect(() => toAddress(key, value === initial ? undefined : value), [key, value, initial]);
  return [value, setValue];
}

/**
 * Keeps a text in the address, as {@link useAddress} does. Each change is a step to which the browser's button goes back.
 */
export function useAddressStep<T extends string>(
  key: string,
  initial: NoInfer<T>,
  valid: (text: string) => text is T,
): [T, (value: T) => void] {
  const [value, setValue] = useAddress<T>(key, initial, valid);
  useEffect(() => {
    const back = (): void => {
      const given = new URLSearchParams(location.search).get(key);
      setValue(given !== null && valid(given) ? given : initial);
    };
    addEventListener('popstate', back);
    return () => removeEventListener('popstate', back);
  }, []);
  const step = (next: T): void => {
    if (next === value) return;
    history.replaceState(null, '', address()); // what was to be written soon belongs to the step before
    toAddress(key, next === initial ? undefined : next);
    history.pushState(null, '', address());
    setValue(next);
  };
  return [value, step];
}

/**
 * Keeps a number in the address.
 *
 * @param range - a value outside of it, or one that is not a number, becomes `initial`
 */
export function useAddressNumber(
  key: string,
  initial: number,
  range: { readonly min: number; readonly max: number },
): [number, (value: number) => void] {
  const valid = (text: string): text is string =>
    text.trim() !== '' && Number(text) >= range.min && Number(text) <= range.max;
  const [text, setText] = useAddress(key, String(initial), valid);
  return [Number(text), (value) => setText(String(value))];
}
