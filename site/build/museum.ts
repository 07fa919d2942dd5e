/** Runs every known bug when the site is built, and makes its page and its picture. @module */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CAUSES, MUTANTS, type Mutant, type Observation, type ReadHeads, readHeads } from '@ropewalk/diagnose';
import {
  axesOf,
  callOf,
  changed,
  mutantRunner,
  type RopeSteps,
  readObservation,
  rightOf,
  widened,
} from '@ropewalk/diagnose/internal';
import { goldenRopeSuite, mutantExample, mutantSteps } from '@ropewalk/oracle';
import { type FloatDtype, roundTo, tensorFrom } from 'ropewalk';
import type { Plugin } from 'vite';
import { FIRST_BUG, MODEL_FILES, MODEL_ROPE, openWriter, PROMPT } from '../src/shared/broken-model.js';
import type { BugLines } from './bug-lines.js';
import { C_LINES } from './c-lines.js';
import { escaped, type Page } from './page-list.js';
import { type Dial, HEIGHT, pictureOf, WIDTH } from './picture.js';
import { TORCH_LINES } from './torch-lines.js';

type MutantExample = ReturnType<typeof mutantExample>;

const SOURCE = join(import.meta.dirname, '../../packages/diagnose/src');
/** The dials of a picture: at most this many tokens, and as many pairs. */
const DIALS = 6;

/** A place where a wrong kernel is beyond the tolerance. */
interface Place {
  readonly batch: number;
  readonly seq: number;
  readonly head: number;
  readonly dim: number;
}

/** A known bug that ran on a model. */
interface Exhibit {
  readonly mutant: Mutant;
  readonly steps: readonly string[];
  readonly example: MutantExample;
  /** Undefined if it stays within the tolerance. */
  readonly first: Shown | undefined;
  /** The values of the steps that differ, where it first shows. */
  readonly trace: readonly (readonly [name: string, right: string, wrong: string])[];
  /** The share of y's elements that are beyond the tolerance. */
  readonly share: number;
  /** The positions of the picture's rows. */
  readonly rows: readonly string[];
  readonly picture: Uint8Array;
  /** The position of those values. */
  readonly tracedAt: string;
  /** A case of the golden vectors that fails, as a label. */
  readonly fails: string | undefined;
  /** Whether it can go wrong in the bundled model, which has a plain rotation of halves. */
  readonly breaksMarline: boolean;
}

const positionOf = ({ positions, numAxes, batch, seq }: ReadHeads, b: number, s: number): string =>
  Array.from({ length: numAxes }, (_, axis) => positions[axis * batch * seq + b * seq + s]).join(', ');

/** Finds the tokens in the order of their positions, on the first axis. */
function tokensOf({ batch, seq, positions }: ReadHeads): (readonly [b: number, s: number])[] {
  return Array.from({ length: batch * seq }, (_, n) => [Math.floor(n / seq), n % seq] as const).sort(
    ([b, s], [c, t]) => Math.abs(positions[b * seq + s]!) - Math.abs(positions[c * seq + t]!),
  );
}

/** Divides the error of each element by its tolerance. */
function excessOf({ y, right, tolerance, headDim }: ReadHeads): Float64Array {
  const allowed = tolerance!(Array.from({ length: y.length / headDim }, (_, row) => row));
  return y.map((value, n) => (value === right![n] ? 0 : Math.abs(value - right![n]!) / allowed[n]! || Infinity));
}

/** Finds the first position with an element beyond its tolerance, and the element there that is beyond it by most. */
function firstOf(read: ReadHeads, excess: Float64Array): Place | undefined {
  const { seq, heads, headDim } = read;
  for (const [batch, s] of tokensOf(read)) {
    const from = (batch * seq + s) * heads * headDim;
    const token = excess.subarray(from, from + heads * headDim);
    const worst = token.reduce((at, value, n) => (value > token[at]! ? n : at), 0);
    if (token[worst]! > 1) return { batch, seq: s, head: Math.floor(worst / headDim), dim: worst % headDim };
  }
  return undefined;
}

/** Runs a bug with the input of an example. */
function stepsOf(mutant: Mutant, { expected }: Pick<MutantExample, 'expected'>, input: Observation) {
  const heads = readObservation(input, axesOf(expected));
  const { steps } = rightOf(callOf(expected, heads));
  const change = mutant.change(steps);
  return { heads, right: steps, wrong: change && changed(steps, change) };
}

