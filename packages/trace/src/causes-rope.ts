/** The cause of a wrong rotation: `diagnose` runs on the q or k of the layer, before and after RoPE. @module */
import { type Diagnosis, diagnose, identify } from '@ropewalk/diagnose';
import {
  bindRope,
  planRearrange,
  planRope,
  type RopeSpec,
  RopewalkError,
  type Tensor,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { runReference } from 'ropewalk/reference';
import { type Cause, leftBy, type Scene } from './cause.js';
import { heldDtype } from './compare.js';
import type { Rows } from './side.js';

/** Tokens and heads that a diagnosis looks at: it runs about 200 known bugs on each. */
const MOST_TOKENS = 96;
const MOST_HEADS = 4;
/** A bug that was found is tried on a whole tensor of at most so many values. */
const MOST_VALUES = 2 ** 22;

/** Looks for what the second side's rotation does beside the first side's, or beside the RoPE of the model's files. */
export const ropeCauses = async (scene: Scene): Promise<Cause[]> => (await unlessRefused(() => causesOf(scene))) ?? [];

/** Rotates rows as the model's files say, or as the first side does; undefined where neither is known. */
export const rotatedAsA = (scene: Scene, kind: 'q' | 'k', rows: Rows): Promise<Rows | undefined> =>
  unlessRefused(() => rotatedOf(scene, kind, rows));

/** Zeros, NaN, or heads of an odd size are no input for a diagnosis. */
async function unlessRefused<T>(run: () => Promise<T>): Promise<T | undefined> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}

async function causesOf(scene: Scene): Promise<Cause[]> {
  const plain = scene.kind === 'q_rope' ? 'q' : 'k';
  const [given, normed] = [await scene.load(plain), await scene.load(`${plain}_norm`)];
  const headDim = scene.heads?.headDim;
  if (!headDim || scene.a.width % headDim !== 0) return [];
  const tokens = tokensOf(scene);
  const positions = tokens.map((t) => scene.positions[t] ?? t);
  const heads = (rows: Rows): Tensor => held(headsOf(rows, tokens, headDim));
  const same = (rows: Rows | undefined): Rows | undefined =>
    rows?.data.length === scene.a.data.length ? rows : undefined;
  const before = { a: same(normed.a ?? given.a), b: same(normed.b ?? given.b) };
  const [yA, yB] = [heads(scene.a), heads(scene.b)];
  const ownRope = before.a && rotationOf(heads(before.a), yA, positions);
  const spec = scene.heads?.rope ?? ownRope;
  if (!spec || spec.headDim !== headDim || spec.axes) return [];
  // Where the first side does not rotate as the record says, the second one may.
  const isRight = before.a && judged(heads(before.a), yA, positions, spec);
  const input = !before.a || isRight ? before.b : undefined;
  const x = input ? heads(input) : held(unrotated(headsOf(scene.a, tokens, headDim), positions, spec));
  const [count, all] = [Math.min(MOST_HEADS, scene.a.width / headDim), scene.a.width / headDim];
  const twice = leftBy(scene, rotatedBy(spec, scene.a, scene.positions)?.data);
  if (twice !== undefined)
    return [
      { id: 'rope: rotated-twice', says: "RoPE: B is A's result rotated once more: it is rotated twice.", left: twice },
    ];
  const diagnosis = diagnose({ x, y: yB, positions, layout: 'bsnh' }, { spec });
  const isPart = count < all || tokens.length < scene.a.tokens;
  const looked =
    isPart && !isNamedInAll(diagnosis, scene, spec, input)
      ? ` Looked at: ${count} of ${all} heads, ${tokens.length} of ${scene.a.tokens} tokens.`
      : '';
  // A rotation that was measured has no base of its own to be named.
  const says = sentencesOf(diagnosis).map((words) =>
    scene.heads?.rope ? words : words.replace(/ instead of 1(?=[,;.])/, ''),
  );
  if (scene.heads?.rope && isRight === false && before.b && judged(heads(before.b), yB, positions, spec)) {
    const other = diagnose({ x: heads(before.a!), y: yA, positions, layout: 'bsnh' }, { spec });
    return sentencesOf(other).map((words) => ({
      id: idOf(other),
      says: `B rotates as the model's files say; A does not. ${words}${looked}`,
    }));
  }
  return says.map((words) => ({ id: idOf(diagnosis), says: words + looked }));
}

async function rotatedOf(scene: Scene, kind: 'q' | 'k', rows: Rows): Promise<Rows | undefined> {
  const [headDim, after] = [scene.heads?.headDim, (await scene.load(`${kind}_rope`)).a];
  const before = (await scene.load(`${kind}_norm`)).a ?? (await scene.load(kind)).a;
  if (!headDim || after?.data.length !== before?.data.length || rows.width % headDim !== 0) return undefined;
  const tokens = Array.from({ length: Math.min(MOST_TOKENS, rows.tokens) }, (_, t) => t);
  const [x, y] = [before!, after!].map((one) => headsOf(one, tokens, headDim)) as [Tensor<'f32'>, Tensor<'f32'>];
  const spec = scene.heads?.rope ?? rotationOf(x, y, scene.positions.slice(0, tokens.length));
  return spec && rotatedBy(spec, rows, scene.positions);
}

function rotatedBy(spec: RopeSpec, rows: Rows, positions: readonly number[]): Rows | undefined {
  if (rows.width % spec.headDim !== 0 || spec.axes) return undefined;
  const shape = [rows.tokens, rows.width / spec.headDim, spec.headDim];
  const y = turned(tensorFrom(rows.data, { shape }), positions, spec, 'forward');
  return { ...rows, data: y.read() as Float32Array };
}

