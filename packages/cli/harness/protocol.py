# ---- The protocol of docs/verify.md; nothing to change below, unless you add an operator to OPS. ----


def rope_parts(case, inputs):
    """Calls rope() for each part, q and k for instance, with tensors as [batch, seq, heads, head_dim]."""
    attributes, derived, outputs = case["attributes"], case["rope"], {}
    rows_first = (lambda t: t.swapaxes(1, 2)) if attributes["layout"] == "bnsh" else (lambda t: t)
    for part in attributes["parts"]:
        x = rows_first(inputs[part["x"]])
        y = rope(
            x,
            inputs["positions"].reshape(derived["numAxes"], -1, x.shape[1]),
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
        outputs[part["out"]] = rows_first(y)
    return outputs


# Other operators: a function of the case and its inputs that returns the outputs, both by name.
OPS = {"rope": rope_parts}


def main():
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a kernel prints must not get into the answer
    while line := source.readline():
        case = json.loads(line)
        raw = {t["name"]: (bytearray(source.read(t["byteLength"])), t["dtype"], t["shape"]) for t in case["inputs"]}
        answer, data = {"id": case["id"]}, b""
        try:
            if case["op"] not in OPS:
                raise Skip(f"op {case['op']}: this harness has rope only")
            outputs = OPS[case["op"]](case, {name: load(*given) for name, given in raw.items()})
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
