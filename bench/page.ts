/**
 * The code that runs in Chromium: a session of a GPU, beside ONNX Runtime's build for browsers, or of WebNN.
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
  /** The browser, with its version. */
  readonly where: string;
  /** ONNX Runtime's version, or the reason why it is left out; undefined when it is not asked. */
  readonly ort?: { readonly version: string } | { readonly leftOut: string };
}

/**
 * Runs the cases.
 *
 * @param task - from Node
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
    const address = '/ort/ort.webgpu.bundle.min.mjs'; // not a literal below: this file is bundled, that one is not
    const ort: OrtModule = await import(address);
    ort.env.logLevel = 'error';
    ort.env.wasm.wasmPaths = '/ort/';
    ort.env.wasm.numThreads = 1;
    return await openOrtWebgpu(ort, version);
  } catch (reason) {
    return `it does not load here: ${firstLine(reason)}`;
  }
}
