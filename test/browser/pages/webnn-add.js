/** Runs in a page: adds two tensors with the browser's own WebNN, no package between, and logs the sum. */
const { navigator, MLGraphBuilder } = /** @type {any} */ (globalThis);
const context = await navigator.ml.createContext();
const builder = new MLGraphBuilder(context);
const sort = { dataType: 'float32', shape: [2] };
const sum = builder.add(builder.input('a', sort), builder.input('b', sort));
const graph = await builder.build({ sum });
const [a, b] = await Promise.all([0, 1].map(() => context.createTensor({ ...sort, writable: true })));
const out = await context.createTensor({ ...sort, readable: true });
context.writeTensor(a, Float32Array.of(1, 2));
context.writeTensor(b, Float32Array.of(10, 20));
context.dispatch(graph, { a, b }, { sum: out });
console.log(JSON.stringify([...new Float32Array(await context.readTensor(out))]));