/** Where a bug shows: a position, or the last token of a call, whatever its position. */
interface Shown {
  readonly where: string;
  /** Whether all positions before were tried. */
  readonly isFirst: boolean;
}

/** Up to here every position is tried. */
const MOST_SCANNED = 4096;

/** Tries positions below the first at which a bug shows in an example. */
function narrowed(mutant: Mutant, example: MutantExample, read: ReadHeads, first: Place): Shown {
  const { observation, expected } = example;
  const { batch, seq, positions, numAxes } = read;
  const shape = (observation.positions as { shape?: readonly number[] }).shape;
  let found = positions[first.batch * seq + first.seq]!;
  if (numAxes > 1 || !shape)
    return { where: `position ${positionOf(read, first.batch, first.seq)}`, isFirst: first.batch + first.seq === 0 };
  /** The token of a call with these positions at which the bug shows; undefined where it does not. */
  const shownIn = (of: (token: number) => number): number | undefined => {
    const tried = Int32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, n) => of(n % seq));
    const input = { ...observation, positions: tensorFrom(tried, { shape }) };
    const { heads, wrong } = stepsOf(mutant, example, input);
    if (!wrong) return undefined;
    const { dtype } = observation.x;
    const y = Float64Array.from(wrong.all(widened(heads.x)), (value) => roundTo(dtype as FloatDtype, value));
    const again = { ...readHeads({ ...input, y: observation.x }, expected), y };
    return firstOf(again, excessOf(again))?.seq;
  };
  let well = Math.max(-1, ...positions.slice(0, batch * seq).filter((position) => position < found));
  let tries = 0;
  let lasts = 0;
  while (found - well > 1) {
    const [from, step] = [well, (found - well) / seq];
    const position = (token: number): number => Math.ceil(from + step * (token + 1));
    const at = shownIn(position);
    if (at === undefined) break;
    tries++;
    if (at === seq - 1) lasts++;
    const before = at === 0 ? well : position(at - 1);
    if (position(at) === found && before === well) break;
    [found, well] = [position(at), before];
  }
  if (tries > 1 && lasts === tries) return { where: 'the last token of a call', isFirst: true };
  // A bug may show at some positions and not at later ones.
  for (let from = 0; from < found && found <= MOST_SCANNED; from += seq) {
    const at = shownIn((token) => from + token);
    if (at !== undefined && from + at < found) found = from + at;
  }
  return { where: `position ${found}`, isFirst: found <= MOST_SCANNED };
}

const figure = (value: number | undefined): string =>
  value === undefined ? '–' : String(Number.isInteger(value) ? value : Number(value.toPrecision(6)));

/** Follows the pair of an element through the steps of both kernels. */
function traced(right: RopeSteps, wrong: RopeSteps, read: ReadHeads, place: Place): Exhibit['trace'] {
  const { pairs, seq, heads, headDim, y } = read;
  const at = { batch: place.batch, seq: place.seq, head: place.head };
  const j = pairs.findIndex((pair) => pair.includes(place.dim));
  const rows: [string, string, string][] = [];
  const add = (name: string, of: (steps: RopeSteps) => readonly (number | undefined)[]): void => {
    const [a, b] = [right, wrong].map((steps) => of(steps).map(figure).join(', '));
    if (a !== b) rows.push([name, a!, b!]);
  };
  if (j >= 0) {
    const angles = (steps: RopeSteps): number => steps.position(at, steps.axisOfPair(j));
    add('reads dimensions', (steps) => [steps.readIndex(j, 0), steps.readIndex(j, 1)]);
    add('writes dimensions', (steps) => [steps.writeIndex(j, 0), steps.writeIndex(j, 1)]);
    add('position', (steps) => [angles(steps)]);
    if (right.source && j < wrong.pairs) {
      add('frequency', (steps) => [steps.frequencies().invFreq[j]]);
      add('angle', (steps) => [steps.angle(angles(steps), j)]);
      add('magnitude', (steps) => [steps.magnitude(j, at)]);
    }
    if (j < wrong.pairs) add('cos, sin', (steps) => steps.cosSin(angles(steps), j));
  }
  const row = ((at.batch * seq + at.seq) * heads + at.head) * headDim;
  const dims = j < 0 ? [place.dim] : pairs[j]!;
  const values = (of: Float64Array): string => dims.map((i) => figure(of[row + i])).join(', ');
  const name = `y[${dims.join('], y[')}]`;
  return [...rows, [name, values(read.right!), values(y)]];
}

