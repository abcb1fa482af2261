# SPDX-License-Identifier: Apache-2.0
"""softmax in Triton gives the library's bits in the interpreter, and compiles to its arithmetic.

A process of its own interprets: this file as a program (triton_interpreted.py).
"""

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))  # where it is a script, too
import triton_softmax_calls as made  # noqa: E402
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402
from triton_interpreted import Call, interpret, named, require_the_librarys_bits  # noqa: E402

from isobit.ops.softmax.triton import VARIANTS  # noqa: E402
from isobit.ops.triton_variants import DTYPES, Case  # noqa: E402

CALLS = {name: Call("softmax", *call) for name, *call in made.softmax_calls()}


@named(CALLS)
def test_interpreted_softmax_gives_the_bits_of_the_library(name, interpreted):
    require_the_librarys_bits(CALLS[name], interpreted[name])


def arrays_of(way, cols, dtype="f32", y_dtype=None, mask=True):
    """Those that need no memory."""
    x = torch.empty(40, cols, dtype=DTYPES[dtype], device="meta")
    y = x.to(DTYPES[y_dtype or dtype])
    given = {"x": x, "y": y} if way == "fwd" else {"y": y, "grad_y": y, "grad_x": x}
    return given | ({"mask": x > 0} if mask else {})


COMPILED = [
    ("fwd", "row_per_program", "no", 32768, "f32"),
    ("fwd", "row_per_program", "yes", 8192, "f32"),
    ("fwd", "streamed", "yes", 65536, "bf16"),
    ("bwd", "row_per_program", "no", 16384, "f16"),
    ("bwd", "row_per_program", "yes", 16384, "f32"),
    ("bwd", "streamed", "yes", 65536, "bf16"),
]


@pytest.mark.parametrize(("way", "name", "log", "cols", "dtype"), COMPILED)
def test_compiled_softmax_rounds_as_it_is_told_and_spills_nothing(
    way, name, log, cols, dtype, tmp_path
):
    arrays = arrays_of(way, cols, dtype, "f32")
    (launch,) = VARIANTS[name].launches(**arrays, scale=-0.7, log=log)
    # A NaN of the GPU's own has other bits, which no interpreter shows.
    ptx = check_for_nvidia(launch, tmp_path)
    assert "setp.nan" in ptx
    # The sum of gradients is never -0, which no interpreter shows either: its sums begin with +0.
    assert way == "fwd" or re.search(r"add\.rn\.f32\s+%\w+, %\w+, 0f00000000", ptx)
    check_for_amd(launch)


def test_a_scale_of_one_and_a_mask_that_is_not_there_cost_nothing(tmp_path):
    def made_of(scale, mask):
        arrays = arrays_of("fwd", 4096, mask=mask)
        (launch,) = VARIANTS["row_per_program"].launches(**arrays, scale=scale)
        return check_for_nvidia(launch, tmp_path), 4096 // (32 * launch.warps)

    (plain, lane), (scaled, _), (masked, _) = (
        made_of(1, False),
        made_of(0.7, False),
        made_of(1, True),
    )
    # Two products of numbers and one with what the scale's first part lacks.
    assert scaled.count("fma.rn.f32") - plain.count("fma.rn.f32") == 3 * lane
    # An element is read once, and its weight computed once.
    read = r"ld\.global(?:\.v(\d))?\.b32"
    assert sum(int(found or 1) for found in re.findall(read, plain)) == lane
    assert len(re.findall(r"ld\.global", masked)) > len(re.findall(r"ld\.global", plain))
    assert plain.count("div.rn.f32") == 1


def test_what_softmax_cannot_hold_is_declined():
    def reason(name, way, cols, log="no", dtype="f32"):
        case = Case.of(**arrays_of(way, cols, dtype), log=log)
        return VARIANTS[name].declines(case)

    assert reason("row_per_program", "fwd", 32768) == reason("row_per_program", "bwd", 16384) == ""
    assert reason("row_per_program", "fwd", 8192, "yes") == ""
    assert reason("streamed", "fwd", 2**22) == reason("streamed", "bwd", 2**22, "yes") == ""
    for way in ("fwd", "bwd"):
        said = f"{2**22 + 1} columns; a program keeps the sums of at most {2**22}"
        assert reason("streamed", way, 2**22 + 1) == said
        assert reason("streamed", way, 8, dtype="f64") == "it computes in float, not in f64"
    for way, log, most in (("fwd", "no", 32768), ("fwd", "yes", 8192), ("bwd", "yes", 16384)):
        said = f"{most + 1} columns; registers hold at most {most}"
        assert reason("row_per_program", way, most + 1, log) == said
    number = torch.tensor(1.0)
    with pytest.raises(NotImplementedError, match="streamed: y has no dimension"):
        VARIANTS["streamed"].run(x=number, y=number)


REFUSED = (
    ({"scale": 0}, "scale is 0; must be another number, 1 for none"),
    ({"scale": float("nan")}, "scale is nan; must be within the range of float"),
    ({"scale": -1e39}, r"scale is -1e\+39; must be within the range of float"),
    ({"log": True}, "log is True; allowed: no, yes"),
    ({"mask": torch.empty(2, 3).bool()}, r"mask has shape \(2, 3\); must have that of x, \(2, 4\)"),
    ({"mask": torch.empty(2, 4)}, "mask is torch.float32; must be torch.bool or torch.uint8"),
    ({"y": torch.empty(2, 4).half()}, "y is torch.float16; must be torch.float32"),
    ({"grad_y": torch.empty(2, 4).half()}, "grad_y is torch.float16; must be torch.float32"),
    ({"grad_y": torch.empty(3, 4)}, r"grad_y has shape \(3, 4\); must have that of grad_x"),
)


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_softmax_refuses_what_the_library_refuses(given, said):
    x = torch.empty(2, 4)
    arrays = {"y": x, "grad_x": x} if "grad_y" in given else {"x": x, "y": x}
    for variant in VARIANTS.values():
        with pytest.raises(ValueError, match=f"^softmax: {said}"):
            variant.run(**arrays | given)


if __name__ == "__main__":
    interpret(CALLS)
