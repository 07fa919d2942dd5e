/**
 * SentencePiece's BPE by scores, as GGUF files of the "llama" vocabulary carry it: tokens and scores, no merges.
 *
 * Neighbours whose joined text is a token are joined: the highest score first, and of equal scores the leftmost. A
 * character that is not a token becomes its bytes.
 *
 * @module
 * @see ggml-org/llama.cpp@00ad355 src/llama-vocab.cpp, llm_tokenizer_spm_session
 */

/** The mark of a space, U+2581, by number: a page without `<meta charset>` would misread the character. */
export const SPACE: string = /* @__PURE__ */ String.fromCodePoint(0x2581);

/** The vocabulary, as segmentation needs it. */
interface ScoredVocabulary {
  readonly ids: ReadonlyMap<string, number>;
  readonly scores: Float32Array;
  /** Returns the token of a byte, or the unknown token. */
  byteToken(byte: number): number;
}

interface Join {
  readonly left: number;
  readonly right: number;
  readonly score: number;
  /** The UTF-16 units of both sides. If they differ later, one side has changed. */
  readonly units: number;
}

const utf8 = /* @__PURE__ */ new TextEncoder();

/** Segments a text whose spaces are U+2581, in n log n time. */
export function segmentByScores(text: string, { ids, scores, byteToken }: ScoredVocabulary): number[] {
  const symbols = Array.from(text, (character, n) => ({ text: character, previous: n - 1, next: n + 1 }));
  if (symbols.length === 0) return [];
  symbols.at(-1)!.next = -1;
  const queue = new JoinQueue();
  const offer = (left: number, right: number): void => {
    if (left < 0 || right < 0) return;
    const joined = symbols[left]!.text + symbols[right]!.text;
    const id = ids.get(joined);
    if (id !== undefined) queue.push({ left, right, score: scores[id]!, units: joined.length });
  };
  for (let n = 1; n < symbols.length; n++) offer(n - 1, n);
  for (let join = queue.pop(); join; join = queue.pop()) {
    const left = symbols[join.left]!;
    const right = symbols[join.right]!;
    if (left.text === '' || right.text === '' || left.text.length + right.text.length !== join.units) continue;
    left.text += right.text;
    right.text = '';
    left.next = right.next;
    if (right.next >= 0) symbols[right.next]!.previous = join.left;
    offer(left.previous, join.left);
    offer(join.left, left.next);
  }
  const tokens: number[] = [];
  for (let n = 0; n >= 0; n = symbols[n]!.next) {
    const id = ids.get(symbols[n]!.text);
    if (id !== undefined) tokens.push(id);
    else for (const byte of utf8.encode(symbols[n]!.text)) tokens.push(byteToken(byte));
  }
  return tokens;
}

/** A binary heap with the highest score on top, and the leftmost of equal scores. */
class JoinQueue {
  readonly #heap: Join[] = [];

  push(join: Join): void {
    const heap = this.#heap;
    let at = heap.push(join) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(join, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = join;
  }

  pop(): Join | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    if (top === undefined || last === undefined || heap.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++;
      if (!before(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return top;
  }
}

function before(a: Join, b: Join): boolean {
  return a.score > b.score || (a.score === b.score && a.left < b.left);
}
