/**
 * Converts one RoPE between the arguments and files of many peers, and checks each conversion by reading it back.
 *
 * @module
 */
import type { RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { didYouMean, Fields, type OptionNames, optionNames, reading, readOptions } from 'ropewalk/internal';
import { distanceOf, effectiveRope } from './effective.js';
import { flashinferPeer } from './flashinfer.js';
import type { ConvertOptions, Draft, FormTable, GivenTable, Peer, Relayout } from './form.js';
import { cannot, F64_TOLERANCE, onlyKeys, plainJson, rawOf } from './form.js';
import { cannPeer, ggmlPeer } from './ggml.js';
import { ggufPeer } from './gguf.js';
import { huggingfacePeer } from './huggingface.js';
import { mlxPeer } from './mlx.js';
import { specFromJson, specToJson } from './record.js';
import { aclnnPeer, infiniopPeer, onnxPeer, onnxruntimePeer } from './tables.js';
import { vllmPeer } from './vllm.js';

const specPeer: Peer = {
  name: 'spec',
  about: "ropewalk's own record as JSON",
  tolerance: F64_TOLERANCE,
  drafts: (spec) => [{ call: 'RopeSpec', arguments: specToJson(spec) }],
  read: (form) => specFromJson(rawOf(form), form.where),
  recognizes: (form) => form.has('headDim') && form.has('pairing'),
};

/** All peers, in the order of help texts. */
export const PEERS: readonly Peer[] = /* @__PURE__ */ Object.freeze([
  huggingfacePeer,
  ggufPeer,
  ggmlPeer,
  cannPeer,
  onnxPeer,
  onnxruntimePeer,
  infiniopPeer,
  aclnnPeer,
  vllmPeer,
  flashinferPeer,
  mlxPeer,
  specPeer,
]);

/** A record in a peer's arguments, and the result of reading them back. */
export interface Conversion {
  readonly target: string;
  /** The function, operator or file that takes the arguments. */
  readonly call: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** The tables have `positions` rows. Without `positions` there are none. */
  readonly tables: readonly FormTable[];
  readonly notes: readonly string[];
  /** The layouts may differ: q and k weights must be permuted, or it cancels in q·k. */
  readonly relayout: Relayout | undefined;
  /** The record that the peer's arguments give when read back. */
  readonly readBack: RopeSpec;
  /** The largest relative error of a frequency, and that of the magnitude, between `spec` and `readBack`. */
  readonly error: { readonly invFreq: number; readonly attentionFactor: number };
}

/**
 * Finds a peer by name.
 *
 * @param name - such as `ggml`
 * @throws {RopewalkError} FORMAT for a name that no peer has
 */
export function peerOf(name: string): Peer {
  const names = PEERS.map((peer) => peer.name);
  return (
    PEERS.find((peer) => peer.name === name) ??
    refuse('FORMAT', 'convert: --to', names.join(', '), name, didYouMean(name, names))
  );
}

/**
 * Converts a record to a peer's arguments. They are read back by the peer's own rules and must give the same RoPE.
 *
 * @param spec - the record
 * @param target - a peer's name
 * @param given - rows of tables, context, the longest context, heads, names
 * @throws {RopewalkError} UNSUPPORTED when the peer cannot express it; RANGE or SHAPE for a record that is not a RoPE
 * @example convertRope({ headDim: 128, pairing: 'half', base: 10000 }, 'ggml').arguments
 */
export function convertRope(spec: RopeSpec, target: string, given: ConvertOptions = {}): Conversion {
  const peer = peerOf(target);
  const own = effectiveRope(spec);
  const options = readConvertOptions(given);
  const context = options.context ?? (spec.scaling && 'context' in spec.scaling ? spec.scaling.context : undefined);
  const known = { ...options, context };
  // It takes two rows to read a table back, and 4096 are enough.
  const checked = { ...known, positions: options.positions && Math.min(4096, Math.max(2, options.positions)) };
  let worst: string | undefined;
  for (const [n, draft] of peer.drafts(spec, checked).map(withPlainArguments).entries()) {
    const readBack = readDraft(peer, draft, known);
    const wanted = draft.relayout ? { ...own, pairing: draft.relayout.to as typeof own.pairing } : own;
    const { differences, ...error } = distanceOf(wanted, effectiveRope(readBack));
    const [invFreq, magnitude] = [error.invFreq, error.attentionFactor].map((value) => value.toExponential(1));
    const off = `frequencies off by ${invFreq}, magnitude by ${magnitude}`;
    worst ??= differences[0] ?? off;
    const near = error.invFreq <= peer.tolerance && error.attentionFactor <= peer.tolerance;
    if (differences.length > 0 || !near || !holdsAtOtherLengths(peer, draft, spec, known)) continue;
    const { call, notes = [], relayout } = draft;
    const whole = draft.tables === undefined ? draft : withPlainArguments(peer.drafts(spec, known)[n]!);
    const tables = options.positions === undefined ? [] : (whole.tables ?? []);
    return { target, call, arguments: whole.arguments, tables, notes, relayout, readBack, error };
  }
  const because = `its arguments, read back, give another RoPE (${worst})`;
  return cannot(target, because, 'Use tables: --to onnx or --to infiniop.');
}

function withPlainArguments(draft: Draft): Draft {
  return { ...draft, arguments: plainJson(draft.arguments) as Draft['arguments'] };
}

const NAMES: OptionNames<ConvertOptions> = /* @__PURE__ */ optionNames(
  'context positions maxContext heads modelType architecture layerType',
);

function readConvertOptions(given: ConvertOptions): ConvertOptions {
  const options = readOptions(given, 'convert: options', NAMES);
  const counts = ['context', 'positions', 'maxContext', 'heads'] as const;
  for (const [name, value] of counts.map((key) => [key, options[key]] as const))
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 1))
      refuse('RANGE', `convert: --${name}`, 'an integer >= 1', value);
  const names = ['modelType', 'architecture', 'layerType'] as const;
  for (const [name, value] of names.map((key) => [key, options[key]] as const))
    if (value !== undefined && typeof value !== 'string') refuse('RANGE', `convert: ${name}`, 'a string', value);
  return options;
}

