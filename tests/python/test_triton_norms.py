# SPDX-License-Identifier: Apache-2.0
"""Norms in Triton as they are compiled, and what they refuse; test_triton.py has their bits."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402
from triton_norm_calls import NORMS  # noqa: E402

from isobit.ops.triton_variants import DTYPES, Case  # noqa: E402

COMPILED = [
    ("layernorm", "row_per_program", "f16", 1000),
    ("layernorm", "row_per_program", "f32", 16384),
    ("layernorm", "streamed", "f32", 65536),
    ("layernorm", "one_pass", "f32", 4096),
    ("layernorm", "two_pass", "bf16", 8192),
    ("layernorm", "two_pass", "f32", 65536),
    ("rmsnorm", "row_per_program", "f32", 16384),
    ("rmsnorm", "streamed", "bf16", 65536),
    ("rmsnorm", "one_pass", "f16", 1000),
    ("rmsnorm", "one_pass", "f32", 4096),
    ("rmsnorm", "two_pass", "bf16", 65536),
]
# Of the same kernels in other types and widths.
COMPILED += [
    pytest.param(*case, marks=pytest.mark.full)
    for case in (
        ("layernorm", "row_per_program", "bf16", 16384),
        ("layernorm", "one_pass", "f16", 1000),
        ("layernorm", "one_pass", "bf16", 4096),
        ("layernorm", "two_pass", "f32", 8192),
        ("rmsnorm", "two_pass", "f32", 8192),
    )
]


def launches(op, name, dtype, cols):
    """Those of arrays that need no memory."""
    variant = NORMS[op][name]
    x = torch.empty(40, cols, dtype=DTYPES[dtype], device="meta")
    weight, per_row = torch.empty(cols, device="meta"), torch.empty(40, device="meta")
    arrays = {
        "fwd": {"x": x, "weight": weight, "bias": weight, "y": x, "mean": per_row, "rstd": per_row},
        "bwd": {"x": x, "grad_y": x, "weight": weight, "grad_x": x, "grad_weight": weight},
    }[variant.kinds[0]]
    return variant.launches(**{each: arrays[each] for each in arrays if each in variant.takes})


@pytest.mark.parametrize(("op", "name", "dtype", "cols"), COMPILED)
def test_compiled_norms_round_as_they_are_told_and_spill_nothing(op, name, dtype, cols, tmp_path):
    for launch in launches(op, name, dtype, cols):
        # A NaN of the GPU's own has other bits, which no interpreter shows.
        assert "setp.nan" in check_for_nvidia(launch, tmp_path)
        check_for_amd(launch)


def test_products_melt_into_sums_where_the_formula_says_so_and_nowhere_else(tmp_path):
    (forward,) = launches("layernorm", "row_per_program", "f32", 4096)
    lane = 4096 // (32 * forward.warps)  # elements
    # y; the first fold of squares in two rounds and in the three of the long way, of which the
    # first of each is a sum alone; the variances of all rounds but those.
    assert check_for_nvidia(forward, tmp_path).count("fma.rn.f32") == lane + 3 * lane // 2 + 3


def test_rmsnorm_adds_squares_alone_and_takes_their_root_in_double(tmp_path):
    (forward,) = launches("rmsnorm", "row_per_program", "f32", 4096)
    lane = 4096 // (32 * forward.warps)
    ptx = check_for_nvidia(forward, tmp_path)
    # The first fold of squares, of x and of x scaled, and no sum of x beside it: half the folds of
    # lines are left to add, then five of lanes beside each other and what is left of the tile.
    assert ptx.count("fma.rn.f32") == 2 * lane // 2
    assert ptx.count("sub.rn.f32") == 0 and ptx.count("add.rn.f32") < 3 * lane
    for operation in ("add.rn.f64", "sqrt.rn.f64"):
        assert ptx.count(operation) == 2
    assert ptx.count("div.rn.f64") == 4


@pytest.mark.parametrize("op", NORMS)
def test_what_registers_do_not_hold_is_declined(op):
    variants = NORMS[op]

    def reason(variant, cols, dtype="f32"):
        x = torch.empty(2, cols, dtype=DTYPES[dtype], device="meta")
        return variants[variant].declines(Case.of(x=x))

    assert reason("one_pass", 4096) == reason("row_per_program", 16384) == ""
    assert reason("streamed", 2**22) == reason("two_pass", 2**22) == ""
    assert "16385 columns" in reason("row_per_program", 16385)
    assert "4097 columns" in reason("one_pass", 4097)
    assert reason("streamed", 2**22 + 1) and reason("two_pass", 2**22 + 1)
    assert "f64" in reason("streamed", 8, "f64")
    weight = torch.empty(8, dtype=torch.bfloat16)
    narrower = Case.of(x=torch.empty(2, 8), weight=weight)
    assert "weights of bf16 beside f32" in variants["streamed"].declines(narrower)
    x = torch.empty(2, 4097)
    with pytest.raises(NotImplementedError, match=r"one_pass: 4097 columns; registers hold"):
        variants["one_pass"].run(x=x, grad_y=x, grad_x=x)
    with pytest.raises(ValueError, match=r"streamed: y of shape .* has strides \(4097, 2\); its"):
        variants["streamed"].run(x=x, y=x[:, ::2])


@pytest.mark.parametrize("op", NORMS)
def test_arrays_that_do_not_fit_are_told_and_not_computed(op):
    x, wrong = torch.empty(2, 3, 8), torch.empty(7)
    for variant, names in {
        "row_per_program": ("weight", "y", "rstd"),
        "streamed": ("weight", "y", "rstd"),
        "one_pass": ("weight", "grad_x", "grad_weight"),
        "two_pass": ("weight", "grad_x", "grad_weight"),
    }.items():
        given = {"x": x, "grad_y": x} if variant.endswith("_pass") else {"x": x}
        for name in names:
            count = {"weight": 8, "grad_weight": 8, "rstd": 6}.get(name, 48)
            words = (
                rf"{op}: {name} has 7 elements; must have {count}, since x has shape \(2, 3, 8\)"
            )
            with pytest.raises(ValueError, match=words):
                NORMS[op][variant].launches(**given, **{name: wrong})


def test_arrays_that_a_norm_does_not_have_are_refused():
    x, per_row, weight = torch.empty(2, 8), torch.empty(2), torch.empty(8)
    rms, layer = NORMS["rmsnorm"], NORMS["layernorm"]
    with pytest.raises(TypeError, match="streamed: it does not take bias, mean"):
        rms["streamed"].run(x=x, y=x, bias=weight, mean=per_row)
    with pytest.raises(TypeError, match="two_pass: it does not take grad_bias"):
        rms["two_pass"].run(x=x, grad_y=x, grad_bias=weight)
    for name in ("one_pass", "two_pass"):
        with pytest.raises(ValueError, match="layernorm backward: mean is given without rstd"):
            layer[name].run(x=x, grad_y=x, grad_x=x, mean=per_row)
        with pytest.raises(ValueError, match="layernorm backward: rstd is given without mean"):
            layer[name].run(x=x, grad_y=x, grad_x=x, rstd=per_row)
