/** Holds a log of positions, as a server could write it, against what must be so. @module */
import { fail, refuse } from 'ropewalk/backend';
import { Fields } from 'ropewalk/internal';

/** One fault. */
export interface PositionFault {
  readonly request: string;
  readonly step: number;
  /** The line of the log, from 1. */
  readonly line: number;
  /** A full sentence. */
  readonly says: string;
}

/** One line of a log. */
interface Entry {
  readonly line: number;
  readonly request: string;
  readonly step: number;
  readonly rank: number | undefined;
  /** `[axes][tokens]`. */
  readonly positions: readonly (readonly number[])[];
  /** The cached prefix at the request's first step. */
  readonly cached: number;
  /** Tokens of this step that are drafts, and how many were taken. */
  readonly drafts: number;
  readonly accepted: number;
  /** Tokens that were removed from the front before this step; with `shifted`, positions move back by as many. */
  readonly evicted: number;
  readonly shifted: boolean;
  /** Tokens at the front that are padding. */
  readonly padding: number;
}

const KNOWN = 'request step rank tokens positions cached drafts accepted evicted shifted padding'.split(' ');
const MOST_FAULTS = 1000;

/**
 * Checks a log of positions.
 *
 * Each line is a JSON object: `request` and `step` name a call; `positions` are `[tokens]`, or `[axes][tokens]` with
 * M-RoPE. Optional: `tokens` (how many there are), `rank`, `cached` (tokens of a prefix that were in the cache before the
 * first step), `drafts` and `accepted` (how many tokens at the end of `positions` are drafts, and how many of them were
 * taken), `evicted` (tokens that left the cache before this step), `shifted` (the keys were moved to the front), `padding`
 * (tokens at the front that are none).
 *
 * @param text - JSON lines; empty lines do not count
 * @returns the faults, in the order of the log: at most 1000
 * @throws {RopewalkError} FORMAT for a line that is no entry
 */
export function checkPositionLog(text: string): PositionFault[] {
  if (typeof text !== 'string') refuse('RANGE', 'positions: log', 'a text of JSON lines', text);
  const steps = new Map<string, Entry[]>();
  text.split('\n').forEach((line, n) => {
    if (line.trim() === '') return;
    const entry = readEntry(line, n + 1);
    const key = JSON.stringify([entry.request, entry.step]);
    if (!steps.has(key)) steps.set(key, []);
    steps.get(key)!.push(entry);
  });
  const next = new Map<string, number>();
  const faults: PositionFault[] = [];
  for (const entries of steps.values()) {
    const one = entries.length === 1 ? entries[0]! : joined(entries, faults);
    const wanted = next.get(one.request) ?? one.cached;
    const from = wanted - (one.shifted ? one.evicted : 0);
    const words = faultOf(one, from);
    if (words) faults.push({ request: one.request, step: one.step, line: one.line, says: words });
    if (faults.length >= MOST_FAULTS) break;
    next.set(one.request, nextOf(one, from));
  }
  return faults;
}

function readEntry(line: string, number: number): Entry {
  const where = `log, line ${number}`;
  let json: unknown;
  try {
    json = JSON.parse(line);
  } catch {
    refuse('FORMAT', where, 'a JSON object', line.slice(0, 40));
  }
  const fields = new Fields(json, where);
  for (const key of fields.keys())
    if (!KNOWN.includes(key))
      fail('FORMAT', fields.path(key), `a field that is not known. The fields are ${KNOWN.join(', ')}.`);
  const count = (key: string): number => fields.optionalInteger(key, 0) ?? 0;
  const request = fields.raw('request');
  if (typeof request !== 'string' && typeof request !== 'number')
    refuse('FORMAT', fields.path('request'), 'a text or a number', request);
  const list = fields.need(fields.optionalList('positions'), 'positions', 'a list');
  const axes = (Array.isArray(list[0]) ? list : [list]) as unknown[][];
  const positions = axes.map((axis) => {
    if (!Array.isArray(axis) || axis.length !== axes[0]!.length || !axis.every(Number.isSafeInteger))
      refuse('FORMAT', fields.path('positions'), 'integers, or as many on each axis', axis);
    return axis as number[];
  });
  const tokens = fields.optionalInteger('tokens', 0) ?? positions[0]!.length;
  if (tokens !== positions[0]!.length)
    refuse('FORMAT', fields.path('tokens'), `${positions[0]!.length}, the number of positions`, tokens);
  const padding = fields.optionalInteger('padding', 0, tokens) ?? 0;
  const drafts = fields.optionalInteger('drafts', 0, tokens - padding) ?? 0;
  const accepted = fields.optionalInteger('accepted', 0, drafts) ?? drafts;
  return {
    line: number,
    request: String(request),
    step: fields.integer('step', 0),
    rank: fields.optionalInteger('rank', 0),
    positions,
    cached: count('cached'),
    drafts,
    accepted,
    evicted: count('evicted'),
    shifted: fields.optionalFlag('shifted') ?? false,
    padding,
  };
}

