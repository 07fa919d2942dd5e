"""Writes the vectors of aclnn's calls, and of flash-attn's apply_rotary beside them.

    python3 vectors/cann/generate.py

Run with torch 1.13.0a0 and numpy 1.24.2 (Debian 12: python3-torch), CPU. Inputs are drawn with numpy's default_rng, one
seed a case, and rounded to the case's dtype. Outputs are the documented formulas in torch float64; gradients are torch's
autograd of the forward formula, not a second formula. `expected` is not rounded.
"""
import json
import os

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = {'f32': torch.float32, 'f16': torch.float16, 'bf16': torch.bfloat16}


# --- the formulas -----------------------------------------------------------------------------------------------------

def rotate(x, mode):
    """The second factor: what sin multiplies."""
    d = x.shape[-1]
    if mode == 'half':
        return torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1)
    if mode == 'interleave':
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    a, b, c, e = x.split(d // 4, -1)
    return torch.cat((-b, a, -e, c), -1)


def forward(x, cos, sin, mode):
    if mode == 'interleave-half':
        x = torch.cat((x[..., ::2], x[..., 1::2]), -1)
        mode = 'half'
    return x * cos + rotate(x, mode) * sin


MODES = ['half', 'interleave', 'quarter', 'interleave-half']


def wide(angles, mode):
    """A table [..., D] from the angles of its pairs [..., D/2]."""
    if mode == 'interleave':
        return angles.repeat_interleave(2, -1)
    if mode == 'quarter':
        first, second = angles.chunk(2, -1)
        return torch.cat((first, first, second, second), -1)
    return torch.cat((angles, angles), -1)


def mrope(table, positions, sections, cache_mode):
    """Rows of cos or sin [max, pairs] for positions [tokens] or [axes, tokens]."""
    rows = table[positions]
    if sections is None:
        return rows
    if cache_mode == 0:
        return torch.cat([part[i] for i, part in enumerate(rows.split(sections, -1))], -1)
    out = rows[0].clone()
    end = sections[1] * 3
    out[..., 1:end:3] = rows[1][..., 1:end:3]
    out[..., 2:end:3] = rows[2][..., 2:end:3]
    return out


def grid(dtype):
    """The finite values of an 8-bit type, in order."""
    if dtype == 'i8':
        return torch.arange(-128, 128, dtype=torch.float64)
    fraction, bias, largest = {'f8_e4m3': (3, 7, 448), 'f8_e5m2': (2, 15, 57344)}[dtype]
    values = {0.0}
    for exponent in range(0, 2 * bias + 2):
        for m in range(2 ** fraction):
            value = (m if exponent == 0 else 2 ** fraction + m) * 2.0 ** (max(exponent, 1) - bias - fraction)
            if value <= largest:
                values.update((value, -value))
    return torch.tensor(sorted(values), dtype=torch.float64)


def bits(values, dtype):
    """The bytes of values of an 8-bit float."""
    points = grid(dtype)
    positive = points[points >= 0]
    magnitude = torch.bucketize(values.abs(), positive)  # values lie on the grid, which is in the order of the bits
    return torch.where(values < 0, magnitude + 128, magnitude).to(torch.uint8)


class NearTie(Exception):
    """A value is so near the middle of two that f32 arithmetic may round it either way: draw others."""


def quantise(values, dtype):
    """The nearest value of the type; no value may be near the middle of two."""
    points = grid(dtype)
    middles = (points[1:] + points[:-1]) / 2
    at = torch.bucketize(values.contiguous(), middles)
    near = (values[..., None] - middles).abs().min(-1).values
    if not (near > 2e-5 * values.abs().clamp(min=points[points > 0].min())).all():
        raise NearTie
    return points[at]


def scatter(cache, rows, index, mode, piece):
    """Writes rows [B, N, S, d] into a cache in one of aclnn's modes, in pieces of so many elements; -1 skips."""
    B, N, S, d = rows.shape
    cache = cache.clone()
    if mode == 'Norm':
        for b in range(B):
            for s in range(S):
                if index[b, s] >= 0:
                    cache[b, :, index[b, s]] = rows[b, :, s]
        return cache
    blocks, size = cache.shape[:2]
    view = cache.view(blocks, d // piece, size, piece) if mode.endswith('NZ') else cache
    per = -(-S // size)
    for b in range(B):
        for s in range(S):
            if 'BLK' in mode:
                start = int(index[b * per + s // size])
                slot = -1 if start < 0 else start // size * size + s % size
            else:
                slot = int(index[b * S + s])
            if slot < 0:
                continue
            if mode.endswith('NZ'):
                view[slot // size, :, slot % size] = rows[b, 0, s].view(-1, piece)
            else:
                view[slot // size, slot % size] = rows[b, :, s]
    return cache


# --- writing ----------------------------------------------------------------------------------------------------------

class Folder:
    def __init__(self, path, suite):
        self.path, self.suite, self.cases, self.saved = path, suite, [], {}
        os.makedirs(path, exist_ok=True)

    def save(self, name, array):
        """Writes an array; one that was written before is named again."""
        array = np.ascontiguousarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.saved:
            np.save(os.path.join(self.path, name), array)
            self.saved[key] = name
        return self.saved[key]

    def case(self, name, call, args, inputs, outputs):
        """inputs: name -> (dtype, tensor); outputs: name -> (dtype, float64 tensor, roundings, magnitude)."""
        into = {}
        for key, (dtype, tensor) in inputs.items():
            raw = tensor.view(torch.int16).numpy().view(np.uint16) if dtype in ('f16', 'bf16') else tensor.numpy()
            file = self.save(f'{name}.{key}.npy', raw)
            into[key] = {'file': file, 'dtype': dtype, 'shape': list(tensor.shape)}
        out = {}
        for key, (dtype, tensor, roundings, magnitude) in outputs.items():
            file = self.save(f'{name}.{key}.expected.npy', tensor.detach().numpy())
            out[key] = {'dtype': dtype, 'shape': list(tensor.shape), 'expected': file,
                        'roundings': roundings, 'magnitude': float(magnitude)}
        self.cases.append({'id': name, 'call': call, 'args': args, 'inputs': into, 'outputs': out})

    def close(self, meta):
        with open(os.path.join(self.path, 'manifest.json'), 'w') as file:
            json.dump({'suite': self.suite, 'meta': meta, 'cases': self.cases}, file, indent=1)
            file.write('\n')


class Draw:
    def __init__(self, seed, dtype):
        self.rng, self.dtype = np.random.default_rng(seed), dtype

    def values(self, *shape, dtype=None):
        drawn = torch.from_numpy(self.rng.uniform(-2, 2, shape)).to(TORCH[dtype or self.dtype])
        return drawn, drawn.double()

    def tables(self, shape, mode, dtype=None):
        """cos and sin of random angles and magnitudes: the calls take any values."""
        angles = torch.from_numpy(self.rng.uniform(-4, 4, (*shape[:-1], shape[-1] // 2)))
        kept = TORCH[dtype or self.dtype]
        cos, sin = wide(torch.cos(angles) * 1.1, mode).to(kept), wide(torch.sin(angles) * 1.1, mode).to(kept)
        return (cos, cos.double()), (sin, sin.double())


META = {
    'generator': 'generate.py',
    'torch': torch.__version__,
    'numpy': np.__version__,
    'fields': {
        'expected': 'float64, not rounded',
        'roundings, magnitude': 'f32 arithmetic is within roundings * 2^-24 * magnitude of it, before it is rounded once to dtype',
    },
}


def kv_case(draw, k_type, c_type, mode, index, over, offsets, output, heads):
    """The arguments, inputs and outputs of a KvRmsNormRopeCache; heads 0 is V1's form."""
    dtype = draw.dtype
    apart = heads > 0
    N, Dk, Dv = heads or 1, 24 if apart else 32, 16 if apart else 64
    turns, normed = (8, Dk) if apart else (Dk, Dv)
    kv, KV = draw.values(2, N, 3, Dk if apart else Dv + Dk)
    gamma, G = draw.values(normed)
    v, V = draw.values(2, N, 3, Dv)
    (cos, C), (sin, S) = draw.tables((2, 1, 3 if over else 1, turns), 'interleave-half')
    latent = KV[..., :normed]
    y = latent / torch.sqrt((latent ** 2).mean(-1, keepdim=True) + 1e-5) * G
    if apart:
        k = torch.cat((forward(y[..., :turns], C, S, 'interleave-half'), y[..., turns:]), -1)
        c = V
    else:
        k, c = forward(KV[..., Dv:], C, S, 'interleave-half'), y
    index = torch.tensor(index)
    args = {'epsilon': 1e-5, 'cacheModeOptional': mode, 'isOutputKv': output}
    inputs = {'kv': (dtype, kv), 'gamma': (dtype, gamma), 'cos': (dtype, cos), 'sin': (dtype, sin), 'index': ('i64', index)}
    if apart:
        inputs['vOptional'] = (dtype, v)
    size = 2.4 * float(y.abs().max())
    outputs = {}
    for name, short, kind, rows, d in (('kCacheRef', 'kRope', k_type, k, Dk), ('ckvCacheRef', 'cKv', c_type, c, Dv)):
        shape = (2, N, 5, d) if mode == 'Norm' else (3, 4, N, d)
        if kind in TORCH:
            cache, before = draw.values(*shape)
        else:
            points = grid(kind)
            before = points[torch.from_numpy(draw.rng.integers(0, len(points), shape))]
            cache = before.to(torch.int8) if kind == 'i8' else bits(before, kind)
            s_shape = (N, d) if apart else (d,)
            scale = torch.from_numpy(draw.rng.uniform(8, 40, s_shape)).float()
            inputs[f'{short}ScaleOptional'] = ('f32', scale)
            rows = rows * scale.double().view(1, N, 1, d)
            if offsets:
                shift = torch.from_numpy(draw.rng.uniform(-9, 9, s_shape)).float()
                inputs[f'{short}OffsetOptional'] = ('f32', shift)
                rows = rows + shift.double().view(1, N, 1, d)
            rows = quantise(rows, kind)
        inputs[name] = (kind, cache)
        piece = 16 if kind in TORCH else 32
        outputs[name] = (kind, scatter(before, rows, index, mode, piece), normed + 8, size)
    if output:
        outputs['kRopeOut'], outputs['cKvOut'] = (dtype, k, normed + 8, size), (dtype, c, normed + 8, size)
    return args, inputs, outputs


def main():
    cann = Folder(HERE, 'cann aclnn calls')
    seed = 0
    shapes = [  # layout, x, tables
        ('BSND', (2, 3, 2, 8), (1, 3, 1, 8)), ('BNSD', (2, 2, 3, 8), (2, 1, 3, 8)), ('SBND', (3, 2, 2, 8), (3, 1, 1, 8)),
        ('BSND_full', (2, 2, 3, 4), (2, 2, 3, 4)), ('TND', (5, 3, 8), (5, 1, 8)), ('TND_full', (3, 2, 12), (3, 2, 12)),
    ]
    for mode, name in enumerate(MODES):
        for n, (layout, x_shape, t_shape) in enumerate(shapes):
            if (mode + n) % 2 == 1:
                continue
            seed += 1
            dtype = ['f32', 'f16', 'bf16'][(mode + n) % 3]
            draw = Draw(seed, dtype)
            (x, X), (dy, DY) = draw.values(*x_shape), draw.values(*x_shape)
            (cos, C), (sin, S) = draw.tables(t_shape, name)
            for t in (X, C, S):
                t.requires_grad_()
            y = forward(X, C, S, name)
            y.backward(DY)
            tables = {'cos': (dtype, cos), 'sin': (dtype, sin)}
            turn = 2 * 1.2 * 2  # |x cos| + |x sin|
            cann.case(f'rpe_{name}_{layout}_{dtype}', 'aclnnRotaryPositionEmbedding', {'mode': mode},
                      {'x': (dtype, x), **tables}, {'out': (dtype, y, 3, turn)})
            # Each element of a table's gradient is a sum of at most this many products.
            terms = X.numel() // C.numel()
            cann.case(f'rpe_grad_{name}_{layout}_{dtype}', 'aclnnRotaryPositionEmbeddingGrad', {'mode': mode},
                      {'dy': (dtype, dy), 'xOptional': (dtype, x), **tables},
                      {'dxOut': (dtype, X.grad, 3, turn), 'dcosOut': (dtype, C.grad, terms + 1, 4 * terms),
                       'dsinOut': (dtype, S.grad, terms + 1, 4 * terms)})

    applied = [  # call, layout, mode, query, key, tables
        ('V1', 1, 'half', (2, 3, 4, 8), (2, 3, 1, 8), (2, 3, 1, 8)), ('V1', 4, 'half', (5, 3, 8), (5, 1, 8), (5, 1, 8)),
        ('V2', 1, 'interleave', (2, 3, 4, 8), (2, 3, 2, 8), (1, 3, 1, 8)),
        ('V2', 2, 'quarter', (3, 2, 2, 8), (3, 2, 1, 8), (3, 2, 1, 8)),
        ('V2', 3, 'half', (2, 4, 3, 12), (2, 2, 3, 12), (2, 1, 3, 12)),
        ('V2', 4, 'interleave', (4, 2, 8), (4, 1, 8), (4, 1, 8)),
        # One token: the tables are 1 in two dimensions, and only one of them is the heads'.
        ('V2', 3, 'half', (2, 3, 1, 8), (2, 1, 1, 8), (2, 1, 1, 8)),
    ]
    for n, (version, layout, mode, q_shape, k_shape, t_shape) in enumerate(applied):
        seed += 1
        dtype = ['f32', 'f16', 'bf16'][n % 3]
        draw = Draw(seed, dtype)
        (q, Q), (k, K) = draw.values(*q_shape), draw.values(*k_shape)
        (gq, GQ), (gk, GK) = draw.values(*q_shape), draw.values(*k_shape)
        (cos, C), (sin, S) = draw.tables(t_shape, mode)
        for t in (Q, K, C, S):
            t.requires_grad_()
        q_out, k_out = forward(Q, C, S, mode), forward(K, C, S, mode)
        torch.autograd.backward([q_out, k_out], [GQ, GK])
        tables = {'cos': (dtype, cos), 'sin': (dtype, sin)}
        args = {'layout': layout} if version == 'V1' else {'layout': layout, 'rotaryMode': mode}
        call = 'aclnnApplyRotaryPosEmb' + ('' if version == 'V1' else 'V2')
        cann.case(f'apply{version}_{n}_{mode}_{dtype}', call, args,
                  {'queryRef': (dtype, q), 'keyRef': (dtype, k), **tables},
                  {'queryRef': (dtype, q_out, 3, 4.8), 'keyRef': (dtype, k_out, 3, 4.8)})
        if mode == 'half' and layout != 3:
            terms = (Q.numel() + K.numel()) // C.numel()
            cann.case(f'apply_grad_{n}_{dtype}', 'aclnnApplyRotaryPosEmbGrad', {'layout': layout},
                      {'gradQueryEmbed': (dtype, gq), 'gradKeyEmbed': (dtype, gk), 'queryOptional': (dtype, q),
                       'keyOptional': (dtype, k), **tables},
                      {'gradQueryOut': (dtype, Q.grad, 3, 4.8), 'gradKeyOut': (dtype, K.grad, 3, 4.8),
                       'gradCosOut': (dtype, C.grad, terms + 1, 4 * terms),
                       'gradSinOut': (dtype, S.grad, terms + 1, 4 * terms)})

    sliced = [('f32', 'f32', (0, 16), (2, 3, 1, 16)), ('f16', 'f32', (4, 12), (2, 1, 1, 8)), ('bf16', 'f32', (12, 16), (1, 1, 2, 4)),
              ('bf16', 'bf16', (2, 8), (2, 3, 2, 6)), ('f16', 'f16', (6, 6), (1, 1, 1, 0))]
    for dtype, table_dtype, (start, end), t_shape in sliced:
        seed += 1
        draw = Draw(seed, dtype)
        x, X = draw.values(2, 3, 2, 16)
        (cos, C), (sin, S) = draw.tables(t_shape, 'interleave', table_dtype)
        X.requires_grad_()
        middle = forward(X[..., start:end], C, S, 'interleave')
        y = torch.cat((X[..., :start], middle, X[..., end:]), -1)
        dy, DY = draw.values(2, 3, 2, 16)
        y.backward(DY)
        tables = {'cos': (table_dtype, cos), 'sin': (table_dtype, sin)}
        for call, name, mode, given, out in (
            ('aclnnInplacePartialRotaryMul', 'xRef', 'rotary_mode', x, y),
            ('aclnnInplacePartialRotaryMulGrad', 'dyRef', 'rotaryMode', dy, X.grad),
        ):
            cann.case(f'{"partial" if name == "xRef" else "partial_grad"}_{dtype}_{table_dtype}_{start}_{end}', call,
                      {mode: 1, 'partialSlice': [start, end]}, {name: (dtype, given), **tables},
                      {name: (dtype, out, 3, 4.8)})

    cached = [  # dtype, headSize, rotaryDim, neox, sections, cacheMode (None: V1)
        ('f32', 32, 16, True, None, None), ('f16', 32, 32, False, None, None), ('bf16', 96, 64, True, [8, 12, 12], None),
        ('f32', 128, 128, False, [16, 16, 16, 16], None), ('f16', 64, 64, True, [11, 11, 10], 1),
        ('bf16', 128, 128, True, [16, 24, 24], 1), ('f32', 128, 128, True, [24, 20, 20], 0),
    ]
    for n, (dtype, head, rotary, neox, sections, cache_mode) in enumerate(cached):
        seed += 1
        draw = Draw(seed, dtype)
        (q, Q), (k, K) = draw.values(3, 2 * head), draw.values(3, head)
        angles = torch.from_numpy(draw.rng.uniform(-4, 4, (9, rotary // 2)))
        cache = torch.cat((torch.cos(angles), torch.sin(angles)), -1).to(TORCH[dtype])
        axes = () if sections is None else (len(sections),)
        positions = torch.from_numpy(draw.rng.integers(0, 9, (*axes, 3)))
        cos, sin = (mrope(t, positions, sections, cache_mode or 0) for t in cache.double().chunk(2, -1))
        mode = 'half' if neox else 'interleave'

        def turned(x):
            heads = x.view(3, -1, head)
            rot = forward(heads[..., :rotary], wide(cos, mode)[:, None], wide(sin, mode)[:, None], mode)
            return torch.cat((rot, heads[..., rotary:]), -1).reshape(x.shape)

        args = {'headSize': head, 'isNeoxStyle': neox}
        if sections is not None:
            args['mropeSection'] = sections
        if cache_mode is not None:
            args['cacheMode'] = cache_mode
        cann.case(f'sin_cos_cache_{n}_{dtype}', 'aclnnRopeWithSinCosCache' + ('' if cache_mode is None else 'V2'), args,
                  {'positions': ('i64', positions), 'queryIn': (dtype, q), 'keyIn': (dtype, k), 'cosSinCache': (dtype, cache)},
                  {'queryOut': (dtype, turned(Q), 3, 4.4), 'keyOut': (dtype, turned(K), 3, 4.4)})
    stored = [  # kv, k cache, ckv cache, mode, index, cos over S, offsets, output, N (0: V1)
        ('f16', 'f16', 'f16', 'Norm', [[0, 4, -1], [2, 1, 0]], False, False, False, 0),
        ('bf16', 'bf16', 'bf16', 'PA_BNSD', [3, -1, 8, 0, 11, 5], True, False, True, 0),
        ('f16', 'f16', 'f16', 'PA_NZ', [3, -1, 8, 0, 11, 5], True, False, False, 0),
        ('bf16', 'i8', 'i8', 'PA_NZ', [1, 2, 9, -1, 4, 7], True, False, False, 0),
        ('bf16', 'bf16', 'f8_e4m3', 'PA_BLK_BNSD', [8, 0], True, False, True, 0),
        ('bf16', 'bf16', 'bf16', 'PA_BLK_NZ', [4, -1], True, False, False, 0),
        ('f16', 'i8', 'f8_e5m2', 'PA', [6, 7, 10, 3, 2, 1], True, True, False, 0),
        ('f16', 'f16', 'f16', 'Norm', [[1, 0, 3], [-1, 4, 2]], True, False, True, 2),
        ('bf16', 'f8_e5m2', 'i8', 'PA', [0, 9, -1, 4, 5, 6], True, True, False, 2),
    ]
    for n, (dtype, *rest) in enumerate(stored):
        seed += 1
        given = None
        while given is None:
            try:
                given = kv_case(Draw(seed, dtype), *rest)
            except NearTie:
                seed += 1000
        k_type, c_type, mode, heads = *rest[:3], rest[-1]
        call = 'aclnnKvRmsNormRopeCache' + ('V2' if heads else '')
        cann.case(f'kv_cache_{n}_{mode}_{k_type}_{c_type}', call, *given)
    cann.close(META)

    seed = 500
    flash = Folder(os.path.join(HERE, '..', 'flash-attn'), 'flash-attn apply_rotary')
    rotated = [  # dtype, interleaved, conjugate, rotary, lengths (None: dense [2, 4]), offsets, inplace
        ('f32', False, False, 8, None, 0, False), ('f16', True, False, 8, None, 3, True), ('bf16', False, True, 6, None, [2, 0], False),
        ('f32', True, True, 4, [3, 0, 2, 4], 0, False), ('f16', False, False, 8, [1, 5, 2], [4, 0, 7], True),
        ('f32', False, False, 8, [3, 4], [-2, 8], False),  # padding on the left, and rows past the tables
    ]
    for n, (dtype, interleaved, conjugate, rotary, lengths, offsets, inplace) in enumerate(rotated):
        seed += 1
        draw = Draw(seed, dtype)
        shape = (2, 4, 3, 8) if lengths is None else (sum(lengths), 3, 8)
        x, X = draw.values(*shape)
        angles = torch.from_numpy(draw.rng.uniform(-4, 4, (10, rotary // 2)))
        cos, sin = torch.cos(angles).to(TORCH[dtype]), torch.sin(angles).to(TORCH[dtype])
        mode = 'interleave' if interleaved else 'half'
        rows = X.reshape(-1, 3, 8)
        counts = lengths or [4, 4]
        shifts = offsets if isinstance(offsets, list) else [offsets] * len(counts)
        out, token = rows.clone(), 0
        for count, shift in zip(counts, shifts):
            for s in range(count):
                if 0 <= s + shift < 10:
                    C, S = (wide(t.double()[s + shift], mode) for t in (cos, sin))
                    out[token, :, :rotary] = forward(rows[token, :, :rotary], C, -S if conjugate else S, mode)
                token += 1
        inputs = {'x': (dtype, x), 'cos': (dtype, cos), 'sin': (dtype, sin)}
        args = {'interleaved': interleaved, 'conjugate': conjugate, 'inplace': inplace}
        if isinstance(offsets, list):
            inputs['seqlen_offsets'] = ('i32', torch.tensor(offsets, dtype=torch.int32))
        else:
            args['seqlen_offsets'] = offsets
        if lengths is not None:
            inputs['cu_seqlens'] = ('i32', torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32))
            args['max_seqlen'] = max(lengths)
        flash.case(f'{"varlen" if lengths else "dense"}_{n}_{dtype}', 'applyRotary', args, inputs,
                   {'out': (dtype, out.reshape(shape), 3, 4.4)})
    flash.close({**META, 'generator': '../cann/generate.py'})


if __name__ == '__main__':
    main()
