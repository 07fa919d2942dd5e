/**
 * SentencePiece's Unigram: of all ways to write a text as pieces, the one with the highest sum of scores (Viterbi). A
 * character that is not a piece costs ten more than the lowest score. Unknown neighbours become one.
 *
 * @module
 * @see Kudo 2018, arXiv:1804.10959; huggingface/tokenizers@284a1db tokenizers/src/models/unigram/model.rs and
 *   ggml-org/llama.cpp@00ad355 src/llama-vocab.cpp, llm_tokenizer_ugm_session, which agree
 */
import { fail, refuse } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';

/** SentencePiece's pieces have at most 16 characters; runs of spaces in files of other tools have some hundreds. */
export const MAX_PIECE = 1024;
/** The cost of an unknown character beyond the lowest score: kUnkPenalty of SentencePiece. */
export const UNKNOWN_PENALTY = 10;

export interface UnigramPiece {
  readonly text: string;
  readonly id: number;
  readonly score: number;
}

/** A stretch of a text: a piece, or characters that are none. */
export interface Stretch {
  readonly text: string;
  /** Undefined for unknown characters. */
  readonly id: number | undefined;
}

/**
 * Makes the segmenter of a vocabulary, which takes n · (length of the longest pieces) steps for n characters.
 *
 * @param unknownScore - of a character that is not a piece
 * @param unknown - the unknown token; without it a text with unknown characters is refused
 * @throws {RopewalkError} FORMAT for a piece of more than 1024 characters
 */
export function unigramOf(
  pieces: readonly UnigramPiece[],
  unknownScore: number,
  unknown: number | undefined,
  where: string,
): (text: string) => Stretch[] {
  // In sorted order, pieces with the same start are neighbours, as in a trie.
  const sorted = pieces.filter(({ text }) => text !== '').sort((a, b) => (a.text < b.text ? -1 : 1));
  for (const { text } of sorted)
    if (text.length > MAX_PIECE)
      refuse('FORMAT', where, `pieces of at most ${MAX_PIECE} characters`, text.length, 'The file is forged.');

  /** Finds the first piece in [low, high), alike up to `depth`, whose next unit is at least `unit`. */
  const bound = (low: number, high: number, depth: number, unit: number): number => {
    while (low < high) {
      const middle = (low + high) >> 1;
      // NaN, the end of a piece, comes before all units.
      if (sorted[middle]!.text.charCodeAt(depth) >= unit) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  return (text) => {
    const best = new Float64Array(text.length + 1).fill(-Infinity);
    best[0] = 0;
    /** For each place: the start of the last piece before it, and the piece's number in `sorted`, or -1 for unknown. */
    const from = new Int32Array(text.length + 1);
    const last = new Int32Array(text.length + 1);
    const offer = (start: number, end: number, score: number, piece: number): void => {
      const sum = best[start]! + score;
      if (!(sum > best[end]!)) return;
      best[end] = sum;
      from[end] = start;
      last[end] = piece;
    };
    for (let at = 0; at < text.length; ) {
      const next = at + (text.codePointAt(at)! > 0xffff ? 2 : 1);
      let [low, high] = [0, sorted.length];
      let known = false;
      for (let end = at; end < text.length; ) {
        const [depth, unit] = [end - at, text.charCodeAt(end)];
        low = bound(low, high, depth, unit);
        high = bound(low, high, depth, unit + 1);
        if (low === high) break;
        end++;
        const piece = sorted[low]!;
        if (piece.text.length !== end - at) continue;
        offer(at, end, piece.score, piece.id === unknown ? -1 : low);
        known ||= end === next;
      }
      if (!known) {
        if (unknown === undefined)
          fail('FORMAT', where, `there is no token for ${show(text.slice(at, next))}, and no unknown token`);
        offer(at, next, unknownScore, -1);
      }
      at = next;
    }
    const stretches: { text: string; id: number | undefined }[] = [];
    for (let end = text.length; end > 0; ) {
      let start = from[end]!;
      while (last[end] === -1 && start > 0 && last[start] === -1) start = from[start]!;
      stretches.push({ text: text.slice(start, end), id: sorted[last[end]!]?.id });
      end = start;
    }
    return stretches.reverse();
  };
}
