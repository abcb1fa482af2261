# SPDX-License-Identifier: Apache-2.0
"""Times functions of isobit.torch beside PyTorch's of the same arguments on the CPU, in turns in
one process: losses, embedding, norms of channels, pooling, convolutions, optimisers' steps, and
calls so small that what stands before the kernels decides."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from timing import TimedCall, time_interleaved

import isobit.torch as ours

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
import bench  # noqa: E402


class Case(NamedTuple):
    """theirs and mine take the same tensors; `like` are what the gradients are asked of."""

    name: str
    theirs: Callable
    mine: Callable
    tensors: Callable  # () -> the positional arguments
    wants: tuple = (0,)  # which of them need gradients; none: forward alone


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


def losses():
    for rows, classes in ((65536, 10), (8192, 1000), (2048, 50257)):
        yield Case(
            f"cross_entropy {rows}x{classes}",
            F.cross_entropy,
            ours.cross_entropy,
            lambda r=rows, c=classes: (randn(r, c), torch.randint(c, (r,))),
        )
    rows, features, classes = 1024, 768, 50257
    yield Case(
        f"linear and cross_entropy {rows}x{features}x{classes}",
        lambda x, w, y: F.cross_entropy(F.linear(x, w), y),
        ours.linear_cross_entropy,
        lambda: (
            randn(rows, features),
            randn(classes, features) / 28,
            torch.randint(classes, (rows,)),
        ),
        (0, 1),
    )


def tables():
    for tokens, entries, width in ((8192, 50257, 768), (4096, 30522, 768), (65536, 256, 256)):
        yield Case(
            f"embedding {tokens} of {entries}x{width}",
            F.embedding,
            ours.embedding,
            lambda t=tokens, e=entries, w=width: (torch.randint(e, (t,)), randn(e, w)),
            (1,),
        )


def training(batch_norm, x, weight, bias):
    return batch_norm(x, None, None, weight, bias, training=True)


def channel_norms():
    for shape in ((8, 64, 56, 56), (8, 512, 7, 7), (2, 128, 128, 128)):
        for memory in (torch.contiguous_format, torch.channels_last):
            tail = " channels last" if memory is torch.channels_last else ""
            size = "x".join(map(str, shape))

            def images(shape=shape, memory=memory):
                channels = shape[1]
                return randn(*shape).to(memory_format=memory), randn(channels), randn(channels)

            yield Case(
                f"batch_norm {size}{tail}",
                partial(training, F.batch_norm),
                partial(training, ours.batch_norm),
                images,
                (0, 1, 2),
            )
            yield Case(
                f"group_norm {size}{tail}",
                lambda x, w, b: F.group_norm(x, 32, w, b),
                lambda x, w, b: ours.group_norm(x, 32, w, b),
                images,
                (0, 1, 2),
            )


def pools():
    shape = (8, 64, 112, 112)
    for name, more in (
        ("max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
        ("avg_pool2d", {"kernel_size": 2}),
        ("adaptive_avg_pool2d", {"output_size": 1}),
    ):
        yield Case(
            f"{name} {'x'.join(map(str, shape))}",
            partial(getattr(F, name), **more),
            partial(getattr(ours, name), **more),
            lambda: (randn(*shape),),
        )


CONVOLUTIONS = {  # (batch, channels, side), filters, kernel, options
    "conv2d first layer 3 to 64, 7x7": ((8, 3, 224), 64, 7, {"stride": 2, "padding": 3}),
    "conv2d 64 to 64, 3x3": ((8, 64, 56), 64, 3, {"padding": 1}),
    "conv2d 256 to 256, 3x3": ((8, 256, 14), 256, 3, {"padding": 1}),
    "conv2d 256 to 64, 1x1": ((8, 256, 56), 64, 1, {}),
    "conv2d depthwise 144, 3x3": ((8, 144, 56), 144, 3, {"padding": 1, "groups": 144}),
    "conv2d one channel, 3x3": ((1, 1, 2048), 1, 3, {"padding": 1}),
    "conv2d one channel, 9x9": ((1, 1, 2048), 1, 9, {"padding": 4}),
}


def convolutions():
    for name, (images, filters, kernel, more) in CONVOLUTIONS.items():

        def tensors(images=images, filters=filters, kernel=kernel, more=more):
            batch, channels, side = images
            weight = randn(filters, channels // more.get("groups", 1), kernel, kernel)
            return randn(batch, channels, side, side), weight, randn(filters)

        yield Case(
            name, partial(F.conv2d, **more), partial(ours.conv2d, **more), tensors, (0, 1, 2)
        )
    for samples, taps in ((1024, 15), (65536, 15), (1048576, 3), (1048576, 15)):
        yield Case(
            f"conv1d one channel, {samples} by {taps}",
            partial(F.conv1d, padding=taps // 2),
            partial(ours.conv1d, padding=taps // 2),
            lambda n=samples, k=taps: (randn(1, 1, n), randn(1, 1, k), randn(1)),
            (0, 1, 2),
        )


def small_calls():
    def images():
        return randn(4, 8, 8, 8), randn(8), randn(8)

    yield Case(
        "linear 32x64 to 128",
        F.linear,
        ours.linear,
        lambda: (randn(32, 64), randn(128, 64), randn(128)),
        (0, 1, 2),
    )
    yield Case("mm 64x64", torch.mm, ours.mm, lambda: (randn(64, 64), randn(64, 64)), (0, 1))
    yield Case(
        "softmax 32x64",
        partial(torch.softmax, dim=-1),
        partial(ours.softmax, dim=-1),
        lambda: (randn(32, 64),),
    )
    yield Case(
        "cross_entropy 32x10",
        F.cross_entropy,
        ours.cross_entropy,
        lambda: (randn(32, 10), torch.randint(10, (32,))),
    )
    yield Case(
        "embedding 32 of 128x64",
        F.embedding,
        ours.embedding,
        lambda: (torch.randint(128, (32,)), randn(128, 64)),
        (1,),
    )
    yield Case(
        "batch_norm 4x8x8x8",
        partial(training, F.batch_norm),
        partial(training, ours.batch_norm),
        images,
        (0, 1, 2),
    )
    for of in ("max_pool2d", "avg_pool2d"):
        yield Case(
            f"{of} 4x8x8x8",
            partial(getattr(F, of), kernel_size=2),
            partial(getattr(ours, of), kernel_size=2),
            lambda: images()[:1],
        )


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 1e-3},
    "AdamW": {"lr": 1e-3},
}


def optimizer_steps():
    """Of GPT-2 small's parameters; one of PyTorch's in a single pass is beside the default."""
    sizes = [(50257, 768), (1024, 768)]
    sizes += [(768, 2304), (2304,), (768, 768), (768, 3072), (3072, 768), (768,), (768,)] * 12
    for name, more in OPTIMIZERS.items():

        def step_of(optimizer, **how):
            parameters = [torch.nn.Parameter(randn(*size)) for size in sizes]
            for each in parameters:
                each.grad = torch.randn_like(each)
            return optimizer(parameters, **how).step

        yield (
            name,
            {
                "torch": step_of(getattr(torch.optim, name), **more),
                "torch fused": step_of(getattr(torch.optim, name), fused=True, **more),
                "isobit": step_of(getattr(ours.optim, name), **more),
            },
        )
    gradients = [randn(*size) for size in sizes]
    yield (
        "get_total_norm",
        {
            "torch": partial(torch.nn.utils.get_total_norm, gradients),
            "isobit": partial(ours.get_total_norm, gradients),
        },
    )


GROUPS = {
    each.__name__: each
    for each in (losses, tables, channel_norms, pools, convolutions, small_calls)
}
STEPS = "optimizers"


def calls_of(case, backward):
    tensors = list(case.tensors())
    for place in case.wants if backward else ():
        tensors[place].requires_grad_()
    asked = [tensors[place] for place in case.wants]
    with torch.no_grad():
        like = torch.randn_like(case.theirs(*tensors))

    def both(function):
        return torch.autograd.grad(function(*tensors), asked, like)

    def forward(function):
        with torch.no_grad():
            return function(*tensors)

    call = both if backward else forward
    return {"torch": partial(call, case.theirs), "isobit": partial(call, case.mine)}


def lines(options):
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        for group in options.groups or (*GROUPS, STEPS):
            if group == STEPS:
                for name, calls in optimizer_steps():
                    yield line(name, "step", threads, calls, options)
                continue
            for case in GROUPS[group]():
                for backward in (False, True):
                    calls = calls_of(case, backward)
                    passes = "fwd+bwd" if backward else "fwd"
                    yield line(case.name, passes, threads, calls, options)


def line(name, passes, threads, calls, options):
    torch.manual_seed(0)
    timed = {by: TimedCall(call) for by, call in calls.items()}
    found = time_interleaved(timed, options.seconds, options.rounds)
    medians = {by: times.median for by, times in found.items()}
    spread = {by: [times.p20, times.p80] for by, times in found.items()}
    ratios = {by: value / medians["isobit"] for by, value in medians.items() if by != "isobit"}
    said = " ".join(f"{ratio:.2f} of {by}'s speed" for by, ratio in ratios.items())
    print(
        f"{name}, {passes}, {threads} threads: {medians['isobit'] * 1e6:.1f} us, {said}", flush=True
    )
    return {
        **{"case": name, "passes": passes, "threads": threads, "seconds": medians},
        **{"p20_p80": spread, "speed_beside": ratios},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    known = ", ".join((*GROUPS, STEPS))
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {known}; all if none")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=1, help="for each call, at least")
    parser.add_argument("--rounds", type=int, default=5, help="at least")
    parser.add_argument("--out", type=Path, help="a file for lines of JSON, after a header")
    options = parser.parse_args()
    found = list(lines(options))
    if options.out:
        head = bench.header([])
        head["command"] = " ".join(["bench/torch_operators.py", *sys.argv[1:]])
        options.out.write_text("".join(json.dumps(each) + "\n" for each in (head, *found)))


if __name__ == "__main__":
    main()
