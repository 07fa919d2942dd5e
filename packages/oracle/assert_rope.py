"""
assert_rope(y, x, positions, config): is y the rotation of x, as precise as `ropewalk verify` asks? Needs numpy only.

    import sys; sys.path.insert(0, 'golden')  # the folder that `ropewalk vectors golden` wrote
    from assert_rope import assert_rope
    assert_rope(my_kernel(x, positions), x, positions, 'llama-2-half')

x and y are yours: any batch, tokens and heads. docs/verify.md of ropewalk says where each bound comes from.
"""
import difflib
import json
import os

import numpy as np

# The dtype of a numpy array's elements; numpy has no bf16, so its bits are 16-bit integers.
DTYPES = {'float64': 'f64', 'float32': 'f32', 'float16': 'f16', 'uint16': 'bf16', 'int16': 'bf16', 'bfloat16': 'bf16'}
# The largest relative error of one rounding, what may be lost near zero, and what rounds to infinity.
ROUNDOFF = {'f64': 2.0**-53, 'f32': 2.0**-24, 'f16': 2.0**-11, 'bf16': 2.0**-8}
NEAR_ZERO = {'f64': 0.0, 'f32': 2.0**-126, 'f16': 2.0**-25, 'bf16': 2.0**-126}
OVERFLOW = {'f64': np.inf, 'f32': (2 - 2.0**-24) * 2.0**127, 'f16': 65520.0, 'bf16': (2 - 2.0**-8) * 2.0**127}


def assert_rope(y, x, positions, config, dtype=None):
    """
    Raises AssertionError, which names the worst element, unless every element of y is within its bound.

    y, x: of one shape, [batch, tokens, heads, head_dim] or [tokens, heads, head_dim]; heads before tokens where the
        config's layout is bnsh. f32, f16, f64; bf16 as its bits (uint16 or int16) or as f32 numbers.
    positions: integers, [tokens] or [batch, tokens]; with M-RoPE [axes, tokens] or [axes, batch, tokens].
    config: a case of the manifest.json beside this file, by its id or as its record. It gives the rotation.
    dtype: 'f64', 'f32', 'f16' or 'bf16', which y was rounded to; needed for bf16 as f32 numbers, unless the case is bf16.
    """
    case = _case(config)
    y, x = _array(y, 'y'), _array(x, 'x')
    if x.shape != y.shape or x.ndim not in (3, 4) or x.shape[-1] != case['attributes']['spec']['headDim']:
        raise ValueError(
            f"assert_rope: x and y: expected one shape [batch, tokens, heads, head_dim] or [tokens, heads, head_dim] "
            f"with head_dim {case['attributes']['spec']['headDim']}, got {list(x.shape)} and {list(y.shape)}"
        )
    if not _numbers(x).any():
        raise ValueError('assert_rope: x: it is empty or 0 everywhere, and every rotation of it is right. Give other values.')
    if dtype is None:
        of_case = next(t['dtype'] for t in case['inputs'] if t['name'] == case['attributes']['parts'][0]['x'])
        dtype = 'bf16' if y.dtype == np.float32 and of_case == 'bf16' else DTYPES[y.dtype.name]
    elif dtype not in ROUNDOFF:
        raise ValueError(f"assert_rope: dtype: expected 'f64', 'f32', 'f16' or 'bf16', got {dtype!r}")
    got, exact, bound, p = _judged(_numbers(y), _numbers(x), positions, case, dtype)
    with np.errstate(invalid='ignore'):
        error = np.where((got == exact) | (np.isnan(got) & np.isnan(exact)), 0, np.abs(got - exact))
        near = np.sign(got) == np.sign(exact)
        near &= np.isinf(got) & np.isfinite(exact) & (np.abs(exact) + bound >= OVERFLOW[dtype])
        wrong = ~(error <= bound) & ~near & ~(np.isinf(bound) & ~np.isfinite(got))
        if not wrong.any():
            return
        # NaN and infinities first, then the largest share of a bound.
        ratio = np.where(np.isfinite(error), error / np.maximum(bound, 1e-300), np.inf)
    worst = np.unravel_index(np.argmax(np.where(wrong, ratio, -1)), wrong.shape)
    batch, token, head, dim = (int(i) for i in worst)
    at = [batch, head, token, dim] if case['attributes']['layout'] == 'bnsh' else [batch, token, head, dim]
    where = [int(axis) for axis in p[:, batch if p.shape[1] > 1 else 0, token]]
    raise AssertionError(
        f"{case['id']}: {int(wrong.sum())} of {wrong.size} elements are wrong. "
        f"Worst: y{at[4 - y.ndim:]}, position {where[0] if len(where) == 1 else where}: got {got[worst]:.9g}, "
        f"expected {exact[worst]:.9g} within {bound[worst]:.2g}, off by {error[worst]:.2g}, judged as {dtype}. "
        "Next: `ropewalk diagnose` reads x and y, and says what the kernel does instead."
    )


