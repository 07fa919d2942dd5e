/** Causes that a step's own values show: factors, rows, norms, the residual stream, another layer. @module */
import { type Cause, leftBy, made, number, type Scene } from './cause.js';
import type { Rows } from './side.js';

/** Fits b = c · a by least squares. */
function factorOf(a: Float32Array, b: Float32Array, columns: (at: number) => number, count: number): Float64Array {
  const [products, squares] = [new Float64Array(count), new Float64Array(count)];
  for (let n = 0; n < a.length; n++) {
    const group = columns(n);
    products[group]! += a[n]! * b[n]!;
    squares[group]! += a[n]! * a[n]!;
  }
  return products.map((product, n) => product / Math.max(squares[n]!, 1e-30));
}

const KNOWN_FACTORS: readonly (readonly [name: string, of: (scene: Scene) => number | undefined])[] = [
  ['√hidden', ({ b }) => Math.sqrt(b.width)],
  ['√head_dim', ({ heads }) => heads && Math.sqrt(heads.headDim)],
];

/** Names a factor as a person would write it. */
function factorWords(scene: Scene, factor: number): string {
  for (const [name, of] of KNOWN_FACTORS) {
    const value = of(scene);
    if (value === undefined) continue;
    if (Math.abs(factor / value - 1) < 2e-3) return `${name} = ${number(value)}`;
    if (Math.abs(factor * value - 1) < 2e-3) return `1/${name} = ${number(1 / value)}`;
  }
  return number(factor, 4);
}

/** Formats the least and the largest. A call does not take as many arguments as a vocabulary has tokens. */
function range(values: Float64Array): string {
  const sorted = values.toSorted();
  return `${number(sorted[0]!)} to ${number(sorted.at(-1)!)}`;
}

/** Each try gives the sentence and the values that B then has. A general one is behind the special ones. */
export async function* valueCauses(scene: Scene): AsyncGenerator<Cause, void> {
  const { a, b, kind, layer } = scene;
  const cause = (id: string, says: string, data: Float32Array | undefined): Cause | undefined => {
    const left = leftBy(scene, data);
    return left === undefined ? undefined : { id, says, left };
  };
  if (b.data.every((x) => x === 0)) yield { id: 'zeros', says: 'B is 0 everywhere: nothing wrote it.', left: 0 };
  const { tokens, width } = b;

  const simple: (Cause | undefined)[] = [];
  const [scale] = factorOf(a.data, b.data, () => 0, 1) as unknown as [number];
  simple.push(
    cause(
      'scale',
      `B is A times ${factorWords(scene, scale)}.`,
      made(b, (at) => scale * a.data[at]!),
    ),
  );
  for (const by of [1, -1, 2, -2, 3, -3, 4, -4]) {
    if (tokens <= 2 * Math.abs(by)) continue;
    const data = made(b, (at, t) => (t + by >= 0 && t + by < tokens ? a.data[at + by * width]! : b.data[at]!));
    const where = by > 0 ? `${by} further on` : `${-by} before`;
    simple.push(cause('rows', `Each row of B is A's row of the token ${where}: tokens are shifted.`, data));
  }
  if (layer !== undefined)
    for (const other of scene.layersOf(kind)) {
      if (other === layer) continue;
      const { a: elsewhere } = await scene.load(kind, other);
      if (elsewhere?.data.length !== b.data.length) continue;
      simple.push(cause('layer', `B has here what A has in layer ${other}.`, elsewhere.data));
    }
  simple.push(
    ...(await normCauses(scene, cause)),
    ...(await residualCauses(scene, cause)),
    ...headCauses(scene, cause),
  );
  const found = simple.filter((one) => one !== undefined);
  yield* found;
  if (found.length > 0 || tokens < 4) return;

  // Factors of each column could be those of one number: they come last.
  const row = new Float64Array(width);
  for (let n = 0; n < b.data.length; n++) row[n % width]! += (b.data[n]! - a.data[n]!) / tokens;
  const bias = cause(
    'bias',
    '',
    made(b, (at, _t, c) => a.data[at]! + row[c]!),
  );
  if (bias)
    yield { ...bias, says: 'B is A plus one row, the same for all tokens: a bias is missing, doubled or another one.' };
  const columns = factorOf(a.data, b.data, (at) => at % width, width);
  const gains = cause(
    'gains',
    '',
    made(b, (at, _t, c) => columns[c]! * a.data[at]!),
  );
  if (gains && !bias) {
    const says = `B is A with each dimension times a factor of its own (${range(columns)}), the same for all tokens: the weight of a norm is missing, doubled or another one.`;
    yield { ...gains, says };
  }
  const factors = factorOf(a.data, b.data, (at) => Math.floor(at / width), tokens);
  const each = cause(
    'norm',
    '',
    made(b, (at, t) => factors[t]! * a.data[at]!),
  );
  if (each) {
    const says = `B is A with each token times a factor of its own (${range(factors)}): a norm is missing, doubled, or has another epsilon.`;
    yield { ...each, says };
  }
  const headDim = scene.heads?.headDim;
  if (!each && headDim && width % headDim === 0 && width > headDim) {
    const ofHeads = factorOf(a.data, b.data, (at) => Math.floor(at / headDim), (tokens * width) / headDim);
    const heads = cause(
      'head norm',
      '',
      made(b, (at) => ofHeads[Math.floor(at / headDim)]! * a.data[at]!),
    );
    if (heads)
      yield {
        ...heads,
        says: 'B is A with each head of each token times a factor of its own: the norm of heads is missing or doubled.',
      };
  }
}

