# SPDX-License-Identifier: Apache-2.0
"""Losses of elements, dropout, random numbers, reductions and interpolation in Triton compile to
their arithmetic, have the bits of the library in the interpreter, those of unusual numbers,
dimensions and strides too, and refuse what the library refuses.

A process of its own interprets: this file as a program (triton_interpreted.py).
"""

import importlib
import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402
from triton_interpreted import Call, interpret, named, require_the_librarys_bits  # noqa: E402
from triton_verified import verified  # noqa: E402

from isobit.ops.triton_variants import Case  # noqa: E402

FUNCTIONS = ("mse", "l1", "smooth_l1", "huber", "bce_with_logits")
REDUCTIONS = ("sum", "mean", "var", "std", "l2", "l1", "largest", "smallest", "nonzero")
REDUCTIONS += ("max", "min")
FORMS = ("sum", "std", "l1", "max")  # one of each form of gradients
BOUNDS = ("largest", "smallest", "max", "min")
UNREAD = ("sum", "mean", "nonzero")  # whose gradients do not depend on x
ENDS = torch.tensor([0.0, -0.0, 1e-45, -1e-40, 0.5, 3e38, *map(float, ("inf", "-inf", "nan"))])
DOUBLES = torch.tensor([-0.0, 5e-324, -3e-310, 0.7, -37.5, 1e308, -750, float("-inf")]).double()
IN_PARTS = (4, 3, 2, 5, 7)  # of which two dimensions are kept


def variants(op):
    return importlib.import_module(f"isobit.ops.{op}.triton").VARIANTS


def losses(function, backward, ends=ENDS):
    """Of all pairs of such numbers."""
    x, target = ends.repeat_interleave(len(ends))[None], ends.repeat(len(ends))[None]
    arrays = {"x": x, "target": target, "weight": target.roll(4, 1)}
    if function == "bce_with_logits":
        arrays["pos_weight"] = x.roll(7, 1)
    if backward:
        return arrays | {"grad_loss": torch.full_like(x, -0.3), "grad_x": torch.full_like(x, 99)}
    return arrays | {"loss": torch.full_like(x, 99)}


def rows():
    """Of which sums leave the range, or have infinities and NaN."""
    found = torch.randn(6, 70, generator=torch.Generator().manual_seed(3)) * 10
    found[0] *= 3e37
    found[1, 3:5] = torch.tensor([3e38, 3e38])
    found[1, 6:9] = -3e38
    found[2, 5], found[3, 5], found[4, 5] = ENDS[-3], ENDS[-2], ENDS[-1]
    found[5, 7], found[5, 9] = ENDS[-3], ENDS[-2]
    return {"x": found, "y": torch.full((6,), 99.0)}


def in_parts(dims):
    """Some dimensions of an array in another order: first those that are kept."""
    whole = torch.randn(IN_PARTS, generator=torch.Generator().manual_seed(4))
    x = whole.permute(dims)
    return {"x": x, "y": torch.full(x.shape[1::-1], 99.0).t()}


def gradients(reduction, x, y):
    """The same of backward; grad_x lies in another order than x."""
    grad_y = torch.linspace(-2, 3, y.numel()).reshape(y.shape)
    grad_x = torch.full(x.shape[::-1], 99.0).permute(tuple(range(x.dim()))[::-1])
    arrays = {"grad_y": grad_y, "grad_x": grad_x}
    return arrays if reduction in UNREAD else {"x": x} | arrays


def ties():
    """Of several largest and smallest elements, zeros of both signs among them, and constants."""
    x = torch.tensor([[2.0, -2, 0, 2], [0.0, -0.0, 0, 0], [-1, -1, -3, -3], [5, 5, 5, 5]])
    return {"x": x, "y": torch.full((4,), 99.0)}


