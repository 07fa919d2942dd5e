/** Causes that a step's own values show: factors, rows, norms, the residual stream, another layer. @module */
import { planGelu, tensorFrom, zeros } from 'ropewalk';
import { ranges } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { type Cause, leftBy, made, number, type Scene } from './cause.js';
import { bestOf } from './causes-attention.js';
import { rotatedAsA } from './causes-rope.js';
import { compare } from './compare.js';
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

const shortened = (words: readonly string[]): string =>
  `${words.slice(0, 4).join(', ')}${words.length > 4 ? ', …' : ''}`;

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
    ...(await activationCauses(scene, cause)),
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
  const empty = [...columns.keys()].filter((c) => columns[c] === 0);
  const zeros = cause(
    'zeros in part',
    `Dimensions ${shortened(ranges(empty).split(', '))} of B are 0, the others are A's: rows of the matrix were not loaded, or not computed.`,
    made(b, (at, _t, c) => (columns[c] === 0 ? 0 : a.data[at]!)),
  );
  if (zeros && empty.length > 0) {
    yield zeros;
    return;
  }
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
  const { kind, layer, a, proof } = scene;
  const of = NORMED[kind];
  if (!of && !['attn_norm', 'mlp_norm', 'norm'].includes(kind)) return [];
  const from = layer ?? 1 + Math.max(...scene.layersOf('out'));
  const given = of
    ? (await scene.load(of)).a
    : kind === 'mlp_norm'
      ? await midOf(scene, from)
      : await before(scene, from);
  if (given?.data.length !== a.data.length) return [];
  // A norm of heads has one weight for all of them; a LayerNorm takes the mean off.
  const sizes = /^[qk]_norm$/.test(kind) && scene.heads ? [a.width, scene.heads.headDim] : [a.width];
  const norms = sizes.flatMap((size) =>
    [false, true].flatMap((centred) => EPSILONS.map((eps) => normOf(a, given.data, size, centred, eps))),
  );
  const plain = norms.find(({ left }) => left <= proof);
  const branch = kind === 'mlp_norm' ? await branchOf(scene, await before(scene, from), plain?.eps ?? 1e-6) : undefined;
  const input = branch && !plain ? { ...given, data: branch.input } : given;
  const own = plain ?? branch?.norm ?? norms[0]!;
  const { size, eps, bare, gained, normed } = own;
  const [few, of64] = [normOf(firstRows(a), firstRows(input).data, size, own.centred, eps), firstRows(scene.b)];
  const apart = (x: number): number =>
    compare(of64, { ...of64, data: few.gained(few.normed(firstRows(input).data, x)) }).worst;
  const epsB = own.left <= proof ? bestOf(apart, 1e-9, 1) : eps;
  const rotated = of === 'q' || of === 'k' ? (await rotatedAsA(scene, of, input))?.data : undefined;
  // Where a factor belongs to the sum, sums without it say less.
  const sums =
    of || input !== given
      ? []
      : kind === 'mlp_norm'
        ? await sumsOf(scene, 'attn', from)
        : from > 0
          ? await sumsOf(scene, 'mlp', from - 1)
          : [];
  const causes = [
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
    cause(
      'norm centred',
      own.centred
        ? 'B does not subtract the mean, as RMSNorm; A does, as LayerNorm.'
        : 'B subtracts the mean, as LayerNorm; A does not, as RMSNorm.',
      gained(normOf(a, input.data, size, !own.centred, eps).bare),
    ),
    cause(
      'epsilon',
      `The epsilon of the norm is ${number(epsB, 2)} in B, ${eps} in A.`,
      gained(normed(input.data, epsB)),
    ),
    cause('norm doubled', 'B is A normed once more: the norm ran twice.', gained(normed(a.data))),
    ...sums.map(([id, says, data]) => cause(id, says, gained(normed(data)))),
    cause(
      'rotated before norm',
      'B rotates before the norm of heads, A behind it.',
      rotated && gained(normed(rotated)),
    ),
  ];
  return causes.some((one) => one) ? causes : [branch && cause('branch factor', branch.says, branch.data)];
}

/** Attention that is added to the stream with a factor, or with another one: the norm of the sum shows it. */
async function branchOf({ a, b, load, proof }: Scene, stream: Rows | undefined, eps: number) {
  const branch = (await load('attn_post')).a ?? (await load('attn')).a;
  if (stream?.data.length !== a.data.length || branch?.data.length !== a.data.length) return undefined;
  const sum = (factor: number, like = a): Float32Array =>
    made(like, (at) => stream.data[at]! + factor * branch.data[at]!);
  const [fewA, fewB] = [firstRows(a), firstRows(b)];
  const few = (x: number): ReturnType<typeof normOf> => normOf(fewA, sum(x, fewA), a.width, false, eps);
  const factor = bestOf((x) => few(x).left, 0.01, 100);
  const [norm, own] = [normOf(a, sum(factor), a.width, false, eps), few(factor)];
  if (norm.left > proof) return undefined;
  const inB = bestOf((x) => compare(fewB, { ...fewB, data: own.gained(own.normed(sum(x, fewA))) }).worst, 0.01, 100);
  const says = `Beside the stream, the output of attention is ${number(inB / factor)} times as large in B as in A.`;
  return { norm, input: sum(factor), says, data: norm.gained(norm.normed(sum(inB))) };
}

