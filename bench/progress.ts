/** A line of progress, on a terminal only. @module */

/** Shows a line in place of the last one; without text, takes it away. */
export function showProgress(text = ''): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}