/** The queries that the bundled model rotates: of a prompt, and of a token after it. */
const MARLINE: readonly Observation[] = [8, 1].map((tokens) => {
  const x = tensorFrom(new Float32Array(tokens * 6 * 32), { shape: [tokens, 6, 32] });
  const positions = tensorFrom(Int32Array.from({ length: tokens }, (_, n) => (tokens === 1 ? 8 : n)));
  return { x, y: x, positions };
});

/** Picks at most `count` of n indexes, evenly, with `must` among them. */
function picked(n: number, count: number, must: number): number[] {
  const size = Math.min(n, count);
  const all = Array.from({ length: size }, (_, k) => (size === 1 ? 0 : Math.round((k * (n - 1)) / (size - 1))));
  const nearest = all.reduce((best, one, k) => (Math.abs(one - must) < Math.abs(all[best]! - must) ? k : best), 0);
  all[nearest] = must;
  return all;
}

/** Finds the head that is off in most elements, and puts some of its pairs on dials. */
function drawn(read: ReadHeads, excess: Float64Array): Pick<Exhibit, 'rows' | 'picture' | 'share'> {
  const { batch, seq, heads, headDim, y, right, pairs } = read;
  const rest = Array.from({ length: headDim }, (_, i) => i).filter((i) => !pairs.some((pair) => pair.includes(i)));
  const couples = [...pairs];
  for (let k = 0; k + 1 < rest.length; k += 2) couples.push([rest[k]!, rest[k + 1]!]);
  const at = (b: number, s: number, head: number): number => ((b * seq + s) * heads + head) * headDim;
  const sumOf = (b: number, head: number, s: number): number =>
    excess.subarray(at(b, s, head), at(b, s, head) + headDim).reduce((sum, one) => sum + Math.min(one, 1e9), 0);
  const rows = Array.from({ length: batch * heads }, (_, n) => {
    const [b, head] = [Math.floor(n / heads), n % heads];
    const tokens = tokensOf(read).flatMap(([c, s]) => (c === b ? [s] : []));
    const sums = tokens.map((s) => sumOf(b, head, s));
    return { b, head, tokens, sums, sum: sums.reduce((x, one) => x + one, 0) };
  });
  const { b, head, tokens, sums } = rows.reduce((best, one) => (one.sum > best.sum ? one : best));
  const worst = sums.indexOf(Math.max(...sums));
  const beyond = (from: number, couple: readonly number[]): number => Math.max(...couple.map((i) => excess[from + i]!));
  const most = couples.map((couple) => beyond(at(b, tokens[worst]!, head), couple));
  const shown = picked(tokens.length, DIALS, worst).map((n) => tokens[n]!);
  const columns = picked(couples.length, DIALS, most.indexOf(Math.max(...most))).map((k) => couples[k]!);
  const dials = shown.map((s) => {
    const from = at(b, s, head);
    return columns.map((couple): Dial => {
      const two = (of: Float64Array) => couple.map((i) => of[from + i]!) as [number, number];
      return { right: two(right!), wrong: two(y), off: beyond(from, couple) > 1 };
    });
  });
  const share = excess.filter((one) => one > 1).length / excess.length;
  return { rows: shown.map((s) => positionOf(read, b, s)), picture: pictureOf(dials), share };
}

async function exhibitOf(mutant: Mutant): Promise<Exhibit> {
  const example = mutantExample(mutant);
  const { observation, expected, from } = example;
  const read = readHeads(observation, expected);
  const excess = excessOf(read);
  const first = firstOf(read, excess);
  const { right, wrong } = stepsOf(mutant, example, observation);
  // The case of the same model comes first, because it most likely fails.
  const cases = goldenRopeSuite().sort((a, b) => Number(b.label.includes(from)) - Number(a.label.includes(from)));
  let fails: string | undefined;
  for (const one of cases.slice(0, 12)) {
    if ((await one.run(mutantRunner(mutant))).status !== 'fail') continue;
    fails = one.label;
    break;
  }
  return {
    mutant,
    steps: mutantSteps(mutant),
    example,
    first: first && narrowed(mutant, example, read, first),
    trace: first ? traced(right, wrong!, read, first) : [],
    tracedAt: first ? positionOf(read, first.batch, first.seq) : '',
    fails,
    breaksMarline: MARLINE.some(
      (input) => stepsOf(mutant, { expected: { spec: MODEL_ROPE } }, input).wrong !== undefined,
    ),
    ...drawn(read, excess),
  };
}

