/**
 * The code that runs in Chromium: a session of WebNN, or of a GPU with ONNX Runtime's build for browsers as a peer.
 *
 * @module
 */
import { firstLine, runGpuSession, type SessionResult } from '@ropewalk/bench/internal';
import type { OrtModule } from './peers/ort-module.js';
import { openOrtWebgpu } from './peers/ort-webgpu.js';
import type { Peer } from './peers/peer.js';
import { rivalsOf, type SessionOptions } from './rivals.js';
import { runWebnnSession } from './webnn.js';

/** The parameters of the page. */
export interface PageTask {
  readonly options: SessionOptions;
  /** The browser with its version. */
  readonly where: string;
  /** The version of ONNX Runtime, or the reason why it is left out. It is undefined when the peer is not wanted. */
  readonly ort?: { readonly version: string } | { readonly leftOut: string };
}

/**
 * Runs the cases.
 *
 * @param task - comes from the process in Node
 */
export async function runInPage({ options, where, ort }: PageTask): Promise<SessionResult> {
  const progress = (label: string): void => console.log(label);
  if (options.backend === 'webnn') return runWebnnSession(options, where, progress);
  const peer = ort && ('version' in ort ? await loadOrt(ort.version) : ort.leftOut);
  const note = typeof peer === 'string' ? `ort-webgpu left out: ${peer}` : peer && `ort-webgpu: ${peer.version}`;
  const beside = { rivals: rivalsOf(peer && typeof peer !== 'string' ? [peer] : []), peerNotes: note ? [note] : [] };
  return runGpuSession(options, where, progress, beside);
}

async function loadOrt(version: string): Promise<Peer | string> {
  try {
    const address = '/ort/ort.webgpu.bundle.min.mjs'; // a variable, so that the bundler leaves this import alone
    const ort: OrtModule = await import(address);
    ort.env.logLevel = 'error';
    ort.env.wasm.wasmPaths = '/ort/';
    ort.env.wasm.numThreads = 1;
    return await openOrtWebgpu(ort, version);
  } catch (reason) {
    return `it does not load here: ${firstLine(reason)}`;
  }
}