/** The step of all ranks: their tokens in the order of their positions. */
function joined(entries: readonly Entry[], faults: PositionFault[]): Entry {
  const [first] = entries;
  const add = (says: string): void =>
    void faults.push({ request: first!.request, step: first!.step, line: first!.line, says });
  if (entries.some(({ rank }) => rank === undefined)) {
    add(`It has ${entries.length} lines for one step, and not each of them names its rank.`);
    return first!;
  }
  if (entries.some(({ positions }) => positions.length > 1))
    fail('UNSUPPORTED', `log, line ${first!.line}`, 'several axes beside ranks are not checked. Log whole steps.');
  const owner = new Map<number, number>();
  for (const { rank, positions, padding } of entries)
    for (const position of positions[0]!.slice(padding)) {
      const other = owner.get(position);
      if (other !== undefined) {
        add(`Position ${position} is on rank ${other} and on rank ${rank}.`);
        break;
      }
      owner.set(position, rank!);
    }
  const all = [...owner.keys()].sort((a, b) => a - b);
  const sum = (of: 'drafts' | 'accepted'): number => entries.reduce((total, entry) => total + entry[of], 0);
  return { ...first!, positions: [all], padding: 0, drafts: sum('drafts'), accepted: sum('accepted') };
}

function faultOf({ positions, padding, cached }: Entry, from: number): string | undefined {
  const [own] = positions as [readonly number[]];
  const tokens = own.slice(padding);
  if (tokens.length === 0) return undefined;
  const [first] = tokens as [number];
  if (first !== from) {
    if (tokens.length > 1 && tokens.every((one) => one === first))
      return `All ${tokens.length} tokens have the position ${first}; ${from} is next.`;
    if (first === 0) return `Positions start again at 0; ${from} is next.`;
    const by = Math.abs(first - from);
    return `It starts at ${first}; ${from} is next: ${first > from ? `${many(by)} left out` : `${many(by)} used twice`}.`;
  }
  if (positions.length > 1) return imageFault(positions, padding);
  const at = tokens.findIndex((position, n) => n > 0 && position !== tokens[n - 1]! + 1);
  if (at < 0) return undefined;
  const [got, before] = [tokens[at]!, tokens[at - 1]!];
  if (tokens.every((one) => one === first)) return `All ${tokens.length} tokens have the position ${first}.`;
  if (got === 0 || got === cached) return `Positions start again at ${got} at token ${at}, after ${before}.`;
  return `After position ${before} comes ${got} at token ${at}: ${got > before ? `${many(got - before - 1)} left out` : 'positions are used twice'}.`;
}

/** M-RoPE: text counts alike on all axes; an image counts its patches from where the text has come to. */
function imageFault(positions: readonly (readonly number[])[], padding: number): string | undefined {
  const at = (n: number): number[] => positions.map((axis) => axis[n]!);
  let start = Math.max(...at(padding));
  let highest = start - 1;
  for (let n = padding; n < positions[0]!.length; n++) {
    const here = at(n);
    const isText = here.every((one) => one === here[0]);
    if (isText && here[0] === highest + 1) start = here[0]!;
    else if (here.some((one) => one < start) || here.some((one) => one > highest + 1 && one > start + n))
      return `Token ${n} has the positions ${here.join(', ')} on the axes; ${highest + 1} is next.`;
    highest = Math.max(highest, ...here);
  }
  return undefined;
}

/** The position after a step: drafts that were not taken are given back. */
function nextOf({ positions, padding, drafts, accepted }: Entry, from: number): number {
  const [own] = positions as [readonly number[]];
  if (positions.length > 1) {
    const highest = (axis: readonly number[]): number => axis.slice(padding).reduce((a, b) => Math.max(a, b), from - 1);
    return Math.max(...positions.map(highest)) + 1;
  }
  return from + own.length - padding - (drafts - accepted);
}

const many = (count: number): string => (count === 1 ? '1 position is' : `${count} positions are`);
