# SPDX-License-Identifier: Apache-2.0
"""What test_torch_promises.py runs once for each of ATen's kinds of kernels: calls of operators,
each with a digest of its results, and whether promises.py doubts their bits."""

import hashlib
import json
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isobit.torch import promises

SPECIAL = (0.0, -0.0, torch.inf, -torch.inf, 1.5, -1.5, 0.5, 2.5, 1e-40, -1e-40, 3e38)
SIZES = (7, 33, 40_003)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

aten = torch.ops.aten


def drawn(n, seed, dtype):
    values = torch.randint(-(2**40), 2**40, (n,), generator=torch.Generator().manual_seed(seed))
    values = values.double() / 2**38
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    values[seed % 5 :: 5] = special[torch.arange(len(values[seed % 5 :: 5])) % len(special)]
    return values.to(dtype)


def calls(a, b, c):
    """{name: call}; the last of those of which promises.py says that they are exact is followed by
    None."""
    mask, places = a > b, torch.arange(a.numel() - 1, -1, -1)
    return {
        "add": lambda: a + b,
        "add a number": lambda: a + 0.1,
        "sub": lambda: a - b,
        "rsub": lambda: 0.1 - a,
        "mul": lambda: a * b,
        "mul in place": lambda: a.clone().mul_(b),
        "mul by a number": lambda: a * 0.1,
        "div": lambda: a / b,
        "div by a number": lambda: a / 0.3,
        "div of a number": lambda: 0.3 / a,
        "div to whole numbers": lambda: torch.div(a, b, rounding_mode="trunc"),
        "reciprocal": lambda: a.reciprocal(),
        "sqrt": lambda: a.sqrt(),
        "neg": lambda: -a,
        "abs": lambda: a.abs(),
        "sign": lambda: a.sign(),
        "relu": lambda: a.relu(),
        "threshold_backward": lambda: aten.threshold_backward(a, b, 0),
        "clamp": lambda: a.clamp(-1, 1),
        "clamp_min": lambda: a.clamp(min=0),
        "clamp by tensors": lambda: a.clamp(b, c),
        "hardtanh": lambda: aten.hardtanh(a),
        "hardtanh_backward": lambda: aten.hardtanh_backward(a, b, -1, 1),
        "leaky_relu": lambda: aten.leaky_relu(a, 0.01),
        "leaky_relu_backward": lambda: aten.leaky_relu_backward(a, b, 0.01, False),
        "floor": lambda: a.floor(),
        "ceil": lambda: a.ceil(),
        "round": lambda: a.round(),
        "trunc": lambda: a.trunc(),
        "copysign": lambda: torch.copysign(a, b),
        "nan_to_num": lambda: a.nan_to_num(),
        "argmax": lambda: a.argmax(),
        "pow 2": lambda: a**2,
        "pow 3": lambda: a**3,
        "pow -1": lambda: a**-1,
        "pow -2": lambda: a**-2,
        "pow 0.5": lambda: a**0.5,
        "where": lambda: torch.where(mask, a, b),
        "masked_fill": lambda: a.masked_fill(mask, 1.0),
        "index": lambda: a[places],
        "index_put of a mask": lambda: a.clone().index_put_((mask,), b[mask]),
        "cat": lambda: torch.cat([a, b]),
        "flip": lambda: a.flip(0),
        "to float32": lambda: a.float(),
        "to float64": lambda: a.double(),
        "to float16": lambda: a.half(),
        "to bfloat16": lambda: a.bfloat16(),
        "lt": lambda: a < b,
        "sum of one each": lambda: a[:, None].sum(1),
        "arange": lambda: torch.arange(min(a.numel(), 200), dtype=a.dtype),
    }


def doubted(a, b, c):
    """Some of which promises.py says that they are not; of these only whether it says so."""
    x = torch.ones(3, 8, dtype=a.dtype)
    return {
        "add with alpha": lambda: torch.add(a, b, alpha=0.3),
        "sub with alpha": lambda: torch.sub(a, b, alpha=0.3),
        "addcmul": lambda: torch.addcmul(a, b, c),
        "lerp": lambda: torch.lerp(a, b, 0.3),
        "tanh_backward": lambda: aten.tanh_backward(a, b),
        "maximum": lambda: torch.maximum(a, b),
        "rsqrt": lambda: a.rsqrt(),
        "pow 4": lambda: a**4,
        "pow of a tensor": lambda: a.abs() ** b,
        "exp": lambda: a.exp(),
        "exp of whole numbers": lambda: torch.arange(7).exp(),
        "sum": lambda: a.sum(),
        "sum of 16 bits": lambda: a.half().sum(),
        "mean": lambda: a.mean(),
        "amax": lambda: a.amax(),
        "cumsum": lambda: a.cumsum(0),
        "softmax": lambda: a.float().softmax(0),
        "mm": lambda: x @ x.t(),
        "conv": lambda: torch.conv1d(x[None], x[None, :, :3]),
        "complex": lambda: a.to(torch.complex64) * 2,
        "randn": lambda: torch.randn(7),
        "rand": lambda: torch.rand(7),
        "dropout": lambda: torch.nn.functional.dropout(a, 0.5),
        "arange of fractions": lambda: torch.arange(0, 7, 0.1),
        "linspace": lambda: torch.linspace(0, 1, 7),
        "sort": lambda: a.sort(),
        "index_put with a sum": lambda: a.clone().index_put_((torch.tensor([0, 0]),), b[:2], True),
        "index_put of places": lambda: a.clone().index_put_((torch.tensor([0, 0]),), b[:2]),
        "scatter": lambda: a.clone().scatter_(0, torch.tensor([0, 0]), b),
        "index_add": lambda: a.index_add(0, torch.tensor([0, 0]), b[:2]),
        "upsample": lambda: torch.nn.functional.interpolate(x[None], 16, mode="linear"),
        "layer_norm": lambda: torch.layer_norm(x, (8,)),
        "bernoulli": lambda: torch.bernoulli(torch.full((7,), 0.5)),
        "foreach": lambda: torch._foreach_add([a], [b]),
    }


class Doubts(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if kind := promises.doubt(function, args, kwargs or {}, result):
            self.found.append(f"{function}: {kind}")
        return result


def digest(result):
    if result.is_floating_point():  # a NaN may have any bits
        result = torch.where(result.isnan(), torch.full_like(result, 7), result)
    found = result.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(found).hexdigest()


def main(threads):
    """{name: digest of its results for all sizes}, {name: doubts}"""
    torch.set_num_threads(threads)
    digests, doubts = {}, {}
    for dtype in DTYPES:
        for n in SIZES:
            a, b, c = (drawn(n, seed, dtype) for seed in range(3))
            for name, call in calls(a, b, c).items():
                digests.setdefault(f"{name} {dtype}", []).append(digest(call()))
                with Doubts() as mode:
                    call()
                doubts.setdefault(name, []).extend(mode.found)
    silent = []
    a, b, c = (drawn(7, seed, torch.float32) for seed in range(3))
    for name, call in doubted(a, b, c).items():
        with Doubts() as mode:
            call()
        if not mode.found:
            silent.append(name)
    return {
        "capability": torch.backends.cpu.get_cpu_capability(),
        "digests": digests,
        "doubts": {name: found for name, found in doubts.items() if found},
        "silent": silent,
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
