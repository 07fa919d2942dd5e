# ---- The protocol of docs/verify.md; nothing to change below, unless you add an operator to OPS. ----


class Timed:
    """What is `with timed:`, verify --perf times, and nothing else."""

    took = 0

    def __enter__(self):
        wait()
        self.began = time.perf_counter()

    def __exit__(self, *_):
        wait()
        self.took += time.perf_counter() - self.began


timed = Timed()


def rope_parts(case, inputs):
    """Calls rope() for each part, q and k for instance, with tensors as [batch, seq, heads, head_dim]."""
    attributes, derived, outputs = case["attributes"], case["rope"], {}
    rows_first = (lambda t: t.swapaxes(1, 2)) if attributes["layout"] == "bnsh" else (lambda t: t)
    for part in attributes["parts"]:
        x = rows_first(inputs[part["x"]])
        positions = inputs["positions"].reshape(derived["numAxes"], -1, x.shape[1])
        given = dict(
            pairing=derived["pairing"],
            rotary_dim=derived["rotaryDim"],
            rotary_offset=derived["rotaryOffset"],
            inv_freq=derived["invFreq"],
            axis=derived["axisOfPair"],
            magnitude=derived["magnitude"],
            backward=attributes["direction"] == "backward",
            weight=inputs.get(part.get("weight")),
            eps=part.get("eps", 0),
            cache=rows_first(inputs[part["cache"]]) if "cache" in part else None,
            rows=inputs.get(part.get("rows")),
            base=derived["base"],
            scaling=derived["scaling"],
            beyond=derived["beyond"],
            spec=attributes["spec"],
        )
        with timed:
            y = rope(x, positions, **given)
        outputs[part["out"]] = rows_first(y)
    return outputs


# Other operators: a function of the case and its inputs that returns the outputs, both by name.
OPS = {"rope": rope_parts, **globals().get("OPERATORS", {})}


def perf(call, repeats, bytes):
    """Seconds of the kernel and, after each call, of a copy of as many bytes; three of both warm up."""
    source, target = new_bytes(bytes // 2), new_bytes(bytes // 2)
    seconds, copies = [], []
    for n in range(-3, repeats):
        timed.took = 0
        call()
        kernel, timed.took = timed.took, 0
        with timed:
            target[:] = source
        if n >= 0:
            seconds.append(kernel)
            copies.append(timed.took)
    return {"seconds": seconds, "copySeconds": copies}


def main():
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a kernel prints must not get into the answer
    while line := source.readline():
        case = json.loads(line)
        raw = {t["name"]: (bytearray(source.read(t["byteLength"])), t["dtype"], t["shape"]) for t in case["inputs"]}
        answer, data = {"id": case["id"]}, b""
        try:
            if case["op"] not in OPS:
                raise Skip(f"op {case['op']}: this harness has {'rope only' if len(OPS) == 1 else ', '.join(OPS)}")
            inputs = {name: load(*given) for name, given in raw.items()}
            if "perf" in case:
                answer["perf"] = perf(lambda: OPS[case["op"]](case, inputs), **case["perf"])
            else:
                outputs = OPS[case["op"]](case, inputs)
                for t in case["outputs"]:
                    if list(outputs[t["name"]].shape) != t["shape"]:
                        raise ValueError(f"{t['name']}: shape {list(outputs[t['name']].shape)}, expected {t['shape']}")
                data = b"".join(store(outputs[t["name"]], t["dtype"]) for t in case["outputs"])
                answer["outputs"] = case["outputs"]
        except Skip as why:
            answer["skip"] = str(why)
        except Exception as error:
            traceback.print_exc()
            answer["error"] = f"{type(error).__name__}: {error}"
        sink.write(json.dumps(answer).encode() + b"\n" + data)
        sink.flush()


if __name__ == "__main__":
    main()