def calls():
    for function in FUNCTIONS:
        for way in ("fwd", "bwd"):
            arrays = losses(function, way == "bwd")
            yield Call("pointwise_loss", way, "vec16", arrays, {"function": function, "beta": 0.75})
    for way in ("fwd", "bwd"):
        arrays = losses("bce_with_logits", way == "bwd", DOUBLES)
        yield Call("pointwise_loss", way, "naive", arrays, {"function": "bce_with_logits"})
    for reduction in REDUCTIONS:
        options = {"reduction": reduction, "correction": 1.0}
        yield Call("reduce", "fwd", "row_per_program", rows(), options)
        arrays = in_parts((2, 4, 0, 3, 1))
        yield Call("reduce", "fwd", "streamed", arrays, options)
        yield Call("reduce", "bwd", "row_per_program", gradients(reduction, **rows()), options)
        if reduction in FORMS:
            yield Call("reduce", "bwd", "streamed", gradients(reduction, **arrays), options)
        if reduction in BOUNDS:
            yield Call("reduce", "bwd", "row_per_program", gradients(reduction, **ties()), options)
    yield from interpolations()


def interpolations():
    """Of more results than a panel, and of such as are not finite."""
    for mode, size in (("nearest", (1, 520)), ("cubic", (3, 7))):
        grad_y = torch.randn(1, 1, *size, generator=torch.Generator().manual_seed(5))
        if mode == "cubic":
            grad_y[..., 1], grad_y[..., 4] = ENDS[-3], ENDS[-1]
        sources = (1, 1) if mode == "nearest" else (2, 2)
        arrays = {"grad_y": grad_y, "grad_x": torch.full((1, 1, *sources), 99.0)}
        yield Call("interpolate", "bwd", "gather", arrays, {"mode": mode})


def names_of(found):
    return {f"{i} {call.op} {' '.join(map(str, call.options.values()))}": call for i, call in found}


CALLS = names_of(enumerate(calls()))


@named(CALLS)
def test_unusual_numbers_and_dimensions_have_the_bits_of_the_library(name, interpreted):
    require_the_librarys_bits(CALLS[name], interpreted[name])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (name, dtype)
        for name in ("huber", "bce_with_logits")
        for dtype in (torch.float32, torch.float64)
    ],
)
def test_compiled_losses_round_as_they_are_told_and_spill_nothing(
    function, dtype, backward, tmp_path
):
    x = torch.empty(40, 1008, dtype=dtype, device="meta")
    names = ("x", "target", "weight") + (("grad_loss", "grad_x") if backward else ("loss",))
    arrays = dict.fromkeys(names, x)
    (launch,) = variants("pointwise_loss")["vec16"].launches(**arrays, function=function)
    ptx = check_for_nvidia(launch, tmp_path)
    assert re.search(r"ld\.global\.v\d", ptx)
    check_for_amd(launch)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", [{"distribution": "uniform"}, {"distribution": "normal"}, {}])
def test_compiled_random_numbers_round_as_they_are_told_and_spill_nothing(options, dtype, tmp_path):
    x = torch.empty(40, 1008, dtype=dtype, device="meta")
    if options:
        (launch,) = variants("random")["fours"].launches(y=x, **options, random_seed=2**63)
    else:
        (launch,) = variants("dropout")["fours"].launches(x=x, y=x, p=0.3, dropout_seed=7)
    ptx = check_for_nvidia(launch, tmp_path)
    assert "mul.hi.u32" in ptx and re.search(r"st\.global\.v\d", ptx)
    check_for_amd(launch)


@pytest.mark.parametrize(
    ("name", "reduction"),
    [("row_per_program", "mean"), ("row_per_program", "smallest"), ("streamed", "std")],
)
def test_compiled_reductions_round_as_they_are_told_and_spill_nothing(name, reduction, tmp_path):
    x, y = torch.empty(40, 8192, device="meta"), torch.empty(40, device="meta")
    for arrays in ({"x": x, "y": y}, {"x": x, "grad_y": y, "grad_x": x}):
        (launch,) = variants("reduce")[name].launches(**arrays, reduction=reduction)
        check_for_nvidia(launch, tmp_path)
        check_for_amd(launch)


@pytest.mark.parametrize(("mode", "dtype"), [("linear", torch.float32), ("cubic", torch.float64)])
@pytest.mark.parametrize("names", [("x", "y"), ("grad_x", "grad_y")])
def test_compiled_interpolations_round_as_they_are_told_and_spill_nothing(
    names, mode, dtype, tmp_path
):
    x = torch.empty(2, 3, 17, 19, dtype=dtype, device="meta")
    y = torch.empty(2, 3, 40, 50, dtype=dtype, device="meta")
    arrays = dict(zip(names, (x, y), strict=True))
    (launch,) = variants("interpolate")["gather"].launches(**arrays, mode=mode, scale_h=2.5)
    check_for_nvidia(launch, tmp_path)
    check_for_amd(launch)


