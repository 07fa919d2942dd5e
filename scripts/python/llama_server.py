"""
llama.cpp's server, as the package xllamacpp has it built.

  python llama_server.py MODEL.gguf [FIELD=VALUE …]

A FIELD is one of llama.cpp's `common_params`: `rope_freq_base=500000`, `rope_scaling_type=yarn`, `yarn_orig_ctx=64`,
`n_ctx=2048`, `n_ubatch=64`, `cache_type_k=q8_0`, `port=8080`. It prints the server's address when that answers, and
serves until it is killed.
"""

import enum
import signal
import sys

import xllamacpp


def value_of(field: str, text: str, now: object) -> object:
    """Reads a value as the field has it; one of an enumeration by the end of its name."""
    if isinstance(now, bool):
        return {"true": True, "false": False}[text.lower()]
    if isinstance(now, enum.Enum):
        found = [one for one in type(now) if one.name.lower().endswith(f"_type_{text.lower()}")]
        if not found:
            sys.exit(f"{field}={text}: expected the end of one of {', '.join(one.name for one in type(now))}")
        return found[0]
    return type(now)(text)


model, *fields = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = model
params.warmup = False
for name, text in (field.split("=") for field in fields):
    target = params.cpuparams if name == "n_threads" else params
    setattr(target, name, value_of(name, text, getattr(target, name)))
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.pause()
