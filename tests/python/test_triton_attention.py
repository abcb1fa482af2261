# SPDX-License-Identifier: Apache-2.0
"""Attention in Triton gives the library's bits in the interpreter, and compiles to its arithmetic.

A process of its own interprets: this file as a program (triton_interpreted.py).
"""

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))  # where it is a script, too
import triton_attention_calls as made  # noqa: E402
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402
from triton_interpreted import Call, interpret, named, require_the_librarys_bits  # noqa: E402

from isobit.ops.attention import triton as attention  # noqa: E402
from isobit.ops.triton_variants import DTYPES  # noqa: E402

OPTIONS = {"causal": "bottom_right", "window": 3000, "scale": -0.7, "softcap": 20.0}


CALLS = {
    f"{way} {name}": Call("attention", way, variant, *call)
    for way, variant, calls in (
        ("fwd", "flash", made.forward_calls()),
        ("bwd", "dq_dkdv", made.backward_calls()),
    )
    for name, *call in calls
}
CALLS["fwd five runs"] = made.Runs()


@named(CALLS)
def test_interpreted_attention_gives_the_bits_of_the_library(name, interpreted):
    require_the_librarys_bits(CALLS[name], interpreted[name])


def forward_arrays(dtype, dims=(128, 64), keys=5000):
    """Queries and keys of a packed array, whose heads lie apart."""
    shapes = {"q": (8, 512, dims[0]), "k": (2, keys, dims[0]), "v": (2, keys, dims[1])}
    shapes |= {"bias": (8, 512, keys), "y": (8, 512, dims[1])}
    arrays = {
        name: torch.empty(2, *shape, dtype=DTYPES[dtype], device="meta")
        for name, shape in shapes.items()
    }
    arrays["mask"] = torch.empty(2, 1, 1, keys, dtype=torch.bool, device="meta")
    arrays["mask"] = arrays["mask"].expand(2, 8, 512, keys)
    arrays["slopes"] = torch.empty(2, 8, device="meta")
    if dtype == "f32":
        ends = torch.empty(2, dtype=torch.int64, device="meta")
        arrays |= {"key_begin": ends, "key_end": ends}
    rows = torch.empty(2, 8, 512, device="meta")
    return arrays | {"lse": rows, "max": rows, "sum": rows}


def backward_arrays(dtype):
    arrays = forward_arrays(dtype)
    arrays |= {f"grad_{name}": arrays[name] for name in ("y", "q", "k", "v", "bias")}
    return arrays | {"grad_lse": arrays.pop("lse")}


def test_attention_declines_or_refuses_what_it_cannot():
    forward = attention.VARIANTS["flash"]
    given = {name: torch.empty(1, 1, 2, 300) for name in ("q", "k", "v", "y")}
    with pytest.raises(NotImplementedError, match="flash: heads of 300 elements; registers hold"):
        forward.run(**given)
    gradients = given | {"grad_y": given["y"], "max": given["y"][..., 0], "sum": given["y"][..., 0]}
    with pytest.raises(NotImplementedError, match="dq_dkdv: heads of 300 elements"):
        attention.VARIANTS["dq_dkdv"].run(**gradients)
    with pytest.raises(NotImplementedError, match="flash: it computes in float, not in f64"):
        forward.run(**{name: array.double() for name, array in given.items()})
    small = {name: array[..., :64] for name, array in given.items()}
    with pytest.raises(NotImplementedError, match="flash: it has the arithmetic canonical alone"):
        forward.run(**small, arithmetic="tensor")


WRONG = {
    "causal is 'left'; allowed: no, top_left, bottom_right": {"causal": "left"},
    "window is -1; must not be negative": {"window": -1},
    "scale is nan; must be finite": {"scale": float("nan")},
    "softcap is -2; must be finite and not negative": {"softcap": -2},
    "q has 3 heads; must have a multiple of k's 2": {
        "q": torch.empty(1, 3, 9, 3),
        "k": torch.empty(1, 2, 20, 3),
    },
    "q has 3 dimensions; must have 4": {"q": torch.empty(2, 9, 3)},
    r"k has shape (1, 1, 20, 3); must have (1, 1, 20, 4)": {"q": torch.empty(1, 2, 9, 4)},
    r"v has shape (1, 1, 19, 2); must have (1, 1, 20, 2)": {"v": torch.empty(1, 1, 19, 2)},
    r"y has shape (1, 2, 9, 3); must have (1, 2, 9, 2)": {"y": torch.empty(1, 2, 9, 3)},
    r"bias has shape (1, 1, 1, 20); must have (1, 2, 9, 20)": {"bias": torch.empty(1, 1, 1, 20)},
    r"slopes has shape (2,); must have (1, 2)": {"slopes": torch.empty(2)},
    r"key_end has shape (2,); must have (1,)": {"key_end": torch.zeros(2, dtype=torch.int64)},
    r"max has shape (1, 2, 8); must have (1, 2, 9)": {"max": torch.empty(1, 2, 8)},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_told_and_not_computed(words):
    given = made.forward_arrays("f32", made.SMALL) | WRONG[words]
    with pytest.raises(ValueError, match=re.escape(f"attention: {words}")):
        attention.VARIANTS["flash"].launches(**given)
    given.pop("lse")
    like_y = torch.empty(1, 2, 9, 2)
    with pytest.raises(ValueError, match=re.escape(f"attention: {words}")):
        attention.VARIANTS["dq_dkdv"].launches(**given, grad_y=like_y)


def test_a_gradient_has_the_shape_of_what_it_is_of():
    given = made.forward_arrays("f32", made.SMALL, results="y max sum")
    given |= {"grad_y": given["y"], "grad_v": torch.empty(1, 2, 20, 2)}
    with pytest.raises(ValueError, match=r"attention: grad_v has shape \(1, 2, 20, 2\); must"):
        attention.VARIANTS["dq_dkdv"].launches(**given)


@pytest.mark.parametrize("dtype", ("f32", pytest.param("bf16", marks=pytest.mark.full)))
def test_compiled_attention_rounds_as_it_is_told_and_spills_nothing(dtype, tmp_path):
    given = {"flash": forward_arrays(dtype), "dq_dkdv": backward_arrays(dtype)}
    launches = [
        launch
        for name, arrays in given.items()
        for launch in attention.VARIANTS[name].launches(**arrays, **OPTIONS)
    ]
    assert len(launches) == 3 + 5
    for launch in launches:
        ptx = check_for_nvidia(launch, tmp_path)
        last = launch.arguments.get("joined", "neither") is None
        assert "setp.nan" in ptx or not last  # the one NaN there is
        check_for_amd(launch)


if __name__ == "__main__":
    interpret(CALLS)
