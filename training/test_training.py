#!/usr/bin/python3
"""Tests of the training folder: no checkpoint and no training text needed, PyTorch only where it is the subject.

    /usr/bin/python3 -m unittest discover -s training -v
"""

import json
import math
import random
import tempfile
import unittest
from pathlib import Path

import numpy as np

import files
from ngram import SMOOTHINGS, NGram
from tokenizer import FIRST_PIECE, Tokenizer, periodic, train

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "models" / "marline"
STORIES = HERE.parent / "test" / "fixtures" / "models" / "stories260K"
HELD_BACK = (HERE / "held-back.txt").read_bytes()


class TokenizerTest(unittest.TestCase):
    def setUp(self):
        self.tok = Tokenizer.load(MODEL / "tokenizer.json")

    def test_rank_and_score_agree_on_the_whole_held_back_text(self):
        text = HELD_BACK.decode("utf-8")
        by_rank = self.tok.encode_by_rank(text)
        self.assertEqual(by_rank, self.tok.encode_by_score(text))
        self.assertEqual(by_rank, self.tok.encode(text))
        self.assertEqual(self.tok.decode(by_rank), HELD_BACK)

    def test_rank_and_score_agree_on_random_strings(self):
        rng = random.Random(7)
        pieces = [t.replace("\u2581", " ") for t in self.tok.tokens[FIRST_PIECE:]]
        for _ in range(3000):
            joined = "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 12)))
            letters = "".join(rng.choice("that e-.!\"ing\n") for _ in range(rng.randrange(1, 40)))
            for text in (joined, letters):
                self.assertEqual(self.tok.encode_by_rank(text), self.tok.encode_by_score(text), repr(text))
                self.assertEqual(self.tok.encode_by_rank(text), self.tok.encode(text), repr(text))

    def test_the_order_of_merges_matters(self):
        # Were ranks or scores ignored, these words would come out otherwise than they do.
        flat = Tokenizer(self.tok.tokens, [0.0] * len(self.tok), self.tok.merges)
        text = HELD_BACK[:4000].decode("utf-8", "ignore")
        self.assertNotEqual(flat.encode_by_score(text), self.tok.encode_by_score(text))

    def test_any_text_and_any_bytes_round_trip(self):
        rng = random.Random(11)
        texts = ["", " ", "  ", "\n", " a", "a ", "na\u00efve \u2014 \U0001f433\r\n\tx", "\x00\x7f", "\ud7ff\ue000\U0010ffff"]
        for text in texts:
            self.assertEqual(self.tok.decode(self.tok.encode(text)), text.encode("utf-8"), repr(text))
        for _ in range(300):
            data = bytes(rng.randrange(256) for _ in range(rng.randrange(40))).replace(b"\xe2\x96\x81", b"")
            text = data.decode("utf-8", "surrogateescape")  # lone bytes become surrogates
            for encode in (self.tok.encode, self.tok.encode_by_rank, self.tok.encode_by_score):
                self.assertEqual(self.tok.decode(encode(text)), data)

    def test_the_one_text_that_does_not_round_trip(self):
        # "▁" stands for a space, so its own character comes back as one: SentencePiece's limit too.
        self.assertEqual(self.tok.decode(self.tok.encode("a\u2581b")), b"a b")

    def test_periodic_pieces(self):
        for piece, want in (("---", True), ("ababab", True), ("abcab", False), ("that", False), ("--", False), ("ab", False)):
            self.assertEqual(periodic(piece), want, piece)
        self.assertFalse([t for t in self.tok.tokens[FIRST_PIECE:] if periodic(t)])

    def test_training_is_deterministic_and_breaks_ties(self):
        text = "the cat and the hat and the bat sat at that mat\n" * 50
        pieces = train(text, 280, min_char_count=1)
        self.assertEqual(pieces, train(text, 280, min_char_count=1))
        self.assertEqual(len(pieces), 280 - FIRST_PIECE)
        self.assertLess(len(train(text, 1024, min_char_count=1)), 100)  # the text runs out of pairs
        self.assertEqual(len(set(pieces)), len(pieces))
        self.assertIn("at", pieces)


