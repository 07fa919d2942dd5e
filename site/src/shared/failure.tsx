/** Shows error messages on the page. @module */

/** Returns the words of an error: a RopewalkError's sentence, or the browser's message. */
export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Shows a failure after which the page still works. `next` says what to do. Without an error it shows nothing. */
export function Failure({ error, next }: { readonly error: unknown; readonly next?: string }) {
  return (
    <div role="alert">
      {error !== undefined && (
        <p class="notice error">
          {wordsOf(error)}
          {next && ` ${next}`}
        </p>
      )}
    </div>
  );
}
