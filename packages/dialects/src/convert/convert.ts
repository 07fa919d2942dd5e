/**
 * Converts one RoPE between the words of many peers, and proves each conversion by reading it back.
 *
 * @module
 */

import type { RopeSpec } from 'ropewalk';
import { Fields, reading, readOptions, refuse } from 'ropewalk/backend';
import { distanceOf, effectiveRope } from './effective.js';
import { flashinferPeer } from './flashinfer.js';
import {
  type ConvertOptions,
  cannot,
  type Draft,
  F64_TOLERANCE,
  type FormTable,
  type GivenTable,
  type Peer,
  type Relayout,
} from './form.js';
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
  read: (form) => specFromJson(Object.fromEntries(form.keys().map((key) => [key, form.raw(key)])), form.where),
  recognises: (form) => form.has('headDim') && form.has('pairing'),
};

/** Every peer, in the order of help texts. */
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

/** A record in a peer's words, and the proof. */
export interface Conversion {
  readonly target: string;
  /** The function, operator or file that takes the arguments. */
  readonly call: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** Tables of `positions` rows; empty where none were asked for. */
  readonly tables: readonly FormTable[];
  readonly notes: readonly string[];
  /** A difference of layout that the reader must make up for, or that cancels in q·k. */
  readonly relayout: Relayout | undefined;
  /** What the peer's words mean, read back. */
  readonly readBack: RopeSpec;
  /** Largest relative error of a frequency, and of the magnitude, between the record and what was read back. */
  readonly error: { readonly invFreq: number; readonly attentionFactor: number };
}

/**
 * Finds a peer by name.
 *
 * @param name - such as `ggml`
 * @throws {RopewalkError} FORMAT for a name that no peer has
 */
export function peerOf(name: string): Peer {
  return (
    PEERS.find((peer) => peer.name === name) ??
    refuse('FORMAT', 'convert: --to', PEERS.map((peer) => peer.name).join(', '), name)
  );
}

/**
 * Says a record in a peer's words. The result is read back by the peer's own rules and must be the same RoPE.
 *
 * @param spec - the record
 * @param target - a peer's name
 * @param given - rows of tables, context, heads, names
 * @throws {RopewalkError} UNSUPPORTED: cannot be expressed, because …; RANGE or SHAPE for a record that is no RoPE
 */
export function convertRope(spec: RopeSpec, target: string, given: ConvertOptions = {}): Conversion {
  const peer = peerOf(target);
  const own = effectiveRope(spec);
  const options = readConvertOptions(given);
  const context = options.context ?? (spec.scaling && 'context' in spec.scaling ? spec.scaling.context : undefined);
  const known = { ...options, ...(context === undefined ? {} : { context }) };
  // Tables of one row, or of a million, prove no more than these.
  const proving = {
    ...known,
    ...(options.positions === undefined ? {} : { positions: Math.min(4096, Math.max(2, options.positions)) }),
  };
  let worst: string | undefined;
  for (const [n, draft] of peer.drafts(spec, proving).entries()) {
    const readBack = readDraft(peer, draft, known);
    const wanted = draft.relayout ? { ...own, pairing: draft.relayout.to as typeof own.pairing } : own;
    const { differences, ...error } = distanceOf(wanted, effectiveRope(readBack));
    worst ??=
      differences[0] ??
      `frequencies off by ${error.invFreq.toExponential(1)}, magnitude by ${error.attentionFactor.toExponential(1)}`;
    if (differences.length > 0 || !(error.invFreq <= peer.tolerance) || !(error.attentionFactor <= peer.tolerance))
      continue;
    if (!holdsAtOtherLengths(peer, draft, spec, known)) continue;
    const { call, notes = [], relayout } = draft;
    const whole = draft.tables === undefined ? draft : peer.drafts(spec, known)[n]!;
    const tables = options.positions === undefined ? [] : (whole.tables ?? []);
    return { target, call, arguments: whole.arguments, tables, notes, relayout, readBack, error };
  }
  return cannot(
    target,
    `what its words give, read back, is another RoPE (${worst})`,
    'Use tables: --to onnx or --to infiniop.',
  );
}

function readConvertOptions(given: ConvertOptions): ConvertOptions {
  const options = readOptions(given, 'convert: options');
  for (const name of ['context', 'positions', 'heads'] as const) {
    const value = options[name];
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 1))
      refuse('RANGE', `convert: --${name}`, 'an integer >= 1', value);
  }
  for (const name of ['modelType', 'architecture'] as const) {
    const value = options[name];
    if (value !== undefined && typeof value !== 'string') refuse('RANGE', `convert: ${name}`, 'a string', value);
  }
  return options;
}

/** LongRoPE has two lists, and a reading at one length sees one of them: at the other length it must be right too, or not change at all. */
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
  const tables = new Map(
    (draft.tables ?? []).map(
      ({ name, shape, data }) => [name, { shape, data, roundoff: 2 ** -24 } satisfies GivenTable] as const,
    ),
  );
  return peer.read(new Fields(draft.arguments, `convert: ${peer.name}`), tables, options);
}

/** A record that was read, and the peer whose words it was in. */
export interface ReadForm {
  readonly peer: string;
  readonly spec: RopeSpec;
}

/**
 * Reads a record from arguments in some peer's words.
 *
 * @param json - what `ropewalk convert --json` prints (`target`, `arguments`, `tables`), or bare arguments
 * @param tables - tables by the peer's own names
 * @param options - the context in use, and the file's name for messages
 * @throws {RopewalkError} FORMAT when no peer's words are recognised; otherwise as the peer's reader says
 */
export function readForm(
  json: unknown,
  tables: ReadonlyMap<string, GivenTable>,
  given: { readonly context?: number; readonly where: string },
): ReadForm {
  const options = readOptions(given, 'convert: options');
  const outer = new Fields(json, options.where);
  if (!reading('convert: tables', () => tables instanceof Map))
    refuse('DTYPE', 'convert: tables', 'a Map of tables by name', tables);
  const named = outer.has('target') && outer.has('arguments');
  const form = named ? outer.object('arguments') : outer;
  const peer = named
    ? peerOf(outer.text('target'))
    : (PEERS.find((candidate) => candidate.recognises(form)) ??
      refuse(
        'FORMAT',
        options.where,
        `a config.json, a record (headDim, pairing, …), or the arguments of ${PEERS.map((p) => p.name).join(', ')}`,
        form.keys(),
        'ropewalk convert X --to PEER --json shows what each looks like.',
      ));
  return {
    peer: peer.name,
    spec: peer.read(form, tables, options.context === undefined ? {} : { context: options.context }),
  };
}
