/**
 * Prepares the peers of a case: it loads their graphs and compares their outputs with ours before they take turns with
 * us.
 *
 * @module
 */

import type { BenchCase, PreparedCase } from '@ropewalk/bench/internal';
import {
  errorLimit,
  firstLine,
  type Rival,
  type Rivals,
  type SessionOptions as RoomOptions,
  sampleNumbers,
  worstError,
} from '@ropewalk/bench/internal';
import type { FloatDtype } from 'ropewalk';
import type { Peer, PeerName, PeerSession } from './peers/peer.js';
import { graphsOf } from './peers/questions.js';

/** The options of the command line. */
export interface SessionOptions extends RoomOptions {
  readonly backend: string;
  readonly peers: readonly PeerName[];
}

/** A way that is this many times slower than the same peer's best way is not timed. */
const FAR_SLOWER = 4;

/** One way of a peer before the timing starts. */
interface Asked extends Rival {
  /** The time of one call, which shows whether this way can be the peer's best. */
  readonly trialMs?: number;
}

/**
 * Makes the function that prepares the peers of each case.
 *
 * @param peers - the open peers, which stay open
 * @returns the value for `rivals` in a session's settings
 */
export function rivalsOf(peers: readonly Peer[]): (entry: BenchCase, prepared: PreparedCase) => Promise<Rivals> {
  return async ({ dtype }, prepared) => {
    const sessions: PeerSession[] = [];
    const asked: Asked[] = [];
    const graphs = peers.length > 0 && prepared.question ? graphsOf(prepared.question) : [];
    for (const peer of peers) {
      for (const graph of graphs.filter((way) => peer.takes(way))) {
        const known = { peer: peer.name, graph: graph.name };
        try {
          const session = await peer.open(graph);
          sessions.push(session);
          const run = async (times: number): Promise<undefined> => {
            for (let n = 0; n < times; n++) await session.run();
            await session.finish?.();
          };
          await run(1);
          const first = performance.now();
          await run(1);
          const trialMs = performance.now() - first;
          const error = await differenceFromOurs(session, prepared, dtype);
          const sink = session.sink && { sink: () => session.sink!() };
          const queue = session.finish && { queue: run };
          const contender = { name: `${peer.name} ${graph.name}`, call: () => session.run(), ...queue, ...sink };
          asked.push({ result: { ...known, error, agrees: error <= errorLimit(dtype) }, contender, trialMs });
        } catch (reason) {
          asked.push({ result: { ...known, leftOut: firstLine(reason) } });
        }
      }
    }
    const close = async (): Promise<void> => {
      for (const session of sessions) await session.close();
    };
    return { rivals: withoutFarSlower(asked), close };
  };
}

/** Leaves out each way that is much slower than another way of the same peer whose output agrees. */
function withoutFarSlower(asked: readonly Asked[]): Rival[] {
  return asked.map((way) => {
    const rivals = asked.filter(
      ({ result, trialMs }) => result.peer === way.result.peer && result.agrees && trialMs !== undefined,
    );
    const best = rivals.reduce((least, rival) => (rival.trialMs! < least.trialMs! ? rival : least), rivals[0] ?? way);
    if (way.trialMs === undefined || way.trialMs <= FAR_SLOWER * best.trialMs! || way.trialMs < 5) return way;
    const leftOut = `not timed: one run took ${(way.trialMs / best.trialMs!).toFixed(0)} times that of ${best.result.graph}`;
    return { result: { ...way.result, leftOut } };
  });
}

async function differenceFromOurs(session: PeerSession, prepared: PreparedCase, dtype: FloatDtype): Promise<number> {
  const ours = await prepared.output?.read();
  if (!ours) throw new Error('expected a case whose output is compared');
  return worstError(sampleNumbers(await session.output(), dtype), sampleNumbers(ours, dtype)).error;
}
