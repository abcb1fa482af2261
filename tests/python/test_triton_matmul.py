# SPDX-License-Identifier: Apache-2.0
"""Products in Triton as they are compiled, and what they refuse; test_triton.py has their bits."""

import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402

from isobit.ops.matmul import triton as matmul  # noqa: E402
from isobit.ops.triton_variants import DTYPES  # noqa: E402

REALS = ("f32", "f16", "bf16", "f64")


def test_matmul_declines_or_refuses_what_it_cannot():
    x, y = torch.empty(2, 2), torch.empty(2, 2).double()
    (multiply,) = matmul.VARIANTS.values()
    with pytest.raises(ValueError, match="matmul: beta is 2, but c is not given"):
        multiply.run(a=x, b=x, y=x, beta=2)
    with pytest.raises(ValueError, match="matmul: activation is relu, but pre is not given"):
        multiply.run(a=x, b=x, grad_y=x, grad_a=y.float(), activation="relu")
    with pytest.raises(NotImplementedError, match="it computes gelu in float, not in f64"):
        multiply.run(a=y, b=y, y=y, activation="gelu")


@pytest.mark.parametrize("dtype", REALS)
def test_compiled_products_are_fused_in_registers_and_spill_nothing(dtype, tmp_path):
    a, b, y = (
        torch.empty(2, *shape, dtype=DTYPES[dtype], device="meta")
        for shape in ((256, 8193), (8193, 512), (256, 512))
    )
    given = {"c": y, "residual": y, "pre": y, "bias": y[0, 0], "y": y, "alpha": 0.7, "beta": -1.3}
    given["activation"] = "relu" if dtype == "f64" else "gelu"
    (variant,) = matmul.VARIANTS.values()
    tiles, add = variant.launches(a=a, b=b, **given)
    (whole,) = variant.launches(a=a[..., 1:], b=b[:, 1:], **given)
    assert "setp.nan" in check_for_nvidia(add, tmp_path)
    assert "setp.nan" in check_for_nvidia(whole, tmp_path)
    ptx = check_for_nvidia(tiles, tmp_path)
    # Of a k, a thread loads elements of 8 rows (of doubles 4) and 4 columns once.
    rows = 4 if dtype == "f64" else 8
    assert len(re.findall(r"ld\.global", ptx)) == rows + 4
    assert ptx.count(f"fma.rn.f{'64' if dtype == 'f64' else '32'}") == rows * 4
    for launch in (tiles, add, whole):
        check_for_amd(launch)


@pytest.mark.parametrize("dtype", REALS)
def test_compiled_gradients_round_as_they_are_told_and_spill_nothing(dtype, tmp_path):
    a, b, y = (
        torch.empty(2, *shape, dtype=DTYPES[dtype], device="meta")
        for shape in ((4100, 256), (256, 512), (4100, 512))
    )
    arrays = {"a": a, "b": b, "grad_y": y, "pre": y, "grad_a": a, "grad_b": b, "grad_c": y}
    activation = "relu" if dtype == "f64" else "gelu"
    given = {"alpha": 0.7, "beta": -1.3, "activation": activation, "grad_bias": y[0, 0]}
    (variant,) = matmul.VARIANTS.values()
    rows, fold, last, to_a, to_b = variant.launches(**arrays, **given)
    for launch in (rows, fold, last, to_a, to_b):
        assert "setp.nan" in check_for_nvidia(launch, tmp_path)
        check_for_amd(launch)
