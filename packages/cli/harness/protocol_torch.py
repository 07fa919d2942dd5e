TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
         "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8}


def load(data, dtype, shape):
    return torch.frombuffer(data, dtype=TYPES[dtype]).reshape(shape).to(DEVICE)


def store(t, dtype):
    return t.to(TYPES[dtype]).cpu().contiguous().view(torch.uint8).numpy().tobytes()


def wait():
    name = DEVICE.split(":")[0]
    if name != "cpu":  # which computes at once
        getattr(torch, name).synchronize()


def new_bytes(size):
    return torch.ones(size, dtype=torch.uint8, device=DEVICE)


# include protocol.py
