/** Asks a server, or reads a recording, and judges the answers. The page only shows the report. @module */
import { loadModel, type Model } from '@ropewalk/model';
import {
  changeableEngine,
  type Exchange,
  parseRecording,
  probe,
  probeSelf,
  reportLines,
  reportSvg,
  selfLines,
} from '@ropewalk/probe';
import { filesOf, type Source } from '../shared/model-source.js';

/** The wish of a visitor. */
export interface Asked {
  /** The server's address, or a recording of its answers. */
  readonly from: string | File;
  /** It goes into the header Authorization of requests to the server, and nowhere else. */
  readonly key: string;
  readonly tokens: number | undefined;
  /** The model that the server is said to have; without it the server is held against itself. */
  readonly model: Source | undefined;
}

/** The outcome of a probe. */
export interface Told {
  readonly lines: readonly string[];
  readonly svg: string | undefined;
  readonly agrees: boolean;
  /** All answers, one on each line, as `ropewalk probe --replay` reads them. */
  readonly recording: string;
}

/** The largest recording, and the largest that a .gz holds. */
const MAX_BYTES = 2 ** 28;

async function textOf(file: File): Promise<string> {
  const stream = file.stream();
  const reader = (file.name.endsWith('.gz') ? stream.pipeThrough(new DecompressionStream('gzip')) : stream).getReader();
  const parts: BlobPart[] = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    size += part.value.length;
    if (size > MAX_BYTES)
      throw new Error(`${file.name} has more than ${MAX_BYTES / 2 ** 20} MiB. Take a shorter recording.`);
    parts.push(part.value);
  }
  return new Blob(parts).text();
}

let stop = new AbortController();

const probes = {
  async run(
    { from, key, tokens, model: source }: Asked,
    onProgress: (what: string, share: number) => void,
  ): Promise<Told> {
    stop = new AbortController();
    const recorded = typeof from === 'string' ? undefined : parseRecording(await textOf(from), from.name);
    const kept: Exchange[] = [...(recorded ?? [])];
    const access = {
      key: key === '' ? undefined : key,
      tokens,
      recorded,
      offline: recorded !== undefined,
      onExchange: (one: Exchange) => void kept.push(one),
      signal: stop.signal,
      onProgress,
    };
    const url = typeof from === 'string' ? from : 'http://recorded';
    const recording = (): string => kept.map((one) => `${JSON.stringify(one)}\n`).join('');
    if (!source) {
      const report = await probeSelf(url, access);
      return { lines: selfLines(report), svg: undefined, agrees: report.verdict === 'agrees', recording: recording() };
    }
    let model: Model | undefined;
    try {
      const engine = changeableEngine();
      model = await loadModel(await filesOf(source), { engine, signal: stop.signal });
      const report = await probe(url, { ...access, model, engine });
      const svg = reportSvg(report);
      return { lines: reportLines(report), svg, agrees: report.verdict === 'agrees', recording: recording() };
    } finally {
      model?.dispose();
    }
  },

  stop(): void {
    stop.abort();
  },
};

export type Probes = typeof probes;

export default probes;
