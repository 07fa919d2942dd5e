/** Links to public threads. A link is no request. @module */

/** Threads such as `ggml-org/llama.cpp#7481`, one link each. */
export function Threads({ threads }: { readonly threads: readonly string[] }) {
  return (
    <>
      {threads.map((thread, n) => {
        const [repository = '', number] = thread.split('#');
        const [owner, name] = repository.split('/');
        return (
          <span key={thread}>
            {n > 0 && ', '}
            <a href={`https://github.com/${repository}/issues/${number}`} rel="noreferrer">
              {owner}/<wbr />
              {name}#{number}
            </a>
          </span>
        );
      })}
    </>
  );
}
