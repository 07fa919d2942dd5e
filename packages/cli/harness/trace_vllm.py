# include trace.py


def trace(model, folder="theirs"):
    """PASTE this file beside yours. VLLM_ALLOW_INSECURE_SERIALIZATION=1 lets it into the workers, and graphs are off:
    llm = LLM(..., enforce_eager=True, enable_prefix_caching=False); llm.apply_model(trace); llm.generate(...)"""
    from vllm.distributed import get_tensor_model_parallel_rank

    tracer = Trace(model, folder, rank=get_tensor_model_parallel_rank())
    for name, module in model.named_modules():  # one rotary_emb serves all layers
        if name.endswith("rotary_emb"):
            module.register_forward_hook(lambda _, args, out: tracer.rotated(*out))
        if name.endswith("logits_processor"):  # it runs after the pass
            module.register_forward_hook(lambda _, args, out: logits(tracer, out))


def logits(tracer, out):
    path = tracer.path.format(tracer.step - 1).replace(".safetensors", "-logits.safetensors")
    if isinstance(out, torch.Tensor) and tracer.step > 0:
        save_file({"logits": out.detach().to("cpu", copy=True).contiguous()}, path)
