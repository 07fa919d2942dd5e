"""
The chat template and the tokenizer of a model's folder, as transformers runs them.

  python chat.py FOLDER MESSAGES.json OUT.json    MESSAGES: a list of texts; OUT: {"prompts": texts, "ids": lists}
"""

import json
import sys

from transformers import AutoTokenizer

folder, messages, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
texts = json.load(open(messages, encoding="utf8"))
prompts = texts
if tokenizer.chat_template:
    ask = lambda text: tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
    prompts = [ask(text) for text in texts]
ids = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]
json.dump({"prompts": prompts, "ids": ids}, open(out, "w", encoding="utf8"))
