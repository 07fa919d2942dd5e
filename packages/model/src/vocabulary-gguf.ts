/**
 * Writes a HuggingFace vocabulary as the keys of a GGUF file: tokenizerFromGguf backwards.
 *
 * A GGUF has the name of a pattern instead of the pattern, and scores instead of merges. So the keys are read back:
 * texts of many scripts must become the same tokens, or the vocabulary is refused.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 conversion/base.py get_vocab_base and _set_vocab_sentencepiece
 */
import type { TypedValue } from '@ropewalk/formats/internal';
import { fail, refuse } from 'ropewalk/backend';
import { Fields, show } from 'ropewalk/internal';
import { valuesOf } from './config-gguf.js';
import { tokenizerJsonFromGguf } from './gguf-tokenizer-json.js';
import { PRE_TOKENIZERS, preTokenizerStep, TYPE, tokenizerFromGguf } from './gguf-vocabulary.js';
import { readMerges } from './tokenizer.js';
import { type TokenizerFiles, tokenizerFromJson } from './tokenizer-json.js';
import { readSteps } from './tokenizer-steps.js';
import type { DecoderConfig, Tokenizer } from './types.js';

export interface VocabularyKeys {
  readonly keys: ReadonlyMap<string, TypedValue>;
  /** Sentences on what a GGUF does not express. */
  readonly notes: readonly string[];
}

/** Texts that tell pre-tokenizers apart. Characters are numbers if an editor or a normaliser might change them. */
const TEXTS: readonly string[] = [
  "Hello, world! It's 12:30; I'LL pay $1,234,567.89 (about 10%) -- we've seen it's 'DEFINED'...",
  ' leading,  two   three\ttab\n\nline\r\n  indented\n\n\n   end  ',
  'camelCase HTTPServer xX_Yy_Zz getURL2path v1.2.3-beta+4 a1b22c333d4444e55555 0x1F 1e-10 100000000',
  'if (x >= 10) { return y[0] /= 2; } // <tag attr="v">&amp;</tag> \\path\\to `code` ~/.bash_profile #!/bin/sh @user',
  'na\u00efve caf\u00e9 stra\u00dfe \u0141\u00f3d\u017a \u01c5 \u0410\u043b\u0438\u0441\u0430 \u0395\u03bb\u03bb\u03ac\u03b4\u03b1 \u00bd \u00b2 \u2160 \u0661\u0662\u0663 \u096c',
  '\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u30ab\u30bf\u30ab\u30ca \ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940 \u05e2\u05d1\u05e8\u05d9\u05ea',
  '\u{1f600}\u{1f468}\u200d\u{1f469}\u200d\u{1f467} \u00a9\u2122 \u20ac5 \u2192\u2200x\u2208\u211d \u201cquoted\u201d \u2018it\u2019s\u2019 \u2014 \u2026 \u00a0nbsp\u3000wide',
  'x  12   345 6,7\n8\t9\n\n  10. End.\nNext!\r\n(so)\n\n/** a */\n',
  '',
];

/**
 * @param name - the model's name, which llama.cpp reads
 * @throws {RopewalkError} UNSUPPORTED for a vocabulary that a GGUF cannot express; FORMAT for malformed files, and for
 *   more tokens than the model has rows
 */
export function vocabularyToGguf(
  files: TokenizerFiles,
  config: DecoderConfig,
  name: string,
  where: string,
): VocabularyKeys {
  const tokenizer = tokenizerFromJson(files, where);
  const root: Fields = new Fields(files.tokenizerJson, where);
  const model: Fields = root.object('model');
  const notes: string[] = [];
  if (tokenizer.vocabSize > config.vocabSize)
    refuse('FORMAT', where, `at most ${config.vocabSize} tokens, as many rows as the model has`, tokenizer.vocabSize);
  if (model.optionalText('type') === 'Unigram') model.refuse('UNSUPPORTED', 'type', 'BPE', 'Unigram is not written.');
  const common = commonKeys(tokenizer, root, config, new Fields(files.tokenizerConfig ?? {}, where));
  common.set('general.name', text(nameFor(name, root, config, notes)));
  const drafts = model.flag('byte_fallback')
    ? pieceDrafts(model, common, config)
    : byteLevelDrafts(root, model, config, notes);
  for (const own of drafts) {
    const keys = new Map([...own, ...common]);
    if (sameTokens(tokenizer, keys, notes)) return { keys: withEnds(keys, config, notes), notes };
  }
  const next = 'Load the model from its HuggingFace files, or leave the vocabulary out: --no-vocabulary.';
  return fail('UNSUPPORTED', where, `a GGUF does not say how it cuts text: other tokens come back. ${next}`);
}

