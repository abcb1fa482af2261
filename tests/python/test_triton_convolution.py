# SPDX-License-Identifier: Apache-2.0
"""Convolutions in Triton as they are compiled, and what they refuse; test_triton.py has their
bits."""

import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402
from triton_convolutions import numbers  # noqa: E402

from isobit.ops.conv1d import triton as conv1d  # noqa: E402
from isobit.ops.conv2d import triton as conv2d  # noqa: E402
from isobit.ops.triton_variants import DTYPES  # noqa: E402

REALS = ("f32", "f16", "bf16", "f64")


def test_convolutions_decline_or_refuse_what_they_cannot():
    x, weight, y = torch.empty(1, 2, 5), torch.empty(3, 2, 2), torch.empty(1, 3, 4)
    wide = {"x": x.double(), "weight": weight.double(), "y": y.double()}
    for variant in conv1d.VARIANTS.values():
        with pytest.raises(
            ValueError, match=r"conv1d: y has shape \(1, 3, 4\); must have \(1, 3, 6"
        ):
            variant.run(x=x, weight=weight, y=y, padding=1)
        with pytest.raises(ValueError, match="conv1d: padding_mode is 'edge'; allowed: zeros, ref"):
            variant.run(x=x, weight=weight, y=y, padding_mode="edge")
        with pytest.raises(
            ValueError, match="conv1d: x has 2 channels, weight 3 filters of 2; in 2"
        ):
            variant.run(x=x, weight=weight, y=y, groups=2)
        with pytest.raises(ValueError, match="conv1d: stride is 0; must be at least 1"):
            variant.run(x=x, weight=weight, y=y, stride=0)
        with pytest.raises(NotImplementedError, match="it computes silu in float, not in f64"):
            variant.run(**wide, activation="silu")
    x, weight, y = (each[:, :, None] for each in (x, weight, y))
    with pytest.raises(ValueError, match=r"conv2d: grad_y has shape \(1, 3, 1, 4\); must have"):
        conv2d.VARIANTS["direct"].run(x=x, weight=weight, grad_y=y, grad_x=x, stride_w=2)
    given = {"x": x, "weight": weight, "grad_y": y, "padding_mode": "circular"}
    with pytest.raises(NotImplementedError, match="grad_x where zeros are padded, not where"):
        conv2d.VARIANTS["implicit"].run(**given, grad_x=x)


def launches(operator, name, dtype, dims, *, backward=False, channels=64, mode="zeros"):
    """Of whole tiles, which have everything that may be added."""

    def empty(*shape):
        return torch.empty(shape, dtype=DTYPES[dtype], device="meta")

    options = {"groups": 2, "stride": 2, "dilation": 2, "padding": 3, "padding_mode": mode}
    x, weight = empty(8, channels, *(56, 60)[-dims:]), empty(128, channels // 2, *(3, 3)[-dims:])
    y, bias = empty(8, 128, *(29, 31)[-dims:]), empty(128)
    given = {"x": x, "weight": weight, **numbers(dims, **options)}
    if backward:
        given |= {"grad_y": y, "grad_x": x, "grad_weight": weight, "grad_bias": bias}
    else:
        given |= {"y": y, "bias": bias, "residual": y, "pre": y}
        given |= {"activation": "relu" if dtype == "f64" else "gelu"}
    return list(operator.VARIANTS[name].launches(**given))


@pytest.mark.repeats
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", conv2d.VARIANTS)
def test_compiled_convolutions_round_as_they_are_told_and_spill_nothing(name, dtype, tmp_path):
    mode = "zeros" if name == "implicit" else "reflect"
    every = launches(conv2d, name, dtype, 2, mode=mode)
    every += launches(conv2d, name, dtype, 2, backward=True, mode=mode)[:2]
    assert [launch.kernel.fn.__name__ for launch in every] == [every[0].kernel.fn.__name__] * 3
    real = "64" if dtype == "f64" else "32"
    for launch in every:
        ptx = check_for_nvidia(launch, tmp_path)
        assert "setp.nan" in ptx and f"fma.rn.f{real}" in ptx
        check_for_amd(launch)
    if name == "implicit":
        # Of a k, a thread loads elements of 8 filters (of doubles 4) and 4 places once.
        rows = 4 if dtype == "f64" else 8
        assert len(re.findall(r"ld\.global", check_for_nvidia(every[1], tmp_path))) == rows + 4


def test_compiled_runs_of_long_windows_spill_nothing(tmp_path):
    tiles, add = launches(conv1d, "implicit", "f32", 1, channels=6000)
    for launch in (tiles, add):
        check_for_nvidia(launch, tmp_path)
        check_for_amd(launch)
    (direct,) = launches(conv1d, "direct", "f32", 1, channels=6000)
    assert direct.arguments["LEVELS"] == 2
    check_for_nvidia(direct, tmp_path)
    check_for_amd(direct)
