# SPDX-License-Identifier: Apache-2.0
"""LayerNorm and the linear layer that it feeds, on each device beside PyTorch's autograd: the
largest difference of the result and of every gradient, and whether it is a difference of rounding.

The same for each variant of the library, against a reference in a wider type:
isobit verify layernorm_linear --rows 16 --cols 8 --features 16 --report"""

import argparse
import sys

import torch
import torch.nn.functional as F

import isobit.torch

NAMES = ("input", "norm_weight", "norm_bias", "weight", "bias")


def apart(x, norm_weight, norm_bias, weight, bias):
    return F.linear(F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias), weight, bias)


def fused(x, norm_weight, norm_bias, weight, bias):
    return isobit.torch.layer_norm_linear(x, x.shape[-1:], norm_weight, norm_bias, weight, bias)


def computed(function, tensors, gradient):
    """The result and the gradients, by name."""
    given = [each.detach().requires_grad_() for each in tensors]
    result = function(*given)
    found = torch.autograd.grad(result, given, gradient)
    named = {f"gradient of {name}": each for name, each in zip(NAMES, found, strict=True)}
    return {"result": result.detach()} | named


def compare(device, options):
    """Prints a line for each of them; whether all are near."""
    generator = torch.Generator().manual_seed(options.seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(device)

    leading, (cols, features) = options.shape[:-1], (options.shape[-1], options.features)
    tensors = draw(*leading, cols), 1 + draw(cols) / 4, draw(cols) / 4
    tensors += draw(features, cols), draw(features)
    gradient = draw(*leading, features)
    theirs, ours = (computed(each, tensors, gradient) for each in (apart, fused))
    all_near = True
    for name, expected in theirs.items():
        difference = (ours[name] - expected).abs().max().item()
        allowed = options.tolerance * max(1.0, expected.abs().max().item())
        near = difference <= allowed
        all_near &= near
        verdict = "pass" if near else "fail"
        print(f"{device:5} {name:24} {difference:9.2e}  allowed {allowed:7.1e}  {verdict}")
    return all_near


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", type=int, nargs="+", default=[4, 4, 8], help="of the input")
    parser.add_argument("--features", type=int, default=16, help="of the result (default: 16)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of the largest element")
    options = parser.parse_args(arguments)
    devices = ["cpu"] + ["cuda"] * torch.cuda.is_available()
    near = [compare(device, options) for device in devices]
    return 0 if all(near) else 1


if __name__ == "__main__":
    sys.exit(main())
