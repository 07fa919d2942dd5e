"""A byte-fallback BPE in SentencePiece's Llama style: training, segmentation two ways, files.

The piece inventory, in id order: `<unk> <s> </s>`, the 256 bytes `<0x00>`..`<0xFF>`, the merged
pieces in the order they were learned, then the single characters. "▁" stands for a space; a text
gets one in front. A piece holds "▁" only as its first character, and never mixes letters with
other signs, so pieces do not cross words.

Two segmentations that must agree (test_training.py):
  - by rank, what HuggingFace's `tokenizers` does with `tokenizer.json`: apply the listed merge of
    the lowest rank first, leftmost first;
  - by score, what SentencePiece and llama.cpp do with a GGUF: join the two neighbours whose
    joined piece has the highest score, leftmost first.
Every way to split a piece in two is listed as a merge, at the piece's own place in the order, and
no piece can be made in two overlapping places with the later place first (`periodic`); that the two
then agree is not proved but tested, on the whole held-back text and on random strings.
"""

import heapq
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

SPACE = "\u2581"  # ▁
UNK, BOS, EOS, FIRST_BYTE = 0, 1, 2, 3
FIRST_PIECE = FIRST_BYTE + 256
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # GGUF token types, as SentencePiece numbers them


def normalise(text: str) -> str:
    """The text as the model sees it: one "▁" in front, spaces as "▁"; an empty text stays empty."""
    return (SPACE + text).replace(" ", SPACE) if text else ""


# A word of the training text: at most one leading ▁, then letters, digits or other signs, unmixed.
WORD = re.compile(r"▁?(?:[^\W\d_]+|\d|[^\w\s▁]+|_)|▁|\s|.", re.DOTALL)