class FilesTest(unittest.TestCase):
    def test_q8_0_rounds_half_away_from_zero(self):
        x = np.zeros((1, 32), np.float32)
        x[0, :6] = [127, 0.5, -0.5, 2.5, -2.5, 1.4999999]
        block = np.frombuffer(files.quantise_q8_0(x), dtype=[("d", "<f2"), ("q", "i1", 32)])[0]
        self.assertEqual(float(block["d"]), 1.0)
        self.assertEqual(block["q"][:6].tolist(), [127, 1, -1, 3, -3, 1])

    def test_q8_0_error_and_zero_blocks(self):
        x = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)
        x[2] = 0
        y = files.dequantise_q8_0(files.quantise_q8_0(x), x.shape)
        limit = np.abs(x).reshape(-1, 32).max(axis=1, keepdims=True) / 127 * (0.5 + 127 * 2.0**-11)
        self.assertTrue(np.all(np.abs(x - y).reshape(-1, 32) <= limit + 1e-7))
        self.assertTrue(np.all(y[2] == 0))
        with self.assertRaises(AssertionError):
            files.quantise_q8_0(np.zeros((2, 33), np.float32))

    def test_q8_0_as_others_made_it(self):
        _, exact, _ = files.read_gguf(STORIES / "model-f32.gguf")
        _, theirs, types = files.read_gguf(STORIES / "model-q8_0.gguf")
        compared = 0
        for name, kind in types.items():
            if kind == files.Q8_0:
                ours = files.dequantise_q8_0(files.quantise_q8_0(exact[name]), exact[name].shape)
                np.testing.assert_array_equal(ours, theirs[name], name)
                compared += 1
        self.assertGreater(compared, 20)

    def test_gguf_round_trip(self):
        rng = np.random.default_rng(5)
        tensors = {"a": (files.F32, rng.standard_normal(7).astype(np.float32)),
                   "b": (files.F16, rng.standard_normal((3, 5)).astype(np.float16)),
                   "c": (files.Q8_0, rng.standard_normal((2, 64)).astype(np.float32))}  # fmt: skip
        metadata = [("general.architecture", files.STRING, "llama"), ("x.count", files.U32, 9),
                    ("x.base", files.FLOAT32, 0.5), ("x.flag", files.BOOL, True),
                    ("x.names", files.ARRAY, files.STRING, ["\u2581a", "", "b"])]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.gguf"
            files.write_gguf(path, metadata, tensors)
            meta, back, types = files.read_gguf(path)
        self.assertEqual(meta, {"general.architecture": "llama", "x.count": 9, "x.base": 0.5, "x.flag": True,
                                "x.names": ["\u2581a", "", "b"]})  # fmt: skip
        np.testing.assert_array_equal(back["a"], tensors["a"][1])
        np.testing.assert_array_equal(back["b"], tensors["b"][1].astype(np.float32))
        self.assertEqual(back["c"].shape, (2, 64))
        self.assertEqual(types, {"a": files.F32, "b": files.F16, "c": files.Q8_0})

    def test_the_models_files_fit_the_box(self):
        total = sum(p.stat().st_size for p in MODEL.parent.rglob("*") if p.is_file())
        self.assertLessEqual(total, 6_000_000)

    def test_the_stored_files(self):
        meta, gguf, types = files.read_gguf(MODEL / "model-q8_0.gguf")
        config = json.loads((MODEL / "config.json").read_text())
        tensors = files.read_safetensors(MODEL / "model.safetensors")
        parameters = sum(t.size for t in tensors.values())
        self.assertEqual(parameters, sum(t.size for t in gguf.values()))
        self.assertTrue(all(t.dtype == np.float16 and np.isfinite(t).all() for t in tensors.values()))
        self.assertTrue(all((kind == files.Q8_0) == (gguf[name].ndim == 2) for name, kind in types.items()))
        for key, want in (("block_count", "num_hidden_layers"), ("embedding_length", "hidden_size"),
                          ("attention.head_count", "num_attention_heads"), ("feed_forward_length", "intermediate_size"),
                          ("attention.head_count_kv", "num_key_value_heads"), ("rope.freq_base", "rope_theta"),
                          ("rope.dimension_count", "head_dim"), ("context_length", "max_position_embeddings")):  # fmt: skip
            self.assertEqual(meta[f"llama.{key}"], config[want], key)