let made: Promise<readonly Exhibit[]> | undefined;

/** Runs every known bug, once. */
function exhibits(): Promise<readonly Exhibit[]> {
  made ??= (async () => {
    const all: Exhibit[] = [];
    for (const mutant of MUTANTS) all.push(await exhibitOf(mutant));
    return all;
  })();
  return made;
}

/** Reads how the catalogue writes each bug, and the right steps, from the source. */
function sources() {
  const files = readdirSync(join(SOURCE, 'mutants')).map((name) => ({
    name: `packages/diagnose/src/mutants/${name}`,
    text: readFileSync(join(SOURCE, 'mutants', name), 'utf8'),
  }));
  const steps = readFileSync(join(SOURCE, 'kernel/steps.ts'), 'utf8');
  const found = (text: string, from: RegExp): string | undefined => {
    const start = from.exec(text)?.index;
    if (start === undefined) return undefined;
    const lines = text.slice(start).split('\n');
    const depth = lines[0]!.search(/\S/);
    const end = lines.findIndex((line, n) => n > 0 && line.search(/\S/) <= depth && line.trim() !== '');
    const block = lines[end]!.trim().startsWith('}') ? lines.slice(0, end + 1) : lines.slice(0, end);
    return block.map((line) => line.slice(depth)).join('\n');
  };
  return {
    wrong(id: string): { readonly file: string; readonly code: string } | undefined {
      for (const { name, text } of files) {
        const entry = found(text, new RegExp(`^  '?${id}'?: \\{`, 'm'));
        const code = entry && found(entry, /^ {2}change\b/m);
        if (code) return { file: name, code: code.trim().replace(/,$/, '') };
      }
      return undefined;
    },
    right: (names: readonly string[]): string =>
      names.flatMap((name) => found(steps, new RegExp(`^  ${name}\\(`, 'm')) ?? []).join('\n\n'),
  };
}

/** The names of the steps of a rotation. */
const STEPS: Readonly<Record<string, readonly string[]>> = {
  'pairs and window': ['readIndex', 'writeIndex', 'pairs', 'rotaryDim', 'rotaryOffset'],
  frequencies: ['frequencies'],
  'angles, cos and sin': ['angle', 'cosSin'],
  magnitude: ['magnitude'],
  positions: ['position', 'axisOfPair'],
  'the turn of a pair': ['turn', 'sign'],
  'other dimensions': ['beside'],
  norm: ['normalize'],
  'whole heads': ['rotate', 'head', 'all'],
};

const threadLink = (thread: string): string => {
  const [repository = '', number] = thread.split('#');
  return `<a href="https://github.com/${repository}/issues/${number}" rel="noreferrer">${repository.replace('/', '/<wbr>')}#${number}</a>`;
};
const percent = (share: number): string => (share < 0.01 ? 'less than 1' : String(Math.round(100 * share)));
const shareOf = ({ share }: Exhibit): string =>
  share === 0 ? 'within the rounding of f32 angles' : `${percent(share)} % of y is off`;

function image({ mutant, rows }: Exhibit, up: string, loading: 'lazy' | 'eager'): string {
  const alt = `Dials of the right kernel and of ${mutant.id}, for positions ${rows.join('; ')}`;
  return `<img src="${up}data/museum/${mutant.id}.png" alt="${alt}" width="${WIDTH}" height="${HEIGHT}" loading="${loading}">`;
}