/** Checks LongRoPE's other list: each reading uses one of two. The other must be right too, or there is no other. */
function holdsAtOtherLengths(peer: Peer, draft: Draft, spec: RopeSpec, options: ConvertOptions): boolean {
  const { scaling } = spec;
  if (scaling?.kind !== 'longrope') return true;
  const { originalContext } = scaling;
  const context = scaling.context > originalContext ? originalContext : originalContext + 1;
  const there = effectiveRope(readDraft(peer, draft, { ...options, context })).invFreq;
  const fits = (wanted: RopeSpec): boolean =>
    effectiveRope(wanted).invFreq.every(
      (frequency, j) => Math.abs(frequency - there[j]!) <= peer.tolerance * Math.abs(frequency),
    );
  return fits({ ...spec, scaling: { ...scaling, context } }) || fits(spec);
}

function readDraft(peer: Peer, draft: Draft, options: ConvertOptions): RopeSpec {
  const given = draft.tables ?? [];
  const tables = new Map<string, GivenTable>(given.map((table) => [table.name, { ...table, roundoff: 2 ** -24 }]));
  return peer.read(new Fields(draft.arguments, `convert: ${peer.name}`), tables, options);
}

/** A record, and the peer whose arguments it came from. */
export interface ReadForm {
  readonly peer: string;
  readonly spec: RopeSpec;
}

/**
 * Reads a record from some peer's arguments.
 *
 * @param json - the output of `ropewalk convert --json` (`target`, `arguments`, `tables`), or the arguments alone
 * @param tables - tables by the peer's names
 * @param given - the context in use, and the file's name for messages
 * @throws {RopewalkError} FORMAT when no peer has such arguments; FORMAT, RANGE, SHAPE or UNSUPPORTED from the peer's
 *   reader
 */
export function readForm(
  json: unknown,
  tables: ReadonlyMap<string, GivenTable>,
  given: { readonly context?: number; readonly where: string },
): ReadForm {
  const options = readOptions(given, 'convert: options', { context: true, where: true });
  const outer = new Fields(json, options.where);
  if (!reading('convert: tables', () => tables instanceof Map))
    refuse('DTYPE', 'convert: tables', 'a Map of tables by name', tables);
  const named = outer.has('target') && outer.has('arguments');
  const form = named ? outer.object('arguments') : outer;
  const names = PEERS.map((peer) => peer.name).join(', ');
  const expected = `a config.json, a record (headDim, pairing, …), or the arguments of ${names}`;
  const next = 'ropewalk convert X --to PEER --json prints an example of each.';
  const peer = named
    ? peerOf(outer.text('target'))
    : (PEERS.find((candidate) => candidate.recognizes(form)) ??
      refuse('FORMAT', options.where, expected, form.keys(), next));
  if (peer.names) onlyKeys(form, peer.names);
  return { peer: peer.name, spec: peer.read(form, tables, { context: options.context }) };
}
