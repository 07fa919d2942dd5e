/**
 * Where a long text can be cut before merges are looked for, without changing a token.
 *
 * A merge joins across a place only if its left part ends with the character before that place and its right part begins with the one after
 * it. Where no merge of the vocabulary does, both sides are segmented alike whether they stand together or apart. SentencePiece-style
 * vocabularies have no pre-tokenizer, so a whole book is one word to them; nothing in them joins a letter to the space after it.
 *
 * @module
 */

/** Shorter words are cheap as they are. */
const LONG_WORD = 256;

/**
 * Makes the cutter of a vocabulary.
 *
 * @param merges - all of them, left and right part
 * @returns cuts a word wherever no merge joins; joined, the pieces are the word
 */
export function cutterOf(merges: readonly (readonly [string, string])[]): (word: string) => readonly string[] {
  let joined: Set<string> | undefined; // made for the first long word: most vocabularies never see one
  return (word) => {
    if (word.length < LONG_WORD) return [word];
    joined ??= new Set(merges.map(([left, right]) => (Array.from(left).at(-1) ?? '') + (Array.from(right)[0] ?? '')));
    const pieces: string[] = [];
    let start = 0;
    let at = 0;
    let before = '';
    for (const character of word) {
      if (at > 0 && !joined.has(before + character)) {
        pieces.push(word.slice(start, at));
        start = at;
      }
      before = character;
      at += character.length;
    }
    pieces.push(word.slice(start));
    return pieces;
  };
}