function pageOf(exhibit: Exhibit, code: ReturnType<typeof sources>): Page {
  const { mutant, example, first, trace, tracedAt, rows, fails, steps, breaksMarline } = exhibit;
  const { id, does, cause, threads, needs } = mutant;
  const wrong = code.wrong(id);
  const right = code.right(steps);
  const shows =
    first === undefined
      ? `On this model it stays within what a kernel with angles in f32 may be off.`
      : `It ${first.isFirst ? 'first ' : ''}shows at <strong>${first.where}</strong>, and ${shareOf(exhibit)}.`;
  const values = trace.map(([name, a, b]) => `<tr><th scope="row">${name}</th><td>${a}</td><td>${b}</td></tr>`);
  const block = (title: string, text: string): string =>
    `<div><h3>${title}</h3><pre tabindex="0"><code>${escaped(text)}</code></pre></div>`;
  const both = (words: string, lines: BugLines): string =>
    `<p>${words}</p><div class="bug-lines stacked">${block('Right', lines.right)}${block('With the bug', lines.wrong)}</div>`;
  const parts = [
    `<p class="muted"><a href="../">Museum</a> · ${cause}: ${escaped(CAUSES[cause])}</p>`,
    `<h1 class="mono">${id}</h1><p class="lead">${escaped(does)}</p>`,
    `<figure class="bug-picture">${image(exhibit, '../../', 'eager')}`,
    `<figcaption>On the left is the right kernel, on the right this one. A row is a token, at position ${rows.join('; ')}; a column is a pair of one head. Orange is beyond the tolerance, with the right arrow behind it in grey.</figcaption></figure>`,
    `<div class="actions"><a class="button primary" href="../../diagnose/?bug=${id}">Diagnose it</a>`,
    breaksMarline ? `<a class="button" href="../../?bug=${id}">Break a model with it</a>` : '',
    `</div><h2>Where it shows</h2><p>The model is <code>${example.from}</code>: ${escaped(example.about)} ${shows}`,
    needs === undefined ? '' : ` It needs ${escaped(needs)}.`,
    '</p>',
    trace.length === 0
      ? ''
      : `<div class="scroll" tabindex="0"><table><caption>One pair at position ${tracedAt}, step by step where the two differ</caption><thead><tr><th scope="col">step</th><th scope="col">right</th><th scope="col">with the bug</th></tr></thead><tbody>${values.join('')}</tbody></table></div>`,
    '<h2>The wrong line</h2>',
    '<p>A test runs a kernel with both on this model: the right one gives the reference’s numbers, the other one this bug’s.</p>',
    both('<strong>In torch.</strong>', TORCH_LINES.get(id)!),
    both(
      '<strong>In C</strong>, as in a CUDA kernel or in ggml’s loop: <code>j</code> is a pair of head <code>h</code>, of token <code>t</code> of sequence <code>b</code>.',
      C_LINES.get(id)!,
    ),
    wrong === undefined
      ? ''
      : `<p><strong>In TypeScript</strong>, as the catalogue has it: <code>${wrong.file}</code>.</p><div class="bug-lines">${right && block('Right', right)}${block('With the bug', wrong.code)}</div>`,
    `<h2>Who reported it</h2><p>These threads report this bug, or the most similar one.</p><ul>${threads.map((one) => `<li>${threadLink(one)}</li>`).join('')}</ul>`,
    fails === undefined
      ? ''
      : `<h2>A vector that fails on it</h2><p><code>ropewalk check --case</code> runs it again, and <code>ropewalk vectors</code> writes its files.</p><pre tabindex="0"><code>${escaped(fails)}</code></pre>`,
  ];
  return {
    path: `museum/${id}`,
    title: id,
    description: does,
    entry: 'src/museum/bug.ts',
    image: `data/museum/${id}.png`,
    content: `<article class="bug">${parts.join('')}</article>`,
  };
}

function card(exhibit: Exhibit): string {
  const { mutant, example, steps, first } = exhibit;
  const { id, does, threads, needs } = mutant;
  const words = `${id} ${does} ${needs ?? ''} ${threads.join(' ')}`.toLowerCase();
  const groups = Object.keys(STEPS).filter((name) => STEPS[name]!.some((step) => steps.includes(step)));
  return `<li class="card museum-card" id="${id}" data-find="${escaped(words)}" data-steps="${groups.join('|')}">
<figure class="museum-frame">${image(exhibit, '../', 'lazy')}<figcaption>${example.from}: ${shareOf(exhibit)}${first === undefined ? '' : `, ${first.isFirst ? 'first ' : ''}at ${first.where}`}</figcaption></figure>
<h3 class="mono"><a href="${id}/">${id}</a></h3><p>${escaped(does)}</p>
<p class="muted">${needs === undefined ? '' : `Needs ${escaped(needs)}. `}${threads.map(threadLink).join(', ')}</p>
<p class="museum-go"><a class="button" href="../diagnose/?bug=${id}">Diagnose<span class="visually-hidden"> ${id}</span></a></p></li>`;
}

