# SPDX-License-Identifier: Apache-2.0
"""The adapter for CUDA tensors on a GPU: a script, since a borrowed machine may lack pytest.

With --device cpu it says the same of CPU tensors, which shows that the script itself works.
"""

import argparse
import sys
import traceback

import torch

import isobit.torch

SHAPES = ((1, 1), (3, 5), (37, 768), (1000, 1000), (5, 8192), (2, 65536))
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def draw(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def same(ours, expected):
    """Bit for bit, as NaN has one pattern."""
    one, other = (t.detach().cpu().contiguous().view(torch.uint8) for t in (ours, expected))
    assert torch.equal(one, other)


def everything(call, tensors, device):
    """Results and gradients of a call, with its tensors on a device."""
    leaves = [t.to(device).requires_grad_() for t in tensors]
    outputs = call(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    to = [draw(*y.shape, dtype=y.dtype, seed=9).to(device) for y in outputs]
    return [*outputs, *torch.autograd.grad(outputs, leaves, to)]


def calls(shape, dtype):
    columns = shape[-1]
    x, r = (draw(*shape, dtype=dtype, seed=i) for i in (0, 1))
    w, b = (draw(columns, dtype=dtype, seed=i) for i in (2, 3))
    functional = isobit.torch
    yield lambda x, w, b: functional.layer_norm(x, columns, w, b), (x, w, b)
    yield lambda x, w: functional.rms_norm(x, columns, w), (x, w)
    yield lambda x, r, w: functional.add_rms_norm(x, r, columns, w), (x, r, w)
    yield (
        lambda x, r, w, b: functional.dropout_add_layer_norm(x, r, columns, w, b, 0.3, seed=5),
        (x, r, w, b),
    )


@check
def bits_are_those_of_the_processor(device):
    for shape in SHAPES[:3] if device == "cpu" else SHAPES:
        for dtype in DTYPES:
            for call, tensors in calls(shape, dtype):
                ours = everything(call, tensors, device)
                for one, other in zip(ours, everything(call, tensors, "cpu"), strict=True):
                    assert one.device.type == torch.device(device).type
                    same(one, other)


@check
def any_strides_are_taken(device):
    x = draw(64, 96).to(device)
    for view in (x.T, x[::2], x[:, ::3], x[:1].expand(9, 96)):
        same(
            isobit.torch.layer_norm(view, view.shape[-1]),
            isobit.torch.layer_norm(view.contiguous(), view.shape[-1]),
        )


@check
def the_current_stream_is_taken(device):
    x = draw(4096, 1024).to(device)
    expected = isobit.torch.layer_norm(x, 1024)
    if device == "cpu":
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = torch.zeros_like(x)
        for _ in range(20):
            y = isobit.torch.layer_norm(x + 0 * y, 1024)
    stream.synchronize()
    same(y, expected)


@check
def graphs_are_captured_and_replayed(device):
    if device == "cpu":
        return
    x = draw(512, 1024).to(device)
    for _ in range(3):
        isobit.torch.layer_norm(x, 1024)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = isobit.torch.layer_norm(x, 1024)
    x.copy_(draw(512, 1024, seed=3))
    graph.replay()
    torch.cuda.synchronize()
    same(y, isobit.torch.layer_norm(x, 1024))


@check
def autocast_gives_what_pytorch_gives(device):
    x = draw(8, 64, dtype=torch.bfloat16).to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        ours = isobit.torch.layer_norm(x, 64)
        theirs = torch.nn.functional.layer_norm(x, (64,))
    assert ours.dtype == theirs.dtype


@check
def compiled_code_gives_the_bits_of_eager(device):
    # Others' tests compile C++ for the processor.
    backend = "aot_eager" if device == "cpu" else "inductor"
    norm = isobit.torch.LayerNorm(768, device=device)
    x = draw(64, 768).to(device)
    same(torch.compile(norm, backend=backend)(x), norm(x))


@check
def errors_are_those_of_the_processor(device):
    x = draw(4, 8).to(device)
    for call in (
        lambda: isobit.torch.layer_norm(x, 7),
        lambda: isobit.torch.layer_norm(x, 8, draw(7).to(device)),
        lambda: isobit.torch.layer_norm(x.long(), 8),
    ):
        try:
            call()
        except ValueError as error:
            assert "8" in str(error) or "float32" in str(error)
        else:
            raise AssertionError("no ValueError")


@check
def tensors_of_two_devices_are_an_error(device):
    ops, other = torch.ops.isobit, "meta" if device == "cpu" else "cpu"
    here, there = draw(4, 8).to(device), draw(4, 8).to(other)
    for call in (
        lambda: isobit.torch.layer_norm(here, 8, there[0]),
        lambda: isobit.torch.add_rms_norm(there, here, 8),
        lambda: ops._layer_norm(here, there[0], None, 1e-5),
        lambda: ops._layer_norm(there, here[0], None, 1e-5),
        lambda: ops._rms_norm_backward(there, here, None, 1e-5),
        lambda: ops._add(here, there),
    ):
        try:
            call()
        except ValueError as error:
            assert f" is on {other}" in str(error) and f" is on {device}" in str(error)
        else:
            raise AssertionError("no ValueError")


@check
def nothing_grows(device):
    if device == "cpu":
        return
    x = draw(256, 1024).to(device).requires_grad_()
    used = []
    for _ in range(200):
        isobit.torch.layer_norm(x, 1024).sum().backward()
        x.grad = None
        torch.cuda.synchronize()
        used.append(torch.cuda.memory_allocated())
    assert used[-1] == used[20]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    device = parser.parse_args().device
    failed = []
    for function in CHECKS:
        try:
            function(device)
        except Exception:
            traceback.print_exc()
            failed.append(function.__name__)
    print(f"torch {torch.__version__}: {len(CHECKS)} checks, {', '.join(failed) or 'none'} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
