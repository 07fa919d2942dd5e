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
            raw = tensor.numpy() if dtype != 'bf16' else tensor.view(torch.int16).numpy().view(np.uint16)
            raw = raw.view(np.uint16) if dtype == 'f16' else raw
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
    cann.close(META)

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