type Try = (id: string, says: string, data: Float32Array | undefined) => Cause | undefined;

/** A norm that did not run, or ran twice, or read another residual stream. */
async function normCauses(scene: Scene, cause: Try): Promise<(Cause | undefined)[]> {
  const { kind, layer, a } = scene;
  if (!['attn_norm', 'mlp_norm', 'norm'].includes(kind)) return [];
  const { tokens, width } = a;
  const normed = (rows: Float32Array): Float32Array => {
    const roots = Float64Array.from({ length: tokens }, (_, t) => {
      const row = rows.subarray(t * width, (t + 1) * width);
      return Math.sqrt(row.reduce((sum, x) => sum + x * x, 0) / width) || 1;
    });
    return made(a, (at, t) => rows[at]! / roots[t]!);
  };
  const from = layer ?? 1 + Math.max(...scene.layersOf('out'));
  const input = kind === 'mlp_norm' ? await midOf(scene, from) : await before(scene, from);
  if (input?.data.length !== a.data.length) return [];
  const bare = normed(input.data);
  const gains = factorOf(bare, a.data, (at) => at % width, width);
  const gained = (rows: Float32Array): Float32Array => made(a, (at, _t, c) => rows[at]! * gains[c]!);
  const sums =
    kind === 'mlp_norm' ? await sumsOf(scene, 'attn', from) : from > 0 ? await sumsOf(scene, 'mlp', from - 1) : [];
  return [
    cause('norm missing', 'B has the input of the norm here: the norm did not run.', input.data),
    cause('norm weight missing', "B is normed, but without the norm's weight.", bare),
    cause(
      'norm weight + 1',
      "B's norm multiplies by 1 + weight, A's by the weight.",
      made(a, (at) => a.data[at]! + bare[at]!),
    ),
    cause(
      'norm weight - 1',
      "A's norm multiplies by 1 + weight, B's by the weight.",
      made(a, (at) => a.data[at]! - bare[at]!),
    ),
    cause('norm doubled', 'B is A normed once more: the norm ran twice.', gained(normed(a.data))),
    ...sums.map(([id, says, data]) => cause(id, says, gained(normed(data)))),
  ];
}

