/** Loads a model and generates text. The page only shows the results. @module */
import {
  type ChatMessage,
  type Generation,
  generate,
  type LoadProgress,
  loadModel,
  type Model,
  type ModelFiles,
  type ModelMemory,
} from '@ropewalk/model';
import { BACKENDS } from 'ropewalk';
import { breath } from '../shared/breath.js';
import { filesOf, type Source } from '../shared/model-source.js';

/** The engine that runs it. */
export interface How {
  readonly backend: 'cpu' | 'webgpu';
  /** The length of the context, in tokens. */
  readonly context: number;
}

/** A model whose headers were read. Its weights are not in memory. */
export interface Looked {
  readonly architecture: string;
  readonly layers: number;
  readonly vocabulary: number;
  /** The longest context of the model. */
  readonly maxContext: number;
  readonly memory: ModelMemory;
}

/** A loaded model. */
export interface Loaded {
  readonly backend: string;
  readonly hasChat: boolean;
}

/** The input of a generation. */
export interface Wish {
  readonly prompt: string | readonly ChatMessage[];
  readonly maxTokens: number;
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
  readonly seed?: number;
}

/** This value ends loading after the headers. */
const ENOUGH = Symbol('enough');

let model: Model | undefined;
let files: ModelFiles | undefined;
let stop = new AbortController();

const models = {
  /** Returns the reason why a backend cannot open in this browser, or undefined when it can. */
  async whyNot(name: How['backend']): Promise<string | undefined> {
    return BACKENDS.find((entry) => entry.name === name)!.whyNot();
  },

  /** Reads the headers of a model and returns the memory that it would take. It frees the model loaded before. */
  async look(source: Source, { backend, context }: How): Promise<Looked> {
    model?.dispose();
    model = undefined;
    files = await filesOf(source);
    let looked: Looked | undefined;
    const look = (most?: number): Promise<unknown> =>
      loadModel(files!, {
        backend,
        context: (config) => Math.min(most ?? config.maxContext, config.maxContext),
        onMemory(memory, { architecture, numLayers, vocabSize, maxContext }) {
          looked = { architecture, layers: numLayers, vocabulary: vocabSize, maxContext, memory };
          throw ENOUGH;
        },
      });
    await look(context).catch((error) => {
      if (error !== ENOUGH) throw error;
    });
    return looked!;
  },

  /** Loads the model that `look` read last. */
  async load({ backend, context }: How, onProgress: (progress: LoadProgress) => void): Promise<Loaded> {
    model?.dispose();
    model = undefined;
    let told = 0;
    model = await loadModel(files!, {
      backend,
      context: (config) => Math.min(context, config.maxContext),
      onProgress(progress) {
        if (performance.now() - told < 50) return;
        told = performance.now();
        onProgress(progress);
      },
    });
    return { backend: model.backend, hasChat: model.tokenizer.chatTemplate !== undefined };
  },

  /** Generates text. `onText` gets pieces of the text and the number of tokens so far. */
  async generate({ prompt, ...options }: Wish, onText: (text: string, tokens: number) => void): Promise<Generation> {
    stop = new AbortController();
    let text = '';
    let tokens = 0;
    let told = performance.now();
    for await (const item of generate(model!, prompt as string, { ...options, signal: stop.signal })) {
      text += item.text;
      if (item.end) {
        onText(text, item.end.tokens.length);
        return item.end;
      }
      tokens++;
      if (performance.now() - told < 40) continue;
      onText(text, tokens);
      text = '';
      await breath();
      told = performance.now();
    }
    throw new Error('unreachable: a generation ends with its end');
  },

  stop(): void {
    stop.abort();
  },
};

/** The functions that the page calls. */
export type Models = typeof models;

export default models;
