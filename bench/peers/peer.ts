/**
 * The interface of a peer: another library that computes the same.
 *
 * No peer is a dependency of Ropewalk. A peer that is not installed in bench/ is reported as left out.
 *
 * @module
 */
import type { ArrayOf, FloatDtype } from 'ropewalk';
import type { PeerGraph } from './graph.js';

/** The names on the command line of the peers that compute on the CPU. */
export const CPU_PEERS = ['ort-node', 'ort-web', 'tfjs', 'jax-js'] as const;
/** The names on the command line of the peers that compute on the GPU. */
export const GPU_PEERS = ['ort-webgpu'] as const;
/** The peer of the webnn backend, which is our own cpu backend. */
export const WEBNN_PEERS = ['cpu'] as const;
/** The names of all peers. */
export const PEER_NAMES = [...CPU_PEERS, ...GPU_PEERS, ...WEBNN_PEERS] as const;
/** A peer's name on the command line. */
export type PeerName = (typeof PEER_NAMES)[number];

/** A peer that is ready to open sessions. */
export interface Peer {
  readonly name: PeerName;
  /** The package and its version. */
  readonly version: string;
  /** Says whether the peer should run a graph. A graph that it takes but cannot run is reported. */
  takes(graph: PeerGraph): boolean;
  /**
   * Loads a graph.
   *
   * @throws whatever the peer throws, such as an operator that it lacks
   */
  open(graph: PeerGraph): Promise<PeerSession>;
}

/** A loaded graph with its inputs. One run is one call of the peer. */
export interface PeerSession {
  /** Computes the output again. If it returns a promise, the time until it settles counts for the peer. */
  run(): unknown;
  /** Waits until all runs so far are done. Peers that only queue their runs have it. */
  finish?(): Promise<void>;
  /** Returns the compared output of the last run. f16 and bf16 are bits. */
  output(): ArrayOf[FloatDtype] | Promise<ArrayOf[FloatDtype]>;
  /** Returns one number of the last output, if that does not need a copy of the whole output. */
  sink?(): number;
  close(): Promise<void> | void;
}
