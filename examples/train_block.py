# SPDX-License-Identifier: Apache-2.0
"""Trains pre-norm transformer blocks twice, with norms and linear layers apart and with norms that
linear layers compute: the same losses and weights, bit for bit, and less that backward keeps."""

import argparse
import hashlib
import sys

import torch
from torch import nn

import isobit.torch


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


def kept(model, x):
    """(the result, the bytes that the call keeps for backward, each of them counted once)"""
    storages = {}

    def keep(tensor):
        if not isinstance(tensor, nn.Parameter) and tensor.untyped_storage().nbytes() > 0:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        return model(x), sum(storages.values())


def train(options, **patched):
    """(losses, digest of the weights, bytes kept by a step)"""
    torch.manual_seed(options.seed)
    model = nn.Sequential(*(Block(options.width, options.heads) for _ in range(options.layers)))
    report = isobit.torch.patch(model, **patched)
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate)
    losses = []
    for _ in range(options.steps):
        x = torch.randn(options.batch, options.context, options.width)
        y, size = kept(model, x)
        loss = (y - x.roll(1, dims=1)).square().mean()  # each position learns its predecessor
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    digest = hashlib.sha256()
    for weight in model.parameters():
        digest.update(weight.detach().numpy().tobytes())
    print(report)
    return losses, digest.hexdigest(), size


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("width", 256), ("heads", 4), ("layers", 2), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"(default: {usual})")
    for name, usual in (("context", 64), ("steps", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"(default: {usual})")
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning (default: 0.001)")
    options = parser.parse_args(arguments)
    apart = train(options, linear=True)
    fused = train(options, fuse=True)
    for name, (losses, digest, size) in (("linear=True", apart), ("fuse=True", fused)):
        print(
            f"{name:12} loss {losses[0]:.6f} to {losses[-1]:.6f}  weights {digest[:16]}  "
            f"{size:,} bytes kept for backward"
        )
    same = apart[:2] == fused[:2]
    print("the same bits" if same else "other bits")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
