/** Shows links to public threads. The page sends no request to them itself. @module */

/** Shows a link for each thread, such as `ggml-org/llama.cpp#7481`. */
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
