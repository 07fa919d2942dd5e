/**
 * The interface of a peer: another library that computes the same.
 *
 * None is a dependency of Ropewalk; what is not installed in bench/ is reported as left out.
 *
 * @module
 */
import type { ArrayOf, FloatDtype } from 'ropewalk';
import type { PeerGraph } from './graph.js';

/** The names on the command line of the peers that compute on the CPU. */
export const CPU_PEERS = ['ort-node', 'ort-web', 'tfjs', 'jax-js'] as const;
/** The names of those that compute on the GPU. */
export const GPU_PEERS = ['ort-webgpu'] as const;
/** Those beside webnn: our own cpu. */
export const WEBNN_PEERS = ['cpu'] as const;
/** All names. */
export const PEER_NAMES = [...CPU_PEERS, ...GPU_PEERS, ...WEBNN_PEERS] as const;
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
  /** Computes the output again. A promise is awaited, and its time is the peer's. */
  run(): unknown;
  /** Waits until the runs so far are done, where they are only queued. */
  finish?(): Promise<void>;
  /** The compared output of the last run; f16 and bf16 as bits. */
  output(): ArrayOf[FloatDtype] | Promise<ArrayOf[FloatDtype]>;
  /** A number of the last output, where that needs no copy of the whole. */
  sink?(): number;
  close(): Promise<void> | void;
}