class NGramTest(unittest.TestCase):
    def test_probabilities_sum_to_one(self):
        text = HELD_BACK[:20000]
        for smoothing in SMOOTHINGS:
            for order in (1, 2, 5, 8):
                model = NGram(text, order, smoothing)
                for context in (b"", b"t", b"and t", b"\xff\xfe\xfd\xfc", b"the whale"):
                    total = sum(model.probabilities(context + bytes([b]))[-1] for b in range(256))
                    self.assertAlmostEqual(total, 1, places=9, msg=f"{smoothing} {order} {context!r}")

    def test_kneser_ney_by_hand(self):
        # "abab c": order 1 counts distinct left neighbours; checked against a dictionary version.
        text = b"abracadabra abracadabra, a cab and a crab"
        model = NGram(text, 2, "kneser-ney")
        bigrams: dict[bytes, int] = {}
        for i in range(len(text) - 1):
            bigrams[text[i : i + 2]] = bigrams.get(text[i : i + 2], 0) + 1
        left: dict[int, int] = {}
        for pair in bigrams:
            left[pair[1]] = left.get(pair[1], 0) + 1

        def discount(counts):
            n = [max(1, sum(c == k for c in counts)) for k in (1, 2, 3, 4)]
            y = n[0] / (n[0] + 2 * n[1])
            raw = [0, 1 - 2 * y * n[1] / n[0], 2 - 3 * y * n[2] / n[1], 3 - 4 * y * n[3] / n[2]]
            return [min(max(d, 0), m) for m, d in enumerate(raw)]

        d1, d2 = discount(list(left.values())), discount(list(bigrams.values()))
        sum1 = sum(left.values())
        back1 = sum(d1[min(c, 3)] for c in left.values()) / sum1

        def p1(w):
            c = left.get(w, 0)
            return (c - d1[min(c, 3)]) / sum1 + back1 / 256

        def p2(h, w):
            row = {k: c for k, c in bigrams.items() if k[0] == h}
            c = row.get(bytes([h, w]), 0)
            return (c - d2[min(c, 3)]) / sum(row.values()) + sum(d2[min(x, 3)] for x in row.values()) / sum(row.values()) * p1(w)

        for h, w in ((b"a", b"b"), (b"r", b"a"), (b"a", b"z"), (b"c", b"r")):
            self.assertAlmostEqual(model.probabilities(h + w)[1], p2(h[0], w[0]), places=12)

    def test_a_longer_context_helps_and_empty_text_is_no_crash(self):
        half = len(HELD_BACK) // 2
        train_part, rest = HELD_BACK[:half], HELD_BACK[half:]
        costs = [NGram(train_part, order, "kneser-ney").bits_per_byte(rest) for order in (1, 2, 3)]
        self.assertTrue(costs[0] > costs[1] > costs[2], costs)
        self.assertEqual(len(NGram(train_part, 3, "absolute").probabilities(b"")), 0)


