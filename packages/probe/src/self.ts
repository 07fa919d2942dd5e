/**
 * A server against itself, without a model: the same tokens must get the same log-probabilities however they come.
 *
 * @module
 */
import { checkInteger, type OptionNames, randomFrom } from 'ropewalk/internal';
import { checkAccess } from './access.js';
import { type Access, Client } from './http.js';
import { type Api, findServer, type Row } from './server.js';

/** Options of {@link probeSelf}. */
export interface SelfOptions extends Access {
  /** The tokens of the longest prompt. Default: 257, or as many as fit. */
  readonly tokens?: number | undefined;
  /** Called with what is done, in words, and its share in [0, 1]. */
  readonly onProgress?: ((what: string, share: number) => void) | undefined;
}

/** The ways in which the same tokens are sent. */
export type Way = 'again' | 'whole' | 'cached' | 'behind' | 'together' | 'streamed' | 'padded';

/** The differences of one way to a prompt by itself. */
export interface WayReport {
  readonly way: Way;
  /** The root mean square difference in nats after so many tokens. */
  readonly differences: readonly { readonly seen: number; readonly difference: number }[];
  /** The least number of tokens after which the difference is more than the server's own noise. */
  readonly from: number | undefined;
}

/** The findings of {@link probeSelf}. */
export interface SelfReport {
  readonly server: { readonly api: Api; readonly about: string };
  readonly verdict: 'agrees' | 'differs';
  /** The largest difference between two equal requests, in nats. */
  readonly noise: number;
  readonly ways: readonly WayReport[];
  /** The lengths of the prompts. */
  readonly lengths: readonly number[];
  /** Prompt tokens that were sent in all. */
  readonly sent: number;
}

const NAMES: OptionNames<Omit<SelfOptions, keyof Access>> = { tokens: true, onProgress: true };

const USUAL_TOKENS = 257;
/** The lengths around which chunks and blocks of caches begin. */
const EDGES = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];
/** The lengths that are tried at most: the longest ones, where most goes wrong. */
const MOST_LENGTHS = 16;
/** The other requests that come together with those that are compared. */
const CROWD = 6;
/**
 * The least difference that counts, in nats, and as a multiple of the noise. Kernels for one token and for many round in
 * other places; that moves log-probabilities by a few hundredths in 8 and 16 bits.
 */
const LEAST = 0.1;
const TIMES = 5;
/** Two equal requests that are further apart, in nats, are answered at random, and show nothing of the other ways. */
const MOST_NOISE = 1;

/**
 * Asks a server for the same tokens in several ways: again, inside a longer prompt, behind a cached prefix, behind
 * another request, together with others, in a stream, and in one request with shorter and longer prompts.
 *
 * @param url - the server's address: `http://HOST:PORT`
 * @returns which ways differ, from which token on, and by how much
 * @throws {RopewalkError} as {@link probe}
 * @example const { verdict, ways } = await probeSelf('http://localhost:8080');
 */
export async function probeSelf(url: string, options: SelfOptions = {}): Promise<SelfReport> {
  const { tokens: asked, onProgress = () => {}, ...access } = checkAccess('probeSelf', options, NAMES);
  const client = new Client(url, access);
  const server = await findServer(client, undefined);
  const most = (server.context ?? Number.POSITIVE_INFINITY) - 1;
  const least = 20;
  const count = checkInteger(
    asked ?? Math.min(USUAL_TOKENS, most),
    'probeSelf: tokens',
    least,
    most,
    `the context is ${most}`,
  );
  const tokens = tokensOf('probe', count);
  const near = EDGES.flatMap((edge) => [edge - 1, edge, edge + 1]).filter((length) => length < count);
  const lengths = [...new Set([...near, count - 1, count])].slice(-MOST_LENGTHS);
  const steps = 6 * lengths.length + 2;
  let done = 0;
  const step = <T>(answer: T): T => {
    onProgress('of the answers', ++done / steps);
    return answer;
  };
  const last = async (prompt: readonly number[], cached?: boolean): Promise<Row> => {
    const rows = await server.rows(prompt, cached === false && !server.oneByOne ? 'all' : 'last', cached);
    return step(rows.at(-1)!);
  };
  const prompts = lengths.map((length) => tokens.slice(0, length));
  /** Sends prompts one after the other. */
  const inTurn = async (ask: (prompt: readonly number[]) => Promise<Row>): Promise<Row[]> => {
    const rows: Row[] = [];
    for (const prompt of prompts) rows.push(await ask(prompt));
    return rows;
  };
  const alone = await inTurn((prompt) => last(prompt, false));
  const again = await inTurn((prompt) => last(prompt, false));
  const found: [Way, readonly Row[]][] = [['again', again]];
  if (!server.oneByOne) found.push(['whole', step(await server.rows(tokens, 'all'))]);
  const other = tokensOf('another', count);
  await server.rows(other, 'last', true);
  found.push(['cached', await inTurn((prompt) => last(prompt, true))]);
  const behind: Row[] = [];
  for (const [n, prompt] of prompts.entries()) {
    await server.rows(other.slice(0, lengths.at(-1 - n)), 'last', true);
    behind.push(await last(prompt, true));
  }
  found.push(['behind', behind]);
  // Long prompts come first, so that the server still works on them when the others come.
  const crowd = Array.from({ length: CROWD }, (_, n) => server.rows(tokensOf(`crowd ${n}`, count), 'last', true));
  const [together] = await Promise.all([Promise.all(prompts.map((prompt) => last(prompt, true))), ...crowd]);
  found.push(['together', together]);
  const streamed: Row[] = [];
  for (const prompt of prompts) {
    const row = await server.streamed?.(prompt);
    if (!row) break; // It does not stream.
    streamed.push(step(row));
  }
  if (streamed.length > 0) found.push(['streamed', streamed]);
  const padded = await server.listed?.(prompts);
  if (padded) found.push(['padded', step(padded)]);
  const noise = Math.max(0, ...alone.map((row, n) => distance(row, again[n]!)));
  const ways = found.map(([way, rows]): WayReport => {
    const differences = alone.flatMap((row) => {
      const same = rows.find(({ seen }) => seen === row.seen);
      return same ? [{ seen: row.seen, difference: distance(row, same) }] : [];
    });
    const bound = way === 'again' ? MOST_NOISE : Math.max(LEAST, TIMES * noise);
    return { way, differences, from: differences.find(({ difference }) => difference > bound)?.seen };
  });
  const verdict = ways.some(({ from }) => from !== undefined) ? 'differs' : 'agrees';
  return { server: { api: server.api, about: server.about }, verdict, noise, ways, lengths, sent: client.sent };
}

/** Draws tokens that every vocabulary has. Some come again and again, so that attention has something to find. */
function tokensOf(seed: string, count: number): number[] {
  const random = randomFrom(seed);
  const few = Array.from({ length: 60 }, () => 300 + random.integer(600));
  return Array.from({ length: count }, () => few[random.integer(few.length)]!);
}

/** The root mean square difference of the candidates that two rows share. No candidate in common is far apart. */
function distance(a: Row, b: Row): number {
  const other = new Map(b.ids.map((id, n) => [id, b.logprobs[n]!]));
  const squares = a.ids.flatMap((id, n) => (other.has(id) ? [(a.logprobs[n]! - other.get(id)!) ** 2] : []));
  if (squares.length === 0) return 10;
  return Math.sqrt(squares.reduce((sum, one) => sum + one, 0) / squares.length);
}