function choice(name: string, label: string, options: readonly (readonly [value: string, words: string])[]): string {
  const of = [['', 'all'], ...options].map(([value, words]) => `<option value="${value}">${escaped(words!)}</option>`);
  return `<div class="field"><label for="museum-${name}">${label}</label><select id="museum-${name}" name="${name}">${of.join('')}</select></div>`;
}

/** Makes the content of the museum's list, which a script filters. */
function listOf(all: readonly Exhibit[]): string {
  const counts = new Map<string, number>();
  for (const { mutant } of all)
    for (const name of new Set(mutant.threads.map((thread) => thread.split('#')[0]!)))
      counts.set(name, (counts.get(name) ?? 0) + 1);
  const peers = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  const causes = [...new Set(all.map(({ mutant }) => mutant.cause))];
  const rooms = causes.map((cause, n) => {
    const list = all.filter(({ mutant }) => mutant.cause === cause);
    return `<details class="museum-kind" data-cause="${cause}"${n === 0 ? ' open' : ''}><summary><h2>${cause}: ${escaped(CAUSES[cause])} <span class="tag">${list.length}</span></h2></summary><ul class="museum-room">${list.map(card).join('')}</ul></details>`;
  });
  return `<h1>The museum of wrong kernels</h1>
<p class="lead">${all.length} ways in which RoPE kernels were wrong, each reported in public. Each ran beside the right kernel when this site was built, on a model that shows it if one does.</p>
<p>A picture has pairs of one head as dials: of the right kernel on the left, of the wrong one on the right. A row is a token, from low positions to high ones; a column is a pair. Orange is beyond the tolerance, with the right arrow behind it.</p>
<form class="fields" id="museum-filter" hidden>
<label class="field"><span>Search</span><input type="search" name="q" placeholder="such as bf16, decode or llama.cpp"></label>
${choice(
  'cause',
  'Kind',
  causes.map((cause) => [cause, `${cause}: ${CAUSES[cause]}`]),
)}
${choice(
  'step',
  'Step that it gets wrong',
  Object.keys(STEPS).map((name) => [name, name]),
)}
${choice(
  'peer',
  'Project that reported it',
  peers.map(([name, count]) => [name, `${name} (${count})`]),
)}
</form><p role="status" class="muted" id="museum-count"></p>${rooms.join('')}`;
}

/** Makes the page of each known bug, and the content of the museum's list. */
export async function museumPages(): Promise<{ readonly list: string; readonly pages: readonly Page[] }> {
  const all = await exhibits();
  const code = sources();
  return { list: listOf(all), pages: all.map((exhibit) => pageOf(exhibit, code)) };
}

const BROKEN = 'virtual:broken';

/** Lists the bugs that can go wrong in the bundled model, and lets it write with the first of them and without. */
async function brokenModule(): Promise<string> {
  const folder = join(import.meta.dirname, '../../models/marline');
  const files = new Map(MODEL_FILES.map((name) => [name as string, new Uint8Array(readFileSync(join(folder, name)))]));
  const writer = await openWriter(files);
  const write = async (bug?: string): Promise<string> => {
    let all = '';
    for await (const text of writer.write(bug)) all += text;
    return all;
  };
  const bugs = (await exhibits()).filter(({ breaksMarline }) => breaksMarline);
  const found = {
    BUGS: bugs.map(({ mutant }) => [mutant.id, mutant.does]),
    PROMPT,
    FIRST_BUG,
    RIGHT: await write(),
    WRONG: await write(FIRST_BUG),
  };
  writer.dispose();
  return Object.entries(found)
    .map(([name, value]) => `export const ${name} = ${JSON.stringify(value)};`)
    .join('\n');
}

/** Serves and builds the pictures, and provides `virtual:broken`. */
export function museumPictures(): Plugin {
  return {
    name: 'ropewalk:museum',
    resolveId: (id) => (id === BROKEN ? `\0${BROKEN}` : undefined),
    load: (id) => (id === `\0${BROKEN}` ? brokenModule() : undefined),
    configureServer: (server) => {
      server.middlewares.use('/data/museum', async (request, response, next) => {
        const one = (await exhibits()).find(({ mutant }) => request.url?.startsWith(`/${mutant.id}.png`));
        if (one === undefined) return next();
        response.setHeader('Content-Type', 'image/png');
        response.end(one.picture);
      });
    },
    async generateBundle() {
      for (const { mutant, picture } of await exhibits())
        this.emitFile({ type: 'asset', fileName: `data/museum/${mutant.id}.png`, source: picture });
    },
  };
}
