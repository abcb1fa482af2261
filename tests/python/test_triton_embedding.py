# SPDX-License-Identifier: Apache-2.0
"""embedding in Triton compiles to its arithmetic; test_triton_lab.py has its bits interpreted."""

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402

from isobit.ops.embedding.triton import VARIANTS  # noqa: E402

TABLE, ROWS = (50, 130), (20, 130)


def empty(shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_compiled_rows_are_moved_in_bits(dtype, tmp_path):
    arrays = {"weight": empty(TABLE, dtype), "y": empty(ROWS, dtype)}
    (launch,) = VARIANTS["row_per_program"].launches(index=empty(ROWS[:1], torch.int64), **arrays)
    ptx = check_for_nvidia(launch, tmp_path)
    assert "cvt.rn" not in ptx
    check_for_amd(launch)


@pytest.mark.parametrize("by_frequency", ["no", "yes"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_sums_add_in_registers_and_divide_as_they_are_told(dtype, by_frequency, tmp_path):
    arrays = {"grad_y": empty(ROWS, dtype), "grad_weight": empty(TABLE, dtype)}
    (launch,) = VARIANTS["sorted"].launches(
        index=empty(ROWS[:1], torch.int32), **arrays, scale_grad_by_freq=by_frequency
    )
    ptx = check_for_nvidia(launch, tmp_path)
    assert bool(re.search(r"div\.rn\.f32", ptx)) == (by_frequency == "yes")
    assert "atom." not in ptx and "red." not in ptx
    check_for_amd(launch)


def test_what_does_not_fit_is_refused():
    index = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"^embedding: rows, index and table have the shapes"):
        VARIANTS["row_per_program"].run(weight=torch.ones(2, 5), index=index, y=torch.ones(4, 5))
    with pytest.raises(ValueError, match=r"\(3, 5\), \(3,\), \(2, 4\)$"):
        grad = {"grad_y": torch.ones(3, 5), "grad_weight": torch.ones(2, 4)}
        VARIANTS["sorted"].run(index=index, **grad)
