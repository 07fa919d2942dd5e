/** Loads `@huggingface/transformers`, a library of others, with types for the parts that tests use. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT } from './build.js';

/** The folder of the package, if it is installed. */
export const TRANSFORMERS = join(ROOT, 'bench/node_modules/@huggingface/transformers');

/** The reason why tests with it are skipped here, or false. */
export const noTransformers: string | false = existsSync(TRANSFORMERS)
  ? false
  : '@huggingface/transformers is not installed: npm run peers';

interface Tensor {
  readonly dims: readonly number[];
  readonly data: ArrayLike<number>;
}

interface Message {
  readonly role: string;
  readonly content: string;
}

/** Generates text from one prompt, from several prompts, or from a chat. */
interface TextGeneration {
  (prompt: string, options: object): Promise<{ generated_text: string }[]>;
  (prompts: readonly string[], options: object): Promise<{ generated_text: string }[][]>;
  (chat: readonly Message[], options: object): Promise<{ generated_text: Message[] }[]>;
  readonly tokenizer: {
    apply_chat_template(messages: readonly Message[], options: object): string;
    encode(text: string): number[];
  };
  dispose(): Promise<unknown>;
}

interface CausalModel {
  (inputs: Readonly<Record<string, Tensor>>): Promise<{ readonly logits: Tensor }>;
  dispose(): Promise<unknown>;
}

/** The exports of the package. */
export interface Transformers {
  pipeline(task: 'text-generation', folder: string, options?: object): Promise<TextGeneration>;
  readonly AutoModelForCausalLM: { from_pretrained(folder: string, options?: object): Promise<CausalModel> };
  readonly Tensor: new (type: 'int64', data: BigInt64Array, dims: readonly number[]) => Tensor;
  readonly env: { allowRemoteModels: boolean; useFSCache: boolean; useWasmCache: boolean };
}

/** Loads the package, set up to contact no server and to write no cache. */
export async function transformers(): Promise<Transformers> {
  const found: Transformers = await import(pathToFileURL(join(TRANSFORMERS, 'dist/transformers.node.mjs')).href);
  Object.assign(found.env, { allowRemoteModels: false, useFSCache: false, useWasmCache: false });
  return found;
}
