# SPDX-License-Identifier: Apache-2.0
"""cross_entropy in Triton compiles to its arithmetic, and refuses what the library refuses;
test_triton_lab.py has its bits interpreted."""

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402

from isobit.ops.cross_entropy.triton import VARIANTS  # noqa: E402
from isobit.ops.linear_cross_entropy.triton import VARIANTS as OF_LAYER  # noqa: E402
from isobit.ops.triton_variants import Case  # noqa: E402

EVERY = {"label_smoothing": 0.1, "z_loss": 0.01}


def arrays_of(way, cols, dtype=torch.float32, rows=40, device="meta", weight=True):
    """Those that need no memory."""
    x = torch.zeros(rows, cols, dtype=dtype, device=device)
    of_rows = x.new_zeros(rows, dtype=torch.float32)
    given = {"x": x, "target": of_rows.long(), "largest": of_rows, "sum": of_rows}
    given |= {"weight": of_rows.new_ones(cols)} if weight else {}
    if way == "bwd":
        return given | {"grad_loss": of_rows, "grad_x": x}
    return given | {"loss": of_rows, "lse": of_rows, "total": of_rows[:1], "count": of_rows[:1]}


COMPILED = [
    ("fwd", "row_per_program", 8192, torch.float32),
    ("fwd", "streamed", 50257, torch.bfloat16),
    ("bwd", "row_per_program", 8192, torch.float32),
    ("bwd", "streamed", 50257, torch.bfloat16),
]


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="plain", marks=pytest.mark.full), pytest.param(EVERY, id="every")],
)
@pytest.mark.parametrize(("way", "name", "cols", "dtype"), COMPILED)
def test_compiled_losses_round_as_they_are_told_and_spill_nothing(
    way, name, cols, dtype, options, tmp_path
):
    launches = VARIANTS[name].launches(**arrays_of(way, cols, dtype), **options)
    for launch in launches:
        ptx = check_for_nvidia(launch, tmp_path)
        assert not re.search(r"\b(atom|red)\.", ptx)
        check_for_amd(launch)
    assert way == "fwd" or re.search(r"rcp\.rn\.f32|div\.rn\.f32", ptx)


def test_a_share_that_there_is_not_costs_nothing(tmp_path):
    def made_of(**options):
        arrays = arrays_of("bwd", 4096, weight=False)
        (launch,) = VARIANTS["row_per_program"].launches(**arrays, **options)
        return check_for_nvidia(launch, tmp_path).count("fma.rn.f32")

    assert made_of() < made_of(z_loss=0.1) < made_of(label_smoothing=0.1, z_loss=0.1)


def test_what_it_cannot_hold_is_declined():
    def reason(name, cols, dtype=torch.float32):
        return VARIANTS[name].declines(Case.of(**arrays_of("fwd", cols, dtype)))

    assert reason("row_per_program", 8192) == reason("streamed", 50257) == ""
    assert reason("row_per_program", 8193) == "8193 columns; registers hold at most 8192"
    assert reason("streamed", 2**22 + 1).endswith("a program keeps the sums of at most 4194304")
    assert reason("streamed", 8, torch.float64) == "it computes in float, not in f64"
    number = torch.tensor(1.0)
    assert VARIANTS["streamed"].declines(Case.of(x=number)) == "x has no dimension"
    assert OF_LAYER["unfused"].declines(Case.of(x=number)) == "x has no dimension"
    of_doubles = Case.of(x=number.double())
    assert OF_LAYER["unfused"].declines(of_doubles) == "it computes in float, not in f64"


REFUSED = (
    ({"label_smoothing": 1.5}, "label_smoothing is 1.5; allowed: 0 to 1"),
    ({"z_loss": float("nan")}, "z_loss is nan; must be within the range of float"),
    ({"target": torch.zeros(2).int()}, "target is torch.int32; must be torch.int64"),
    ({"loss": torch.zeros(2).half()}, "loss is torch.float16; must be torch.float32"),
    ({"weight": torch.zeros(3)}, r"weight has shape \(3,\), of which cols is 3; must be 4"),
)


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_it_refuses_what_the_library_refuses(given, said):
    arrays = arrays_of("fwd", 4, rows=2, device="cpu")
    for variant in VARIANTS.values():
        with pytest.raises(ValueError, match=f"^cross_entropy: {said}"):
            variant.run(**arrays | given)
