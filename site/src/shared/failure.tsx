/** Error messages on the page. @module */

/** An error in words: a RopewalkError's sentence, or what the browser says. */
export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A failure that the page goes on after; `next` says what to do. Nothing while there is none. */
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