def _case(config):
    """A record of the manifest, from itself or its id."""
    if isinstance(config, str):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'manifest.json')
        with open(path, encoding='utf-8') as file:
            cases = {case['id']: case for case in json.load(file)['cases'] if case['op'] == 'rope'}
        if config not in cases:
            near = ' or '.join(difflib.get_close_matches(config, cases, 3, 0.4)) or ', '.join(cases)
            raise ValueError(f"assert_rope: config: the manifest has no RoPE case {config!r}. Did you mean {near}?")
        config = cases[config]
    if not isinstance(config, dict) or 'angleRoundings' not in config.get('rope', {}):
        raise ValueError('assert_rope: config: expected the id of a RoPE case, or its record in manifest.json')
    for more in ('weight', 'cache'):
        if any(part.get(more) for part in config['attributes']['parts']):
            what = {'weight': 'has a norm', 'cache': 'writes to a cache'}[more]
            raise ValueError(f"assert_rope: config: {config['id']} {what}, which is more than a rotation. Use verify.")
    return config


def _array(values, name):
    values = np.asarray(values)
    if values.dtype.name not in DTYPES:
        kinds = 'float64, float32, float16, or bf16 as uint16 or float32'
        raise ValueError(f'assert_rope: {name}: expected an array of {kinds}, got {values.dtype}')
    return values


def _numbers(values):
    """The elements in float64."""
    if values.dtype.kind in 'iu':
        values = (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def _judged(got, x, positions, case, dtype):
    """got, exact and bound as [batch, tokens, heads, head_dim], and positions as [axes, batch or 1, tokens]."""
    rope, attributes = case['rope'], case['attributes']
    if x.ndim == 3:
        got, x = got[None], x[None]
    if attributes['layout'] == 'bnsh':
        got, x = got.swapaxes(1, 2), x.swapaxes(1, 2)
    p = np.asarray(positions)
    if p.dtype.kind not in 'iu':
        raise ValueError(f'assert_rope: positions: expected integers, got {p.dtype}')
    lead = [rope['numAxes']] if rope['numAxes'] > 1 else []
    shapes = [lead + [x.shape[1]], lead + [x.shape[0], x.shape[1]], lead + [1, x.shape[1]]]
    if list(p.shape) not in shapes:
        raise ValueError(f'assert_rope: positions: expected shape {shapes[0]} or {shapes[1]}, got {list(p.shape)}')
    p = p.reshape(rope['numAxes'], -1, x.shape[1]).astype(np.float64)

    frequency = np.array(rope['invFreq'])
    angle = np.moveaxis(p[rope['axisOfPair']], 0, -1)[:, :, None, :] * frequency  # [batch or 1, tokens, 1, pairs]
    cos, sin = rope['magnitude'] * np.cos(angle), rope['magnitude'] * np.sin(angle)
    pairs, first = np.arange(rope['rotaryDim'] // 2), rope['rotaryOffset']
    half = (first + pairs, first + pairs + len(pairs))
    interleaved = (first + 2 * pairs, first + 2 * pairs + 1)
    read = half if rope['pairing'] == 'half' else interleaved
    write = interleaved if rope['pairing'] == 'interleaved' else half
    if attributes['direction'] == 'backward':
        sin, read, write = -sin, write, read
    x0, x1 = x[..., read[0]], x[..., read[1]]
    with np.errstate(invalid='ignore'):
        y0, y1 = x0 * cos - x1 * sin, x0 * sin + x1 * cos

    u, of_store = ROUNDOFF['f64' if dtype == 'f64' else 'f32'], ROUNDOFF[dtype]
    # How far an angle of this precision may be off, and what cos and sin of it, times the magnitude, may be.
    far = np.any(np.abs(p) > 2**24)
    delta = np.abs(angle) * (np.array(rope['angleRoundings']) + far) * u
    sine, versine = np.minimum(1, delta), np.minimum(2, delta * delta / 2)
    # An infinite x times a cos or sin whose sign the angle's error leaves open is NaN or either infinity.
    is_open = (delta > 0) & (np.minimum(np.abs(cos), np.abs(sin)) <= delta * rope['magnitude'])
    of_table = u * ((0 if dtype == 'f64' else 4) + (rope['magnitude'] != 1))

    exact, bound = x.copy(), np.zeros(x.shape)  # what is not rotated is copied, to the bit
    with np.errstate(invalid='ignore'):
        r = np.hypot(y0, y1)
        members = [(y0, y1, np.abs(x0 * cos) + np.abs(x1 * sin)), (y1, y0, np.abs(x0 * sin) + np.abs(x1 * cos))]
        for at, (own, other, size) in zip(write, members):
            # Two products and a sum, and the store's rounding; then what the angle's error adds.
            error = 3 * u * size
            stated = error + of_store * (np.abs(own) + error) + NEAR_ZERO[dtype]
            of_angle = sine * np.abs(other) + versine * np.abs(own)
            of_angle += (of_table * (1 + 1.5 * sine) + 4.5 * ROUNDOFF['f32'] * sine) * r
            exact[..., at] = own
            not_finite = np.where(is_open & ~np.isfinite(own), np.inf, 0)
            bound[..., at] = np.where(np.isfinite(y0) & np.isfinite(y1), stated + of_angle * (1 + of_store), not_finite)
    return got, exact, bound, p
