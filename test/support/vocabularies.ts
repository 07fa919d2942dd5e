/**
 * Makes vocabularies for tests as GGUF metadata: those of packages/model/test/golden/tokenizers.jsonl, and a small one.
 */
import { readFileSync } from 'node:fs';
import type { GgufValue } from '@ropewalk/formats';
import { parseJson } from '@ropewalk/formats';

interface Golden {
  readonly vocab: string[];
  readonly merges: string[];
  readonly texts: string[];
  readonly special: string[];
  readonly types: number[];
  readonly patterns: Record<string, string>;
  readonly llama: Record<string, number[][]>;
  readonly huggingface: Record<string, number[][]>;
  readonly unigramTexts: string[];
  readonly unigram: {
    readonly pieces: [text: string, score: number, type: number][];
    readonly charsmap: string;
    readonly llama: Record<string, number[][]>;
  };
  readonly steps: { readonly texts: string[]; readonly of: Record<string, { [key: string]: unknown; out: unknown[] }> };
  readonly vocabularies: { readonly json: Record<string, unknown>; readonly ids: number[][] }[];
  readonly stories: {
    texts: string[];
    encode: number[][];
    decode: [number[], string, string][];
    llama: [number[][], number[][]];
  };
}
export const golden = parseJson(
  new Uint8Array(readFileSync(new URL('../../packages/model/test/golden/tokenizers.jsonl', import.meta.url))),
  'tokenizers.jsonl',
) as Golden;

/** Makes the metadata of a GGUF with the golden vocabulary. */
export function metadata(
  pre: string | undefined,
  changes: Record<string, GgufValue | undefined> = {},
): Map<string, GgufValue> {
  const n = golden.vocab.length;
  const keys: Record<string, GgufValue | undefined> = {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': pre,
    'tokenizer.ggml.tokens': [...golden.vocab, ...golden.special],
    'tokenizer.ggml.token_type': [...golden.vocab.map(() => 1), ...golden.types],
    'tokenizer.ggml.merges': golden.merges,
    'tokenizer.ggml.bos_token_id': n,
    'tokenizer.ggml.eos_token_id': n + 1,
    ...changes,
  };
  return new Map(Object.entries(keys).filter((entry): entry is [string, GgufValue] => entry[1] !== undefined));
}

/** Makes a small SentencePiece vocabulary with bytes, a few pieces and the usual special tokens. */
export function pieces(changes: Record<string, GgufValue | undefined> = {}): Map<string, GgufValue> {
  const own = ['▁', 'a', 'b', 'ab', '▁a', '▁ab', 'aba', 'é', '<user>', 'aa'];
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const keys: Record<string, GgufValue | undefined> = {
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': ['<unk>', '<s>', '</s>', ...bytes, ...own],
    'tokenizer.ggml.scores': [0, 0, 0, ...bytes.map(() => 0), -9, -9, -9, -2, -3, -1, -2, -9, 0, -5],
    'tokenizer.ggml.token_type': [2, 3, 3, ...bytes.map(() => 6), 1, 1, 1, 1, 1, 1, 1, 1, 4, 1],
    'tokenizer.ggml.bos_token_id': 1,
    'tokenizer.ggml.eos_token_id': 2,
    'tokenizer.ggml.unknown_token_id': 0,
    ...changes,
  };
  return new Map(Object.entries(keys).filter((entry): entry is [string, GgufValue] => entry[1] !== undefined));
}
/** Makes the metadata of a GGUF with the golden Unigram vocabulary. */
export function unigram(changes: Record<string, GgufValue | undefined> = {}): Map<string, GgufValue> {
  const { pieces, charsmap } = golden.unigram;
  const keys: Record<string, GgufValue | undefined> = {
    'tokenizer.ggml.model': 't5',
    'tokenizer.ggml.tokens': pieces.map(([text]) => text),
    'tokenizer.ggml.scores': pieces.map(([, score]) => score),
    'tokenizer.ggml.token_type': pieces.map(([, , type]) => type),
    'tokenizer.ggml.unknown_token_id': 0,
    'tokenizer.ggml.eos_token_id': 2,
    'tokenizer.ggml.precompiled_charsmap': [...Buffer.from(charsmap, 'base64')],
    ...changes,
  };
  return new Map(Object.entries(keys).filter((entry): entry is [string, GgufValue] => entry[1] !== undefined));
}