@pytest.mark.parametrize(
    "call",
    [
        "--pass fwd,bwd --function mse,l1 --input randn,huge1e20",
        "--pass fwd,bwd --function smooth_l1,huber --beta 0.5 --with weight",
        "--pass bwd --function smooth_l1 --beta 0 --input constant --dtype f32",
    ],
)
def test_losses_of_elements_have_the_bits_of_the_library(call):
    types = "" if "--dtype" in call else " --dtype f32,f16,bf16,f64"
    lines = verified(f"pointwise_loss --rows 3 --cols 70 {call}{types}")
    assert {line["variant"] for line in lines} == {"vec16", "naive"}
    assert all(line["canonical"] for line in lines)


def test_cross_entropies_of_logits_have_the_bits_of_the_library():
    call = "pointwise_loss --pass fwd,bwd --function bce_with_logits --with none,weight+pos_weight"
    lines = verified(f"{call} --rows 2 --cols 70 --dtype f32,bf16 --input outlier,fltmax")
    lines += verified(f"{call} --rows 2 --cols 30 --dtype f64 --input randn,fltmax")
    assert {line["variant"] for line in lines} == {"vec16", "naive"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize("call", ["--p 0.25 --dropout-seed 4503599627370501", "--p 0,0.9,1"])
def test_dropout_has_the_bits_of_the_library(call):
    lines = verified(f"dropout --rows 3 --cols 5,70 {call} --dtype f32,f16,bf16,f64")
    assert {line["variant"] for line in lines} == {"fours"}
    assert all(line["canonical"] for line in lines)


FAR = "--random-seed 4503599627370501 --random-offset 17179869187"


@pytest.mark.parametrize(
    "call",
    [
        f"--cols 530 --distribution uniform {FAR}",
        "--cols 70 --distribution uniform --low -3 --high 0.3 --random-offset 1",
        "--cols 70 --distribution uniform --low -1 --high 0",
        f"--cols 70 --distribution normal --mean -10 --std 0.02 {FAR}",
        "--cols 70 --distribution bernoulli --p 0,0.1,1 --random-offset 2",
    ],
)
def test_random_numbers_have_the_bits_of_the_library(call):
    lines = verified(f"random --rows 2 {call} --dtype f32,f16,bf16,f64")
    assert {line["variant"] for line in lines} == {"fours"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "--reduction sum,mean --reduced 0,70,5000 --input randn,fltmax",
        "--reduction var,std --correction 0.5 --reduced 1,70 --input mean1e6,huge1e20",
        "--reduction l2,l1,nonzero --reduced 0,70 --input denormal,huge1e20",
        "--reduction largest,smallest --reduced 0,70,5000 --layout spread",
        "--reduction var,mean --reduced 530 --layout reversed",
        "--reduction max,min --reduced 0,70 --input constant,randn",
    ],
)
def test_reductions_have_the_bits_of_the_library(call):
    lines = verified(f"reduce --pass fwd --kept 2 {call} --dtype f32,bf16")
    assert {line["variant"] for line in lines} == {"row_per_program", "streamed"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "--reduction sum,var,max --reduced 0,70 --input huge1e20 --kept 2",
        "--reduction std,l2,l1,smallest --reduced 530 --layout spread --kept 1",
        "--reduction std,min --reduced 5000 --kept 1 --variant streamed",
    ],
)
def test_gradients_of_reductions_have_the_bits_of_the_library(call):
    lines = verified(f"reduce --pass bwd --dtype bf16 {call}")
    assert lines and all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "--mode nearest,nearest_exact --out-height 11 --out-width 4 --layout reversed",
        "--mode linear,cubic --out-height 11 --out-width 4",
        "--mode linear,cubic --out-height 1 --out-width 9 --align-corners yes --layout spread",
        "--mode nearest_exact,linear,cubic --out-height 3 --out-width 9 --scale-h 0.7 --scale-w 3",
    ],
)
def test_interpolations_have_the_bits_of_the_library(call):
    size = "--batch 2 --channels 2 --height 5 --width 6"
    lines = verified(f"interpolate --pass fwd {size} {call} --dtype f32,f16,bf16,f64")
    lines += verified(f"interpolate --pass bwd {size} {call} --dtype bf16,f64")
    assert {line["variant"] for line in lines} == {"gather"}
    assert all(line["canonical"] for line in lines)


