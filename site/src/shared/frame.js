// This is the only script of the sandboxed frame that sandbox.ts makes. It runs the visitor's kernel in a worker, because
// a worker can be ended while it loops. The policy of the site's page has the hash of this text.
addEventListener('message', ({ source, data: { code, call } }) => {
  if (source !== parent) return;
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
  const tell = (answer) => {
    worker.terminate();
    parent.postMessage(answer, '*');
  };
  worker.onmessage = ({ data }) => tell(data);
  worker.onerror = ({ message, lineno }) => tell({ error: message, line: lineno });
  worker.postMessage(call);
});
