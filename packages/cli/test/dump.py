# Writes dump.pt, with torch 1.13.0: a rotation in bf16 as transformers computes it, in [batch, head, token, head_dim].
import torch

torch.manual_seed(18)
positions = torch.tensor([[0, 1, 40, 511, 8191, 131071]])
x = (torch.rand(1, 6, 3, 64) * 2 - 1).bfloat16().transpose(1, 2)
inv_freq = 10000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
angle = positions[:, None, :, None].double() * torch.cat((inv_freq, inv_freq))
rotated = torch.cat((-x[..., 32:], x[..., :32]), -1)
y = (x.double() * angle.cos() + rotated.double() * angle.sin()).bfloat16()
bits = lambda of: of.contiguous().view(torch.int16).clone()
torch.save({'x': x, 'y': y, 'x_bits': bits(x), 'y_bits': bits(y), 'positions': positions}, 'dump.pt')
