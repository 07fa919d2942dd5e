/**
 * Finds the places where a long text can be cut before merging, without changing a token.
 *
 * A merge joins across a place only if its left part ends with the character before the place, and its right part
 * begins with the character after it. At a place without such a merge, both sides give the same tokens together and
 * apart. SentencePiece vocabularies have no pre-tokenizer, so a whole book is one word to them; but they never join a
 * letter to the space after it.
 *
 * @module
 */

/** Shorter words are not cut. */
const LONG_WORD = 256;

/** Makes a function that cuts a word wherever no merge joins. The pieces together are the word. */
export function cutterOf(merges: readonly (readonly [string, string])[]): (word: string) => readonly string[] {
  let joined: Set<string> | undefined; // made for the first long word, which most vocabularies never see
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
