/**
 * Loads peers by name.
 *
 * @module
 */
import { firstLine } from '@ropewalk/bench/internal';
import { openJax } from './jax.js';
import { openOrt, openOrtNodeWebgpu } from './ort.js';
import type { Peer, PeerName } from './peer.js';
import { openTfjs } from './tfjs.js';

const OPENERS: Readonly<Record<PeerName, (threads: number) => Promise<Peer | string>>> = {
  'ort-node': (threads) => openOrt('ort-node', threads),
  'ort-web': (threads) => openOrt('ort-web', threads),
  tfjs: openTfjs,
  'jax-js': openJax,
  'ort-webgpu': openOrtNodeWebgpu,
  cpu: async () => 'it is our own, and takes its turns with webnn only',
};

/**
 * Loads peers.
 *
 * @param names - the names of the peers
 * @param threads - the number of threads; ort-web fixes it once in the life of a process
 * @returns the peers that load, and for each name its version or the reason why it is left out
 */
export async function openPeers(
  names: readonly PeerName[],
  threads: number,
): Promise<{ peers: Peer[]; notes: string[] }> {
  const opened = await Promise.all(names.map(async (name) => ({ name, peer: await openPeer(name, threads) })));
  return {
    peers: opened.flatMap(({ peer }) => (typeof peer === 'string' ? [] : [peer])),
    notes: opened.map(({ name, peer }) =>
      typeof peer === 'string' ? `${name} left out: ${peer}` : `${name}: ${peer.version}`,
    ),
  };
}

async function openPeer(name: PeerName, threads: number): Promise<Peer | string> {
  try {
    return await OPENERS[name](threads);
  } catch (reason) {
    return `it does not load here: ${firstLine(reason)}`;
  }
}
