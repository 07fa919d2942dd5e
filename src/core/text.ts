/** Words for messages. @module */

/**
 * Numbers in few characters: `0-4, 6`.
 *
 * @param numbers - integers that grow
 */
export function ranges(numbers: readonly number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < numbers.length; ) {
    let end = at;
    while (numbers[end + 1] === numbers[end]! + 1) end++;
    parts.push(end > at ? `${numbers[at]}-${numbers[end]}` : `${numbers[at]}`);
    at = end + 1;
  }
  return parts.join(', ');
}

/**
 * Escapes a text for XML and HTML, in content and in attributes. Characters that XML 1.0 cannot hold become U+FFFD.
 *
 * @param text - anything
 * @see https://www.w3.org/TR/xml/#charsets
 */
export function escapeMarkup(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return (
    text
      .replace(/\p{Cs}/gu, '\ufffd') // halves of a surrogate pair, alone
      .replace(/(?![\t\n\r\x7f-\x9f])\p{Cc}|[\ufffe\uffff]/gu, '\ufffd')
      .replace(/[&<>"']/g, (c) => names[c]!)
      // In an attribute a parser would turn these into spaces.
      .replace(/[\t\n\r]/g, (c) => `&#${c.charCodeAt(0)};`)
  );
}
