/** Causes that a step's own values show: factors, rows, norms, the residual stream, another layer. @module */
import { type Cause, leftBy, made, number, type Scene } from './cause.js';
import type { Kind } from './names.js';
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
    const says = `B is A with each dimension times a factor of its own (${number(Math.min(...columns))} to ${number(Math.max(...columns))}), the same for all tokens: the weight of a norm is missing, doubled or another one.`;
    yield { ...gains, says };
  }
  const factors = factorOf(a.data, b.data, (at) => Math.floor(at / width), tokens);
  const each = cause(
    'norm',
    '',
    made(b, (at, t) => factors[t]! * a.data[at]!),
  );
  if (each) {
    const says = `B is A with each token times a factor of its own (${number(Math.min(...factors))} to ${number(Math.max(...factors))}): a norm is missing, doubled, or has another epsilon.`;
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

/** A norm that did not run, or ran twice. */
async function normCauses(scene: Scene, cause: Try): Promise<(Cause | undefined)[]> {
  const { kind, layer, a } = scene;
  const input = await normInput(scene, kind, layer);
  if (!input || input.data.length !== a.data.length) return [];
  const { tokens, width } = a;
  const rootOf = (rows: Float32Array, t: number): number => {
    let sum = 0;
    for (let n = t * width; n < (t + 1) * width; n++) sum += rows[n]! ** 2;
    return Math.sqrt(sum / width) || 1;
  };
  const [ofInput, ofA] = [
    Float64Array.from({ length: tokens }, (_, t) => rootOf(input.data, t)),
    Float64Array.from({ length: tokens }, (_, t) => rootOf(a.data, t)),
  ];
  const gains = factorOf(
    made(a, (at, t) => input.data[at]! / ofInput[t]!),
    a.data,
    (at) => at % width,
    width,
  );
  return [
    cause('norm missing', 'B has the input of the norm here: the norm did not run.', input.data),
    cause(
      'norm weight missing',
      "B is normed, but without the norm's weight.",
      made(a, (at, t) => input.data[at]! / ofInput[t]!),
    ),
    cause(
      'norm weight + 1',
      "B's norm multiplies by 1 + weight, A's by the weight.",
      made(a, (at, _t, c) => a.data[at]! * (1 + 1 / gains[c]!)),
    ),
    cause(
      'norm weight - 1',
      "A's norm multiplies by 1 + weight, B's by the weight.",
      made(a, (at, _t, c) => a.data[at]! * (1 - 1 / gains[c]!)),
    ),
    cause(
      'norm doubled',
      'B is A normed once more: the norm ran twice.',
      made(a, (at, t, c) => (a.data[at]! / ofA[t]!) * gains[c]!),
    ),
  ];
}

/** Returns the residual stream that a norm reads, as A has it. */
async function normInput(scene: Scene, kind: Kind, layer: number | undefined): Promise<Rows | undefined> {
  if (kind === 'mlp_norm') return (await scene.load('mid')).a;
  if (kind === 'attn_norm') return before(scene, layer!);
  if (kind === 'norm') return (await scene.load('out', Math.max(...scene.layersOf('out')))).a;
  return undefined;
}

async function before(scene: Scene, layer: number): Promise<Rows | undefined> {
  return (layer === 0 ? await scene.load('embedding', -1) : await scene.load('out', layer - 1)).a;
}

/** Sums of the residual stream and what blocks add, with the wrong terms. */
async function residualCauses(scene: Scene, cause: Try): Promise<(Cause | undefined)[]> {
  const { kind, layer, a } = scene;
  if (layer === undefined || !['mid', 'out', 'attn', 'mlp'].includes(kind)) return [];
  const stream = kind === 'mid' || kind === 'attn' ? await before(scene, layer) : (await scene.load('mid')).a;
  const branch = kind === 'mid' || kind === 'attn' ? (await scene.load('attn')).a : (await scene.load('mlp')).a;
  if (!stream || !branch || stream.data.length !== a.data.length || branch.data.length !== a.data.length) return [];
  const block = kind === 'mid' || kind === 'attn' ? 'attention' : 'the MLP';
  const sum = (x: number, y: number): Float32Array => made(a, (at) => x * stream.data[at]! + y * branch.data[at]!);
  const isBranch = kind === 'attn' || kind === 'mlp';
  const both = 'B holds the residual stream plus the output of the block here.';
  const tries: readonly (readonly [string, string, number, number])[] = [
    isBranch
      ? ['residual added', both, 1, 1]
      : ['residual missing', `The residual stream is not added: B has only the output of ${block}.`, 0, 1],
    ['branch missing', `B has the residual stream alone: the output of ${block} is missing.`, 1, 0],
    ['residual doubled', 'The residual stream is added twice.', isBranch ? 1 : 2, 1],
    ['branch doubled', `The output of ${block} is added twice.`, 1, 2],
    ['branch negated', `The output of ${block} is subtracted.`, 1, -1],
  ];
  return tries.map(([id, says, x, y]) => cause(id, says, sum(x, y)));
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