class DataTest(unittest.TestCase):
    def test_results_say_that_the_model_beats_the_ngram(self):
        results = json.loads((HERE / "results.json").read_text())
        bar = results["ngram"]["bar_order_5"]["held_back_bits_per_byte"]
        self.assertEqual(results["held_back"]["bytes"], len(HELD_BACK))
        for name, row in results["model"].items():
            self.assertLess(row["no_overlap"]["bits_per_byte"], bar - 0.1, name)

    def test_no_held_back_paragraph_is_in_the_training_text(self):
        path = HERE / "data" / "train.txt"
        if not path.exists():
            self.skipTest("run fetch-data.py first")
        text = path.read_text("utf-8")
        long = [p for p in HELD_BACK.decode("utf-8").split("\n\n") if len(p) > 120]
        self.assertGreater(len(long), 150)
        self.assertEqual([p for p in long if p in text], [])


class ModelTest(unittest.TestCase):
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        self.torch = torch

    def test_file_names_and_layouts_round_trip(self):
        from check_files import GGUF_NAMES, HF_NAMES, Forward
        from evaluate import half_split
        from export import gguf_tensors, interleave
        from model import Llama, Shape, as_config, from_huggingface, to_huggingface

        torch = self.torch
        torch.manual_seed(1)
        shape = Shape(vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                      head_dim=16, intermediate_size=96, max_position_embeddings=80)  # fmt: skip
        model = Llama(shape).eval()
        hf = to_huggingface(model.state_dict(), shape)
        ids = torch.randint(0, 64, (1, 70))  # longer than one block of queries
        with torch.no_grad():
            want = model(ids)[0].numpy()
            again = from_huggingface(hf, shape)(ids)[0].numpy()
        np.testing.assert_array_equal(want, again)
        # The numpy pass over both layouts: wrong pairing or row order would be off by far more.
        arrays = {k: t.numpy() for k, t in hf.items()}
        ggml = {k: t for k, (_, t) in gguf_tensors(arrays, shape).items()}
        for weights, names, interleaved in ((arrays, HF_NAMES, False), (ggml, GGUF_NAMES, True)):
            got = Forward(weights, names, as_config(shape), interleaved).logits(ids[0].tolist())
            np.testing.assert_allclose(got, want, atol=2e-5)
        wrong = Forward(arrays, HF_NAMES, as_config(shape), True).logits(ids[0].tolist())
        self.assertGreater(np.abs(wrong - want).max(), 1e-3)
        q = arrays["model.layers.0.self_attn.q_proj.weight"]
        np.testing.assert_array_equal(half_split(interleave(q, 4), 4), q)

    def test_windows_score_every_token_once(self):
        from evaluate import total_nats

        class Flat(self.torch.nn.Module):
            def forward(inner, x):
                return self.torch.zeros(*x.shape, 10)

        for count in (1, 127, 128, 255, 256, 257, 300, 1000):
            for stride, length in ((128, 256), (256, 256), (127, 255), (255, 255)):
                nats, scored = total_nats(Flat(), np.zeros(count, np.int64), stride, length)
                self.assertEqual(scored, count)
                self.assertAlmostEqual(nats, count * math.log(10), delta=1e-3)

    def test_schedule_and_batches(self):
        import train as training
        from tokenizer import BOS

        rates = [training.learning_rate(i, 100, 1.0, 10, 0.02) for i in range(101)]
        self.assertEqual(max(rates), 1.0)
        self.assertAlmostEqual(rates[0], 0.1)
        self.assertAlmostEqual(rates[100], 0.02)
        tok = Tokenizer.load(MODEL / "tokenizer.json")
        runs = HELD_BACK.decode("utf-8")[:12000].split("\n\n")
        text = training.Text(tok, "\n\f\n".join(["\n\n".join(runs[:8]), "\n\n".join(runs[8:])]), 64)
        x, y = text.batch(np.random.default_rng(3), 50)
        again, _ = text.batch(np.random.default_rng(3), 50)
        self.assertTrue((x == again).all())
        self.assertTrue((x[:, 0] == BOS).all() and (x[:, 1:] == y[:, :-1]).all())
        self.assertEqual(y.shape, (50, 64))


if __name__ == "__main__":
    unittest.main()
