/** Shows a line of progress, but only on a terminal. @module */

/** Replaces the last line of progress. Without a text it removes the line. */
export function showProgress(text = ''): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}