function turned(
  given: Tensor<'f32'>,
  positions: readonly number[],
  spec: RopeSpec,
  direction: 'forward' | 'backward',
): Tensor<'f32'> {
  const y = zeros('f32', given.shape);
  runReference(bindRope(planRope({ ...spec, positions, direction, tableDtype: 'f64' }), given, y));
  return y;
}

/** Picks tokens: the first ones, those around the first wrong one, and the last ones. */
function tokensOf({ a, first }: Scene): number[] {
  if (a.tokens <= MOST_TOKENS) return Array.from({ length: a.tokens }, (_, t) => t);
  const third = MOST_TOKENS / 3;
  const chosen = new Set<number>();
  for (const from of [0, first - third / 2, a.tokens - third])
    for (let t = 0; t < third; t++) chosen.add(Math.min(a.tokens - 1, Math.max(0, Math.floor(from) + t)));
  return [...chosen].sort((x, y) => x - y);
}

function headsOf({ data, width }: Rows, tokens: readonly number[], headDim: number): Tensor<'f32'> {
  const count = Math.min(MOST_HEADS, width / headDim);
  const picked = new Float32Array(tokens.length * count * headDim);
  for (const [n, t] of tokens.entries())
    picked.set(data.subarray(t * width, t * width + count * headDim), n * count * headDim);
  return tensorFrom(picked, { shape: [tokens.length, count, headDim] });
}

/** Gives values the dtype that they all fit, which says how they were rounded. */
function held(wide: Tensor<'f32'>): Tensor {
  const [data, [tokens, count, width]] = [wide.read() as Float32Array, wide.shape as [number, number, number]];
  const dtype = heldDtype({ data, tokens, width: count * width, headDim: width }) ?? 'f32';
  if (dtype === 'f32') return wide;
  const narrow = zeros(dtype, wide.shape);
  runReference(planRearrange(wide, narrow));
  return narrow;
}

function judged(x: Tensor, y: Tensor, positions: readonly number[], spec: RopeSpec): boolean {
  const { verdict } = diagnose({ x, y, positions, layout: 'bsnh' }, { spec }, { mutants: [] });
  return verdict === 'as expected' || verdict === 'less precise';
}

/** Says whether the bug that a part showed gives all tokens and heads. */
function isNamedInAll(part: Diagnosis, { a, b, positions }: Scene, spec: RopeSpec, before: Rows | undefined): boolean {
  if (part.verdict !== 'known bug' || a.data.length > MOST_VALUES) return false;
  const shape = [a.tokens, a.width / spec.headDim, spec.headDim];
  const heads = ({ data }: Rows): Tensor<'f32'> => tensorFrom(data, { shape });
  const x = held(before ? heads(before) : unrotated(heads(a), positions, spec));
  const mutants = part.named.flatMap((one) => one.mutants);
  const whole = diagnose({ x, y: held(heads(b)), positions, layout: 'bsnh' }, { spec }, { mutants });
  return whole.verdict === 'known bug' && idOf(whole) === idOf(part) && !whole.rowSummary;
}

/** Identifies the first side's own rotation, where no record says it. */
function rotationOf(x: Tensor, y: Tensor, positions: readonly number[]): RopeSpec | undefined {
  const { explains, expected } = identify({ x, y, positions, layout: 'bsnh' });
  return explains === undefined ? undefined : expected?.spec;
}

function unrotated(y: Tensor<'f32'>, positions: readonly number[], spec: RopeSpec): Tensor<'f32'> {
  const turn = (given: Tensor<'f32'>, direction: 'forward' | 'backward'): Tensor<'f32'> =>
    turned(given, positions, spec, direction);
  // Both directions multiply by the magnitude: there and back, ones become its square where RoPE rotates.
  const ones: Tensor<'f32'> = tensorFrom(new Float32Array(y.size).fill(1), { shape: y.shape });
  const squares = turn(turn(ones, 'forward'), 'backward').read() as Float32Array;
  const back = turn(y, 'backward').read() as Float32Array;
  return tensorFrom(
    back.map((value, n) => value / squares[n]!),
    { shape: y.shape },
  );
}

const idOf = ({ verdict, named }: Diagnosis): string =>
  verdict === 'known bug' ? `rope: ${named[0]!.id}` : `rope: ${verdict}`;

/** Says what a diagnosis has found, and nothing where it has not understood y. */
function sentencesOf({ verdict, named, differences, rowSummary }: Diagnosis): string[] {
  if (verdict === 'known bug')
    return named.slice(0, 2).map(({ mutants }) => {
      const threads = mutants.flatMap((one) => one.threads).slice(0, 2);
      const does = mutants.map((one) => one.does).join(' And: ');
      return `RoPE: ${does}${threads.length > 0 ? ` (${threads.join(', ')})` : ''}`;
    });
  if (verdict === 'different') return differences.slice(0, 3).map(({ words }) => `RoPE: ${words.replace(/\.?$/, '.')}`);
  if (verdict === 'partly right' && rowSummary)
    return rowSummary.wrong
      .slice(0, 3)
      .map(({ where, holds }) =>
        `RoPE: ${where} ${/^token /.test(where) ? 'holds' : 'hold'} ${holds}`.replace(/\.?$/, '.'),
      );
  return [];
}