const ACTIVATIONS: Readonly<Record<string, (gate: Float32Array) => Float32Array>> = {
  silu: (gate) => gate.map((x) => x / (1 + Math.exp(-x))),
  'gelu by tanh': (gate) => geluOf(gate, 'tanh'),
  gelu: (gate) => geluOf(gate, 'none'),
  'gelu as x · sigmoid(1.702 x)': (gate) => gate.map((x) => x / (1 + Math.exp(-1.702 * x))),
  relu: (gate) => gate.map((x) => Math.max(0, x)),
};

function geluOf(gate: Float32Array, approximate: 'none' | 'tanh'): Float32Array {
  const out = zeros('f32', [1, gate.length]);
  runReference(planGelu(tensorFrom(gate, { shape: [1, gate.length] }), out, { approximate }));
  return out.read() as Float32Array;
}

/** Another activation: `act` is f(gate) · up. */
async function activationCauses(scene: Scene, cause: Try): Promise<(Cause | undefined)[]> {
  if (scene.kind !== 'act') return [];
  const [gate, up] = [await scene.load('gate'), await scene.load('up')];
  const { a } = scene;
  if (gate.a?.data.length !== a.data.length || up.a?.data.length !== a.data.length) return [];
  const all = Object.entries(ACTIVATIONS).map(([name, f]) => {
    const activated = f(gate.a!.data);
    const data = made(a, (at) => activated[at]! * up.a!.data[at]!);
    return { name, data, left: compare(a, { ...a, data }).worst };
  });
  const own = all.find(({ left }) => left <= scene.proof);
  return all.map(({ name, data }) =>
    cause('activation', `The activation is ${name} in B, ${own?.name} in A.`, own && data),
  );
}

/** The tensor that goes into a norm behind a block, or of heads. */
const NORMED: Readonly<Partial<Record<Kind, Kind>>> = { q_norm: 'q', k_norm: 'k', attn_post: 'attn', mlp_post: 'mlp' };

/** A number is sought in so many rows, with about 50 tries. */
const firstRows = (rows: Rows): Rows => {
  const tokens = Math.min(64, rows.tokens);
  return { ...rows, tokens, data: rows.data.subarray(0, tokens * rows.width) };
};

const EPSILONS = [1e-6, 1e-5, 0, 1e-8] as const;

/** A norm over so many dimensions whose weight is fitted to rows, and what it makes of its input. */
function normOf(a: Rows, input: Float32Array, size: number, centred: boolean, eps: number) {
  const normed = (rows: Float32Array, more = eps): Float32Array => {
    const parts = rows.length / size;
    const [means, roots] = [new Float64Array(parts), new Float64Array(parts)];
    for (let n = 0; n < parts; n++) {
      const part = rows.subarray(n * size, (n + 1) * size);
      if (centred) means[n] = part.reduce((sum, x) => sum + x, 0) / size;
      roots[n] = Math.sqrt(part.reduce((sum, x) => sum + (x - means[n]!) ** 2, 0) / size + more) || 1;
    }
    return made(a, (at) => (rows[at]! - means[Math.floor(at / size)]!) / roots[Math.floor(at / size)]!);
  };
  const bare = normed(input);
  const gains = factorOf(bare, a.data, (at) => at % size, size);
  const gained = (rows: Float32Array): Float32Array => made(a, (at) => rows[at]! * gains[at % size]!);
  return { size, centred, eps, normed, bare, gained, left: compare(a, { ...a, data: gained(bare) }).worst };
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
  const normed = (await scene.load(block === 'attn' ? 'attn_norm' : 'mlp_norm', layer)).a;
  const summed = (x: number, y: number, rows = stream): Float32Array =>
    made(scene.a, (at) => x * rows.data[at]! + y * branch.data[at]!);
  // Granite multiplies what a block adds.
  const sum = (await scene.load(block === 'attn' ? 'mid' : 'out', layer)).a;
  const added = sum?.data.length === branch.data.length && sum.data.map((x, n) => x - stream.data[n]!);
  const [own = 1] = added ? factorOf(branch.data, added, () => 0, 1) : [];
  const isOwn = sum && Math.abs(own - 1) > 1e-3 && compare(sum, { ...sum, data: summed(1, own) }).worst <= scene.proof;
  const r = isOwn ? own : 1;
  const times = `Beside the stream, the output of ${name} is ${number(1 / r)} times as large in B as in A.`;
  const sums: readonly (readonly [id: string, says: string, ofStream: number, ofBranch: number])[] = [
    r === 1
      ? ['residual added', 'B holds the residual stream plus the output of the block here.', 1, 1]
      : ['branch factor', times, 1, 1],
    ['residual missing', `The residual stream is not added: B has only the output of ${name}.`, 0, r],
    ['branch missing', `B has the residual stream alone: the output of ${name} is missing.`, 1, 0],
    ['residual doubled', 'The residual stream is added twice.', 2, r],
    ['branch doubled', `The output of ${name} is added twice.`, 1, 2 * r],
    ['branch negated', `The output of ${name} is subtracted.`, 1, -r],
  ];
  const all = sums.map(([id, says, x, y]): [string, string, Float32Array] => [id, says, summed(x, y)]);
  if (normed?.data.length === branch.data.length) {
    const says = `B adds the output of ${name} to the normed stream: the residual is taken behind the norm.`;
    all.push(['residual normed', says, summed(1, 1, normed)]);
  }
  return all;
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
