# SPDX-License-Identifier: Apache-2.0
"""What tests of isobit.torch share: the functions beside PyTorch's, and comparisons."""

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import isobit.torch


def torch_add_layer_norm(x, residual, shape, weight=None, bias=None, eps=1e-5):
    total = x + residual
    return F.layer_norm(total, shape, weight, bias, eps), total


def torch_add_rms_norm(x, residual, shape, weight=None, eps=None):
    total = x + residual
    return F.rms_norm(total, shape, weight, eps), total


# name: (ours, PyTorch's, how many inputs of x's shape, whether there is a bias)
FUNCTIONS = {
    "layer_norm": (isobit.torch.layer_norm, F.layer_norm, 1, True),
    "rms_norm": (isobit.torch.rms_norm, F.rms_norm, 1, False),
    "add_layer_norm": (isobit.torch.add_layer_norm, torch_add_layer_norm, 2, True),
    "add_rms_norm": (isobit.torch.add_rms_norm, torch_add_rms_norm, 2, False),
}


def bits(*tensors):
    """Every bit of some tensors, to be compared as a whole."""
    flat = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors)
    return [each.numpy().tobytes() for each in flat]


def many(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def draw(*shape, dtype=torch.float32, seed=0, requires_grad=False):
    generator = torch.Generator().manual_seed(seed + 7 * len(shape) + sum(shape))
    drawn = torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
    return drawn.requires_grad_(requires_grad)


def ramp(like):
    """Numbers of few digits, for where none may be drawn."""
    return (torch.arange(like.numel(), dtype=like.dtype).reshape(like.shape) * 5) % 7 - 3


class Products(TorchDispatchMode):
    """Which operators have been called, and with which arithmetic, of those that have several."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        names = [each.name for each in function._schema.arguments]
        if "arithmetic" in names:
            given = dict(zip(names, args, strict=False)) | (kwargs or {})
            name = function._schema.name.removeprefix("isobit::")
            self.seen.append((name, given.get("arithmetic", 0)))
        return function(*args, **(kwargs or {}))


class Norm:
    """A function of isobit.torch, as a function of its tensors alone."""

    ADDING = ("add_layer_norm", "add_rms_norm", "dropout_add_layer_norm", "dropout_add_rms_norm")
    CENTERED = ("layer_norm", "add_layer_norm", "dropout_add_layer_norm")
    NAMES = ("layer_norm", "rms_norm", *ADDING)

    def __init__(self, name, dims=1, **options):
        self.name, self.dims, self.options = name, dims, {"eps": 1e-3} | options
        self.inputs = 2 if name in self.ADDING else 1
        self.weights = 2 if name in self.CENTERED else 1
        if name.startswith("dropout"):
            self.options = {"p": 0.3, "seed": 7} | self.options

    def __call__(self, x, *others):
        shape = x.shape[x.dim() - self.dims :]
        rows, weights = others[: self.inputs - 1], others[self.inputs - 1 :]
        return getattr(isobit.torch, self.name)(x, *rows, shape, *weights, **self.options)

    def draw(self, *shape, dtype=torch.float32, weight_dtype=None, requires_grad=False):
        inputs = [draw(*shape, dtype=dtype, seed=i) for i in range(self.inputs)]
        columns = shape[len(shape) - self.dims :]
        weights = [
            draw(*columns, dtype=weight_dtype or dtype, seed=10 + i) for i in range(self.weights)
        ]
        return [t.requires_grad_(requires_grad) for t in inputs + weights]


def step(call, tensors):
    """Every bit of the results and of the gradients of all tensors that have any."""
    tensors = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
    leaves = [t for t in tensors if t.requires_grad]
    outputs = many(call(*tensors))
    gradients = torch.autograd.grad(outputs, leaves, [ramp(y) for y in outputs]) if leaves else ()
    return bits(*outputs, *gradients)


# name: (options of Norm, and of its draw)
VARIANTS = {
    "plain": ({}, {}),
    "without_weights": ({}, {}),
    "zero_centered": ({"zero_centered": True, "out_dtype": torch.float16}, {}),
    "two_dimensions": ({"dims": 2}, {}),
    "mixed": ({}, {"dtype": torch.bfloat16, "weight_dtype": torch.float32}),
    "wide": ({}, {"dtype": torch.float64}),
}


def sample(name, variant, **more):
    options, drawing = VARIANTS[variant]
    norm = Norm(name, **options)
    tensors = norm.draw(3, 4, 8, **drawing, **more)
    return norm, tensors[: norm.inputs] if variant == "without_weights" else tensors
