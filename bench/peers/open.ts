/**
 * Loads peers by name.
 *
 * @module
 */
import { openJax } from './jax.js';
import { openOrt } from './ort.js';
import { firstLine, type Peer, type PeerName } from './peer.js';
import { openTfjs } from './tfjs.js';

const OPENERS: Readonly<Record<PeerName, (threads: number) => Promise<Peer | string>>> = {
  'ort-node': (threads) => openOrt('ort-node', threads),
  'ort-web': (threads) => openOrt('ort-web', threads),
  tfjs: openTfjs,
  'jax-js': openJax,
};

/**
 * Loads a peer.
 *
 * @param name - which
 * @param threads - that may compute; ort-web takes it once in the life of a process
 * @returns the peer, or the reason why it is left out
 */
export async function openPeer(name: PeerName, threads: number): Promise<Peer | string> {
  try {
    return await OPENERS[name](threads);
  } catch (reason) {
    return `it does not load here: ${firstLine(reason)}`;
  }
}
