// own-kernel.ts puts this after the visitor's kernel, so that the lines of its errors are the visitor's.
addEventListener('message', ({ data: { call, rope, options } }) => {
  const asked = kernel?.operator === 'rope' ? { ...call, ...rope } : call;
  postMessage({ measured: ascend.measureKernel(kernel, asked, { ...options, record: true }) });
});