def periodic(piece: str) -> bool:
    """Whether the piece overlaps itself by more than its half ("---", "......").

    Neighbours x, y, z with xy == yz == piece can be joined on the left or on the right. By score the
    left wins; by rank the longer left part wins, because splits are listed longest left part first.
    That is the same choice unless y is longer than x, which is what this excludes.
    """
    return any(piece.startswith(piece[shift:]) for shift in range(1, (len(piece) + 1) // 2))


def train(text: str, vocab_size: int, min_char_count: int = 40) -> list[str]:
    """Learns the pieces after the bytes. Of equal pairs the one that sorts last wins, so no seed
    is needed. A text too small for `vocab_size` gives fewer pieces."""
    char_counts = Counter(normalise(text))
    chars = sorted((c for c, n in char_counts.items() if n >= min_char_count and c not in "\n\f"),
                   key=lambda c: (-char_counts[c], c))  # fmt: skip
    known = set(chars)
    words = Counter(WORD.findall(normalise(text)))
    split = {w: tuple(w) for w in words if set(w) <= known and len(w) > 1}
    pairs: Counter = Counter()
    where = defaultdict(set)
    for w, symbols in split.items():
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += words[w]
            where[pair].add(w)
    merges: list[str] = []
    seen = set(chars)
    while FIRST_PIECE + len(merges) + len(chars) < vocab_size:
        best = max((p for p in pairs if pairs[p] > 0 and not periodic("".join(p))),
                   key=lambda p: (pairs[p], p[1], p[0]), default=None)  # fmt: skip
        if best is None:
            break  # every word is one piece: the text is too small for so many
        piece = "".join(best)
        for w in sorted(where[best]):
            old = split[w]
            new, i = [], 0
            while i < len(old):
                if i + 1 < len(old) and (old[i], old[i + 1]) == best:
                    new.append(piece)
                    i += 2
                else:
                    new.append(old[i])
                    i += 1
            for pair in zip(old, old[1:]):
                pairs[pair] -= words[w]
            for pair in zip(new, new[1:]):
                pairs[pair] += words[w]
                where[pair].add(w)
            split[w] = tuple(new)
        pairs.pop(best, None)
        if piece not in seen:
            seen.add(piece)
            merges.append(piece)
    return merges + chars


class Tokenizer:
    """Segments text by rank or by score, and turns ids back into bytes."""

    def __init__(self, tokens: list[str], scores: list[float], merges: list[tuple[str, str]]):
        self.tokens = tokens
        self.scores = scores
        self.merges = merges
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.rank = {pair: rank for rank, pair in enumerate(merges)}
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def from_pieces(cls, pieces: list[str]) -> "Tokenizer":
        """From the pieces after the bytes, in id order (what {train} returns)."""
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces
        scores = [0.0] * FIRST_PIECE + [-float(i) for i in range(len(pieces))]
        known = set(pieces)
        merges = [(p[:cut], p[cut:]) for p in pieces for cut in range(len(p) - 1, 0, -1)
                  if p[:cut] in known and p[cut:] in known]  # fmt: skip
        return cls(tokens, scores, merges)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """From the `tokenizer.json` that {save} writes; scores are rebuilt from the id order."""
        vocab = json.loads(path.read_text("utf-8"))["model"]["vocab"]
        return cls.from_pieces([t for t, i in sorted(vocab.items(), key=lambda e: e[1]) if i >= FIRST_PIECE])

    def __len__(self) -> int:
        return len(self.tokens)

    def types(self) -> list[int]:
        return [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(self.tokens) - FIRST_PIECE)

    # ---- text to ids -----------------------------------------------------------------------------

    def _symbols(self, text: str) -> list[str]:
        """Single characters, or `<0xNN>` bytes for what the vocabulary lacks. Lone bytes come as
        surrogates (Python's "surrogateescape") and become the byte they stand for."""
        out = []
        for c in normalise(text):
            if c in self.ids:
                out.append(c)
            else:
                out.extend(f"<0x{b:02X}>" for b in c.encode("utf-8", "surrogateescape"))
        return out

    def _join(self, symbols: list[str], order) -> list[int]:
        """Joins neighbours in the order of `order(left, right)` (smallest first, then leftmost)."""
        piece: list[str | None] = list(symbols)
        left = list(range(-1, len(piece) - 1))
        right = list(range(1, len(piece) + 1))
        heap: list[tuple] = []

        def offer(i: int, j: int) -> None:
            if i < 0 or j >= len(piece):
                return
            key = order(piece[i], piece[j])
            if key is not None:
                heapq.heappush(heap, (key, i, j, piece[i], piece[j]))

        for i in range(len(piece) - 1):
            offer(i, i + 1)
        while heap:
            _, i, j, a, b = heapq.heappop(heap)
            if piece[i] != a or piece[j] != b or right[i] != j:
                continue  # one of the two has been joined to another since
            piece[i], piece[j] = a + b, None
            right[i] = right[j]
            if right[j] < len(piece):
                left[right[j]] = i
            offer(left[i], i)
            offer(i, right[i])
        return [self.ids[p] for p in piece if p is not None]

    def encode_by_rank(self, text: str) -> list[int]:
        """Ids without BOS, by merge ranks over the whole text (HuggingFace)."""
        return self._join(self._symbols(text), lambda a, b: self.rank.get((a, b)))

    def encode_by_score(self, text: str) -> list[int]:
        """Ids without BOS, by scores over the whole text (SentencePiece, llama.cpp)."""

        def order(a: str, b: str):
            i = self.ids.get(a + b)
            return None if i is None or i < FIRST_PIECE else -self.scores[i]

        return self._join(self._symbols(text), order)

    def encode(self, text: str) -> list[int]:
        """The same ids as {encode_by_rank}, word by word with a cache: no piece has "▁" after its
        first character, so nothing joins across one."""
        out: list[int] = []
        for word in re.findall(f"{SPACE}[^{SPACE}]*|^[^{SPACE}]+", normalise(text)):
            ids = self._cache.get(word)
            if ids is None:
                symbols = [s for c in word for s in self._symbols_of(c)]
                ids = self._cache[word] = self._join(symbols, lambda a, b: self.rank.get((a, b)))
            out.extend(ids)
        return out

    def _symbols_of(self, c: str) -> list[str]:
        return [c] if c in self.ids else [f"<0x{b:02X}>" for b in c.encode("utf-8", "surrogateescape")]

    # ---- ids to text -----------------------------------------------------------------------------

    def bytes_of(self, i: int) -> bytes:
        if i < FIRST_BYTE:
            return b""
        if i < FIRST_PIECE:
            return bytes([i - FIRST_BYTE])
        return self.tokens[i].replace(SPACE, " ").encode("utf-8")

    def decode(self, ids: list[int]) -> bytes:
        """The bytes of `ids`, less the one space that {normalise} put in front."""
        data = b"".join(self.bytes_of(i) for i in ids)
        return data[1:] if data.startswith(b" ") else data

    # ---- files -----------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json` for HuggingFace."""
        special = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                    "normalized": False, "special": True} for i, t in enumerate(self.tokens[:3])]  # fmt: skip
        bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
        tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": special,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]},
            "pre_tokenizer": None,
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}},
                         {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": self.ids, "merges": [f"{a} {b}" for a, b in self.merges]},
        }  # fmt: skip
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, indent=1) + "\n", "utf-8")
        config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                  "add_bos_token": True, "add_eos_token": False, "legacy": True,
                  "clean_up_tokenization_spaces": False, "model_max_length": 256}  # fmt: skip
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