def test_what_they_cannot_compute_is_declined():
    def reason(op, name, **given):
        return variants(op)[name].declines(Case.of(**given))

    x, y = torch.empty(2, 9), torch.empty(2)
    assert reason("random", "fours", y=y, distribution="truncated_normal") == (
        "it makes no numbers of truncated_normal"
    )
    assert reason("reduce", "streamed", x=x.double(), y=y) == "it computes in float, not in f64"
    wide = torch.empty(2, 2**14 + 1, device="meta")
    assert reason("reduce", "row_per_program", x=wide, y=y) == (
        "16385 columns; registers hold at most 16384"
    )
    assert reason("dropout", "fours", x=torch.tensor(1.0)) == "x has no dimension"


PAIR = {"x": torch.empty(2, 4), "y": torch.empty(2, 4)}
LOSS = {"x": torch.empty(2, 4), "target": torch.empty(2, 4), "loss": torch.empty(2, 4)}
GRADS = {"grad_y": torch.empty(2), "grad_x": torch.empty(2, 4)}
IMAGES = {"x": torch.empty(1, 2, 3, 4), "y": torch.empty(1, 2, 5, 6)}
REFUSED = (
    ("dropout", PAIR, {"p": 1.5}, "p is 1.5; allowed: 0 to 1"),
    ("dropout", PAIR, {"y": torch.empty(2, 3)}, "y has shape"),
    ("dropout", PAIR, {"dropout_seed": -1}, "dropout_seed is -1; allowed"),
    ("random", {"y": PAIR["y"]}, {"low": 2, "high": 1}, "low is 2.0 and high 1.0; low must be"),
    ("random", {"y": PAIR["y"]}, {"distribution": "normal", "std": -1}, "std is -1.0; must not"),
    ("random", {"y": PAIR["y"]}, {"distribution": "bernoulli", "p": 2}, "p is 2.0; allowed"),
    ("random", {"y": PAIR["y"].half()}, {"high": 1e5}, "high is 100000.0; must be a number of"),
    ("pointwise_loss", LOSS, {"function": "mae"}, "function is 'mae'; allowed: mse"),
    ("pointwise_loss", LOSS, {"pos_weight": LOSS["x"]}, "pos_weight is given; it belongs to bce"),
    ("pointwise_loss", LOSS, {"function": "huber", "beta": 0}, "beta is 0.0; must be above 0"),
    ("pointwise_loss", LOSS, {"loss": LOSS["x"].half()}, "loss is torch.float16; must be torch"),
    ("reduce", {"x": PAIR["x"], "y": torch.empty(3)}, {}, "y has shape (3,); must be the first"),
    ("reduce", PAIR, {}, "y has shape (2, 4); must be the first dimensions of x"),
    ("reduce", {"x": PAIR["x"], "y": torch.empty(2)}, {"reduction": "prod"}, "reduction is 'prod'"),
    ("reduce", GRADS, {"reduction": "var"}, "x is not given; it is required"),
    ("reduce", GRADS, {"x": torch.empty(2, 5)}, "x has shape (2, 5) and is torch.float32; grad_x"),
    ("reduce", GRADS, {"grad_y": PAIR["y"]}, "grad_y has shape (2, 4); must be the first dimen"),
    ("interpolate", IMAGES, {"mode": "area"}, "mode is 'area'; allowed: nearest"),
    ("interpolate", IMAGES, {"align_corners": "yes"}, "align_corners belongs to linear and cubic"),
    ("interpolate", IMAGES, {"scale_h": -1}, "scale_h is -1.0; must be finite, not negative"),
    ("interpolate", IMAGES, {"y": IMAGES["y"].half()}, "y is torch.float16; must be torch.float32"),
)


@pytest.mark.parametrize(("op", "fitting", "given", "said"), REFUSED)
def test_they_refuse_what_the_library_refuses(op, fitting, given, said):
    for variant in variants(op).values():
        with pytest.raises(ValueError, match="^" + re.escape(f"{op}: {said}")):
            list(variant.launches(**fitting | given))


if __name__ == "__main__":
    interpret(CALLS)
