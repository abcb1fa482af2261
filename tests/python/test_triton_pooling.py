# SPDX-License-Identifier: Apache-2.0
"""pool2d in Triton compiles to its arithmetic; test_triton_lab.py has its bits interpreted."""

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402

from isobit.ops.pool2d.triton import VARIANTS  # noqa: E402

WINDOWS = {f"{name}_{side}": n for name, n in (("window", 3), ("stride", 2)) for side in "hw"}
BINS = {"bins_h": 3, "bins_w": 5}
X, Y, OF_BINS = (2, 6, 17, 19), (2, 6, 8, 9), (2, 6, 3, 5)


def empty(shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("options", [WINDOWS, BINS])
@pytest.mark.parametrize("reduction", ["max", "average"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backward", [False, True])
def test_compiled_pooling_rounds_as_it_is_told_and_spills_nothing(
    backward, dtype, reduction, options, tmp_path
):
    results = Y if options is WINDOWS else OF_BINS
    names = ("grad_x", "grad_y") if backward else ("x", "y")
    arrays = dict(zip(names, (empty(X, dtype), empty(results, dtype)), strict=True))
    if reduction == "max":
        arrays["index"] = empty(results, torch.int64)
    (launch,) = VARIANTS["gather"].launches(**arrays, **options, reduction=reduction)
    ptx = check_for_nvidia(launch, tmp_path)
    assert "setp.nan" in ptx or reduction == "max"
    assert bool(re.search(r"div\.rn\.f32", ptx)) == (reduction == "average")
    assert "atom." not in ptx and "red." not in ptx
    check_for_amd(launch)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window_h": 18}, "17 elements have 0 windows of 18"),
        ({"bins_h": 2}, r"\(2, 6, 8, 9\) are no results; must be \(2, 6, 2, 1\)"),
        ({**WINDOWS, "dilation_h": 0}, "17 elements have"),
    ],
)
def test_pooling_refuses_what_does_not_fit(given, said):
    x, y = torch.empty(X), torch.empty(Y)
    with pytest.raises(ValueError, match=f"^pool2d: {said}"):
        VARIANTS["gather"].run(x=x, y=y, **given)


def test_a_gradient_needs_the_index_of_what_was_largest_and_no_other():
    arrays = {"grad_x": torch.empty(X), "grad_y": torch.empty(Y)}
    with pytest.raises(ValueError, match="an index belongs to reduction max"):
        VARIANTS["gather"].run(**arrays, **WINDOWS)
    index = torch.zeros(Y, dtype=torch.int64)
    with pytest.raises(ValueError, match="an index belongs to reduction max"):
        VARIANTS["gather"].run(**arrays, index=index, **WINDOWS, reduction="average")