/** Returns the model's name. llama.cpp strips white space to the right of tokens if the name has Phi-3 in it. */
function nameFor(name: string, root: Fields, { family }: DecoderConfig, notes: string[]): string {
  const strips = addedOf(root).some((token) => token.flag('rstrip'));
  const named = /phi-?3/i.test(name);
  if (strips && family.gguf === 'phi3') return named ? name : `${name} (Phi-3)`;
  if (strips) notes.push('Some added tokens take white space to their right; a GGUF does not say it.');
  return named ? name.replaceAll(/phi-?3/gi, 'phi 3') : name;
}

const addedOf = (root: Fields): readonly Fields[] =>
  root.optionalList('added_tokens')?.length ? root.objects('added_tokens') : [];

type Keys = Map<string, TypedValue>;

const key = (name: string): string => `tokenizer.ggml.${name}`;
const id = (value: number): TypedValue => ({ type: 'u32', value });
const flag = (value: boolean): TypedValue => ({ type: 'bool', value });
const text = (value: string): TypedValue => ({ type: 'string', value });
const keysOf = (values: Readonly<Record<string, TypedValue>>): Keys =>
  new Map(Object.entries(values).map(([name, value]) => [key(name), value]));

/** Writes tokens, their types, ids and templates. */
function commonKeys(tokenizer: Tokenizer, root: Fields, { vocabSize, eosTokens }: DecoderConfig, named: Fields): Keys {
  const model: Fields = root.object('model');
  const added = new Map<number, boolean>();
  for (const token of addedOf(root)) added.set(token.integer('id'), token.flag('special'));
  const unknown = model.optionalText('unk_token');
  const pieces = model.flag('byte_fallback');
  const [tokens, types]: [string[], number[]] = [[], []];
  for (let n = 0; n < vocabSize; n++) {
    const own = tokenizer.tokenText(n);
    const special = added.get(n);
    tokens.push(own ?? `[PAD${n}]`);
    if (own === undefined) types.push(TYPE.unused);
    else if (pieces && own === unknown) types.push(TYPE.unknown);
    else if (special !== undefined) types.push(special ? TYPE.control : TYPE.userDefined);
    else types.push(pieces && /^<0x[0-9A-F]{2}>$/.test(own) ? TYPE.byte : TYPE.normal);
  }
  const idOf = (name: string): number | undefined => {
    const raw = named.raw(name);
    const content = typeof raw === 'object' ? named.object(name).optionalText('content') : named.optionalText(name);
    const at = content === undefined ? -1 : tokens.indexOf(content);
    return at < 0 ? undefined : at;
  };
  const tokenIds = {
    bos: tokenizer.bosToken,
    eos: tokenizer.eosTokens[0] ?? eosTokens[0],
    unknown: unknown === undefined ? undefined : tokens.indexOf(unknown),
    padding: idOf('pad_token'),
  };
  const keys: Keys = new Map([
    [key('tokens'), { type: 'string', value: tokens, array: true }],
    [key('token_type'), { type: 'i32', value: types, array: true }],
  ]);
  for (const [name, value] of Object.entries(tokenIds))
    if (value !== undefined && value >= 0) keys.set(key(`${name}_token_id`), id(value));
  keys.set(key('add_bos_token'), flag(tokenizer.addBos));
  keys.set(key('add_eos_token'), flag(tokenizer.addEos));
  const others = [...tokenizer.chatTemplates.keys()].filter((name) => name !== 'default');
  for (const [name, template] of tokenizer.chatTemplates)
    keys.set(name === 'default' ? 'tokenizer.chat_template' : `tokenizer.chat_template.${name}`, text(template));
  if (others.length > 0) keys.set('tokenizer.chat_templates', { type: 'string', value: others, array: true });
  return keys;
}

/** Writes byte-level BPE, once for each of llama.cpp's pre-tokenizers that cut the texts alike. */
function byteLevelDrafts(root: Fields, model: Fields, { family }: DecoderConfig, notes: string[]): Keys[] {
  const normalizer = root.optionalObject('normalizer');
  if (normalizer && normalizer.raw('type') !== 'NFC')
    normalizer.refuse('UNSUPPORTED', 'type', 'none or NFC', 'llama.cpp normalises no text of byte-level BPE.');
  if (normalizer) notes.push('llama.cpp does not bring a text to Unicode form NFC first, as this tokenizer does.');
  const own = readSteps(new Fields({ pre_tokenizer: root.raw('pre_tokenizer') ?? null }, root.where));
  const ignoreMerges = model.flag('ignore_merges');
  const cut = (steps: typeof own): string => JSON.stringify(TEXTS.map((one) => steps.split(one, 0)));
  const wanted = cut(own);
  const alike = PRE_TOKENIZERS.filter(
    ([, row]) =>
      (row.ignoreMerges ?? false) === ignoreMerges &&
      cut(readSteps(new Fields({ pre_tokenizer: preTokenizerStep(row) }, root.where))) === wanted,
  );
  const joined = readMerges(model, 'merges').map((merge) => merge.join(' '));
  const merges: TypedValue = { type: 'string', value: joined, array: true };
  const names = alike.flatMap(([all]) => {
    const list = all.split(' ');
    // If a row has several names, the one that is like the family's is taken.
    return list.find((name) => family.gguf.startsWith(name.replace(/-bpe$/, ''))) ?? list[0]!;
  });
  return names.map((pre) => keysOf({ model: text('gpt2'), pre: text(pre), merges }));
}

