# SPDX-License-Identifier: Apache-2.0
"""Autocast chooses the types that it chooses for PyTorch's norms and activations."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_calls import draw

import isobit.torch
from isobit.torch.activations import CODES


@contextlib.contextmanager
def autocast_for_cuda():
    """torch.autocast does nothing where there is no GPU."""
    torch.set_autocast_enabled("cuda", True)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()
        torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_autocast_chooses_the_dtypes_that_it_chooses_for_torch(dtype, monkeypatch):
    with torch.autocast("cpu", torch.bfloat16):
        x = draw(4, 8, dtype=dtype)
        assert isobit.torch.layer_norm(x, (8,)).dtype == F.layer_norm(x, (8,)).dtype
        assert isobit.torch.rms_norm(x, (8,)).dtype == F.rms_norm(x, (8,)).dtype
    with FakeTensorMode(), autocast_for_cuda():
        x, weight = torch.empty(4, 8, dtype=dtype, device="cuda"), torch.empty(8, device="cuda")
        theirs = F.layer_norm(x, (8,), weight.to(dtype)).dtype
        y, total = isobit.torch.add_rms_norm(x, x, (8,), weight)
        assert (y.dtype, total.dtype) == (theirs, dtype)
        assert isobit.torch.layer_norm(x, (8,), weight).dtype == theirs
        assert torch.ops.isobit.layer_norm(x, weight, None, 1e-3).dtype == theirs
        narrow = isobit.torch.rms_norm(x, (8,), weight, out_dtype=torch.bfloat16)
        assert narrow.dtype == torch.bfloat16
        monkeypatch.setattr(isobit.torch.settings, "autocast_keeps_dtype", True)
        assert isobit.torch.layer_norm(x, (8,), weight).dtype == dtype


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid", "tanh", "gelu", "silu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_autocast_widens_exp_and_log_for_cuda_and_no_other_activation(dtype, name):
    ours = getattr(isobit.torch, name)
    theirs = getattr(F if name in ("gelu", "silu") else torch, name)
    with torch.autocast("cpu", torch.bfloat16):
        x = draw(4, 8, dtype=dtype).abs()
        assert ours(x).dtype == theirs(x).dtype == dtype
    with FakeTensorMode(), autocast_for_cuda():
        x = torch.empty(4, 8, dtype=dtype, device="cuda")
        assert ours(x).dtype == theirs(x).dtype
        gated = torch.ops.isobit.gated_activation(x, x, CODES[name])
        assert gated.dtype == (x * theirs(x)).dtype
