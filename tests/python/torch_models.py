# SPDX-License-Identifier: Apache-2.0
"""A small model whose every call has a counterpart of Isobit's, for tests of converted models."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_calls import bits, draw

WIDTH = 24


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.act, self.narrow = nn.Linear(WIDTH, 40), nn.GELU(), nn.Linear(40, WIDTH)

    def forward(self, x):
        return torch.tanh(self.narrow(self.act(self.wide(x))))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):
        x = self.norm(x)
        scores = (x @ x.transpose(-1, -2)).softmax(-1)
        return scores @ F.silu(self.mlp(x))


class Net(nn.Module):
    """Nothing in it has bits of PyTorch's once it is converted."""

    checkpoints = False

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x, scale: float = 1.0):
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x))
        return x.relu() * scale


def drawn(kind=Net):
    torch.manual_seed(0)
    return kind()


X = draw(2, 5, WIDTH)


def step(net, call=None):
    """The result and all gradients."""
    net.zero_grad()
    y = (net if call is None else call)(X)
    y.backward(draw(2, 5, WIDTH, seed=9))
    return bits(y, *(each.grad for each in net.parameters()))


def kinds(model):
    return [type(each) for each in model.modules()]
