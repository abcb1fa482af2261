# SPDX-License-Identifier: Apache-2.0
"""rope in PyTorch: what it means, how one writes it, and as a module."""

import torch


def reference(q, cos, sin, style="half"):
    """Each pair as a complex number times cos + i sin, in double, rounded once. q: (batch, seq,
    heads, dim); cos and sin: (seq, dim / 2)."""
    turn = torch.complex(cos.double(), sin.double())[None, :, None, :]
    pairs = q.double()
    if style == "half":
        pairs = pairs.unflatten(-1, (2, -1)).transpose(-1, -2)
    else:
        pairs = pairs.unflatten(-1, (-1, 2))
    y = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    y = y.transpose(-1, -2) if style == "half" else y
    return y.flatten(-2).to(q.dtype)


def tables(length, dim, base=10000.0):
    """Cosines and sines of polar numbers, in float."""
    frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    turn = torch.polar(torch.ones_like(angles), angles)
    return turn.real.float(), turn.imag.float()


def standard(q, cos, sin, style="half"):
    """As models have it: the other element of each pair, with its sign, beside q."""
    if style == "half":
        first, second = q.chunk(2, -1)
        other = torch.cat((-second, first), -1)
        cos, sin = (torch.cat((each, each), -1)[:, None] for each in (cos, sin))
    else:
        other = torch.stack((-q[..., 1::2], q[..., ::2]), -1).flatten(-2)
        cos, sin = (each.repeat_interleave(2, -1)[:, None] for each in (cos, sin))
    return (q * cos + other * sin).to(q.dtype)


class Module(torch.nn.Module):
    """Keeps the tables of so many positions."""

    def __init__(self, dim, positions, base=10000.0, style="half"):
        super().__init__()
        self.style = style
        for name, table in zip(("cos", "sin"), tables(positions, dim, base), strict=True):
            self.register_buffer(name, table, persistent=False)

    def forward(self, q):
        seq = q.shape[1]
        return standard(q, self.cos[:seq], self.sin[:seq], self.style)
