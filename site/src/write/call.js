// run-rope.ts puts this after the visitor's kernel, so that the lines of its errors are the visitor's.
addEventListener('message', ({ data: { x, positions, options } }) => {
  const y = rope(x, positions, options) ?? x; // a kernel that works in place returns nothing
  if (y.length === x.length) postMessage({ y: Float32Array.from(y) });
  else postMessage({ error: `rope returned a y of length ${y.length}; x has ${x.length} numbers. Return as many.` });
});