async function before(scene: Scene, layer: number): Promise<Rows | undefined> {
  return (layer === 0 ? await scene.load('embedding', -1) : await scene.load('out', layer - 1)).a;
}

/** Returns the residual stream after attention, which hooks on modules do not see: it is then added up. */
async function midOf(scene: Scene, layer: number): Promise<Rows | undefined> {
  const [there, stream, attn] = [
    await scene.load('mid', layer),
    await before(scene, layer),
    await scene.load('attn', layer),
  ];
  if (there.a || !stream || stream.data.length !== attn.a?.data.length) return there.a;
  return { ...stream, data: stream.data.map((x, n) => x + attn.a!.data[n]!) };
}

/** The residual stream and what a block adds to it, with the wrong terms. */
async function sumsOf(
  scene: Scene,
  block: 'attn' | 'mlp',
  layer: number,
): Promise<[id: string, says: string, data: Float32Array][]> {
  const stream = block === 'attn' ? await before(scene, layer) : await midOf(scene, layer);
  const branch = (await scene.load(block, layer)).a;
  if (stream?.data.length !== scene.a.data.length || branch?.data.length !== scene.a.data.length) return [];
  const name = block === 'attn' ? 'attention' : 'the MLP';
  const sums = [
    ['residual added', 'B holds the residual stream plus the output of the block here.', 1, 1],
    ['residual missing', `The residual stream is not added: B has only the output of ${name}.`, 0, 1],
    ['branch missing', `B has the residual stream alone: the output of ${name} is missing.`, 1, 0],
    ['residual doubled', 'The residual stream is added twice.', 2, 1],
    ['branch doubled', `The output of ${name} is added twice.`, 1, 2],
    ['branch negated', `The output of ${name} is subtracted.`, 1, -1],
  ] as const;
  return sums.map(([id, says, x, y]) => [id, says, made(scene.a, (at) => x * stream.data[at]! + y * branch.data[at]!)]);
}

/** A sum of the residual stream and a block with the wrong terms, or a block that holds the sum. */
async function residualCauses(scene: Scene, cause: Try): Promise<(Cause | undefined)[]> {
  const { kind, layer } = scene;
  if (layer === undefined || !['mid', 'out', 'attn', 'mlp'].includes(kind)) return [];
  const sums = await sumsOf(scene, kind === 'mid' || kind === 'attn' ? 'attn' : 'mlp', layer);
  return sums.map(([id, says, data]) => cause(id, says, data));
}

/** Heads in another order. */
function headCauses(scene: Scene, cause: Try): (Cause | undefined)[] {
  const { a, b, heads } = scene;
  const headDim = heads?.headDim;
  if (!headDim || b.width % headDim !== 0 || b.width === headDim || b.width / headDim > 256) return [];
  const count = b.width / headDim;
  const step = Math.max(1, Math.floor(b.tokens / 16));
  const apart = (mine: number, other: number): number => {
    let sum = 0;
    for (let t = 0; t < b.tokens; t += step)
      for (let i = 0; i < headDim; i++)
        sum += (b.data[t * b.width + mine * headDim + i]! - a.data[t * b.width + other * headDim + i]!) ** 2;
    return sum;
  };
  const source = Array.from({ length: count }, (_, mine) => {
    let [best, least] = [mine, apart(mine, mine)];
    for (let other = 0; other < count; other++) {
      const sum = apart(mine, other);
      if (sum < least) [best, least] = [other, sum];
    }
    return best;
  });
  if (source.every((other, mine) => other === mine)) return [];
  const moved = source.flatMap((other, mine) => (other === mine ? [] : [`${mine} is A's ${other}`]));
  const some = `${moved.slice(0, 4).join(', ')}${moved.length > 4 ? ', …' : ''}`;
  const data = made(
    b,
    (at, _t, c) => a.data[at + (source[Math.floor(c / headDim)]! - Math.floor(c / headDim)) * headDim]!,
  );
  return [cause('heads', `The heads of B are others: head ${some}.`, data)];
}