/** Writes SentencePiece's BPE, with and without a space before a text, with scores in the order of the merges. */
function pieceDrafts(model: Fields, common: Keys, { family }: DecoderConfig): Keys[] {
  const merges = readMerges(model, 'merges');
  // Gemma 4's files have the merges themselves.
  if (family.gguf === 'gemma4') {
    const joined: TypedValue = { type: 'string', value: merges.map((merge) => merge.join(' ')), array: true };
    return [keysOf({ model: text('gemma4'), merges: joined, add_space_prefix: flag(false) })];
  }
  const tokens = common.get(key('tokens'))!.value as string[];
  const scores = new Map<string, number>();
  for (const [left, right] of merges) {
    const piece = left + right;
    if (!scores.has(piece)) scores.set(piece, -scores.size);
  }
  const lowest = -scores.size - 1;
  const types = common.get(key('token_type'))!.value as number[];
  // Pieces that no merge makes are single characters; control tokens and bytes have no score.
  const scoreOf = (piece: string, n: number): number =>
    scores.get(piece) ?? (types[n] === TYPE.normal ? lowest - n / tokens.length : 0);
  const list: TypedValue = { type: 'f32', value: tokens.map(scoreOf), array: true };
  const same = { model: text('llama'), pre: text('default'), scores: list };
  const drafts = [true, false].map((spaceFirst) =>
    keysOf({ ...same, add_space_prefix: flag(spaceFirst), remove_extra_whitespaces: flag(false) }),
  );
  const { tokenizer } = tokenizerJsonFromGguf(valuesOf(new Map([...drafts[0]!, ...common])), 1, model.where);
  const back = (tokenizer.model as { merges: [string, string][] }).merges;
  // Other tokens are cut out of a text before it is joined.
  const normal = new Set(tokens.filter((_, n) => types[n] === TYPE.normal));
  const made = (list: readonly [string, string][]): string =>
    ordered(list.filter(([left, right]) => normal.has(left + right)));
  if (made(back) !== made(merges)) {
    const sentence = "they are not those of SentencePiece's scores, which a GGUF has.";
    model.fail('UNSUPPORTED', 'merges', `${sentence} Load the model from its HuggingFace files.`);
  }
  return drafts;
}

/** Lists the pieces that merges make, in order, and the ways to make each. */
function ordered(merges: readonly (readonly [string, string])[]): string {
  const groups: string[][] = [];
  let last: string | undefined;
  for (const [left, right] of merges) {
    if (left + right !== last) groups.push([]);
    last = left + right;
    groups.at(-1)!.push(`${left} ${right}`);
  }
  return JSON.stringify(groups.map((ways) => ways.sort()));
}

/** Whether texts become the same tokens. The tokens around a text are compared apart. */
function sameTokens(own: Tokenizer, keys: Keys, notes: string[]): boolean {
  const back = tokenizerFromGguf(valuesOf(keys), 'gguf');
  const unknown = keys.get(key('unknown_token_id'))?.value;
  const inner = (tokenizer: Tokenizer, one: string): string => {
    const [ids, around] = [tokenizer.encode(one), tokenizer.encode('')];
    const before = around.findIndex((token, n) => ids[n] !== token);
    const prefix = before < 0 ? around.length : before;
    const list = ids.slice(prefix, ids.length - (around.length - prefix));
    // Several characters that are in no piece are one token or several.
    return String(list.filter((token, n) => token !== unknown || list[n - 1] !== unknown));
  };
  if (TEXTS.some((one) => inner(own, one) !== inner(back, one))) return false;
  const around = own.encode('');
  if (String(around) !== String(back.encode(''))) {
    const named = around.map((token) => show(own.tokenText(token)));
    notes.push(`This tokenizer puts ${named.join(', ') || 'nothing'} around a text; a GGUF says BOS and EOS only.`);
  }
  return TEXTS.every((one) => own.decode(own.encode(one)) === back.decode(own.encode(one)));
}

/** Adds ends of a turn that generation_config.json names, and that llama.cpp would not know by their text. */
function withEnds(keys: Keys, { eosTokens }: DecoderConfig, notes: string[]): Keys {
  const known = tokenizerFromGguf(valuesOf(keys), 'gguf').eosTokens;
  const [eot, eom, ...more] = eosTokens.filter((token) => !known.includes(token));
  if (eot !== undefined) keys.set(key('eot_token_id'), id(eot));
  if (eom !== undefined) keys.set(key('eom_token_id'), id(eom));
  if (more.length > 0) notes.push(`Tokens ${more.join(', ')} end a turn too; a GGUF has no key for them.`);
  return keys;
}
