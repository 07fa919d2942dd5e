/**
 * What a peer is: another library that computes the same, and what it is asked.
 *
 * None is a dependency of Ropewalk; what is not installed in bench/ is reported as left out.
 *
 * @module
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { ArrayOf, FloatDtype } from '../ropewalk.js';
import type { PeerGraph } from './graph.js';

/** The peers' names on the command line. */
export const PEER_NAMES = ['ort-node', 'ort-web', 'tfjs', 'jax-js'] as const;
/** A peer's name on the command line. */
export type PeerName = (typeof PEER_NAMES)[number];

/** A peer that is ready to open sessions. */
export interface Peer {
  readonly name: PeerName;
  /** Package and version. */
  readonly version: string;
  /** Whether it is asked for a graph at all; a graph that it is asked for and cannot run is reported. */
  takes(graph: PeerGraph): boolean;
  /**
   * Loads a graph.
   *
   * @throws whatever the peer throws, such as an operator that it lacks
   */
  open(graph: PeerGraph): Promise<PeerSession>;
}

/** A loaded graph with its inputs; one run is one call of the peer. */
export interface PeerSession {
  /** Computes the output anew. A promise is awaited, and its time is the peer's. */
  run(): unknown;
  /** The compared output of the last run; f16 and bf16 as bits. */
  output(): ArrayOf[FloatDtype];
  /** A number of the last output, where that needs no copy of the whole. */
  sink?(): number;
  close(): Promise<void> | void;
}

/** An installed package. */
export interface Installed {
  /** The file that `require` would load. */
  readonly entry: string;
  /** Name and version. */
  readonly version: string;
}

const require = createRequire(import.meta.url);

/**
 * Finds a peer's package in bench/node_modules.
 *
 * @param name - of the package
 * @param companions - packages that it is of no use without
 * @returns where it is, or the reason why it is left out
 */
export function findInstalled(name: string, ...companions: readonly string[]): Installed | string {
  try {
    const entry = require.resolve(name);
    for (const companion of companions) require.resolve(companion);
    // Not resolved as `name/package.json`: not every package lets that out.
    const folder = join(entry.slice(0, entry.lastIndexOf(join('node_modules', name))), 'node_modules', name);
    return { entry, version: `${name} ${JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).version}` };
  } catch {
    return `${name} is not installed. Install it with: npm ci --prefix bench`;
  }
}

/** The first line of an error: ONNX Runtime's go on with a stack of its own. */
export function firstLine(reason: unknown): string {
  return String(reason instanceof Error ? reason.message : reason).split('\n')[0]!;
}
