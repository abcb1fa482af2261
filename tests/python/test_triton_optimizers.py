# SPDX-License-Identifier: Apache-2.0
"""Steps of optimisers and norms of rows in Triton compile to their arithmetic, and refuse what the
library refuses. test_triton_lab.py has their bits interpreted; here those of unusual numbers.

A process of its own interprets: this file as a program (triton_interpreted.py).
"""

import importlib
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402
from triton_interpreted import Call, interpret, named, require_the_librarys_bits  # noqa: E402

from isobit.ops.triton_steps import complement_of_power  # noqa: E402
from isobit.ops.triton_variants import Case  # noqa: E402

STATES = {
    "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "lion": ("exp_avg",),
    "sgd": ("momentum_buffer",),
}
EVERY = {
    "adam": {"weight_decay": 0.1, "step": 7},
    "lion": {"weight_decay": 0.1, "maximize": "yes"},
    "sgd": {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1, "nesterov": "yes"},
}


def variants(op):
    return importlib.import_module(f"isobit.ops.{op}.triton").VARIANTS


def arrays_of(op, dtype=torch.float32, grad_dtype=None, device="meta"):
    param = torch.zeros(3, 1000, dtype=dtype, device=device)
    grad = param.to(grad_dtype or dtype)
    given = {"param": param, "grad": grad, "new_param": param, "narrow": grad}
    return given | {name: param for each in STATES[op] for name in (each, f"new_{each}")}


ENDS = torch.tensor([0.0, -0.0, 1e-45, -1e-40, 1.0, -3e38, float("inf"), float("nan")])


def calls():
    """Of all pairs of such numbers; and the first step, which has no buffer."""
    param, grad = ENDS.repeat_interleave(8)[None], ENDS.repeat(8)[None]
    for op, options in EVERY.items():
        for dtype in (torch.float32, torch.bfloat16):
            of_type = {name: each.to(dtype) for name, each in (("param", param), ("grad", grad))}
            for name in ("plain", "first", "largest"):
                states = [of_type["grad"].roll(5 + i, 1) for i in range(len(STATES[op]))]
                states[1:] = [each.abs() for each in states[1:]]
                given = dict(zip(STATES[op], states, strict=True))
                if name != "largest":
                    given.pop("max_exp_avg_sq", None)
                given = {f"new_{each}": array for each, array in given.items()} | given
                if name == "first":
                    given.pop("momentum_buffer", None)
                arrays = of_type | {"new_param": of_type["param"]} | given
                arrays = {each: array.clone() for each, array in arrays.items()}
                yield f"{op} {name} {dtype}", Call(op, "fwd", "vec16", arrays, options)
    x = torch.stack([ENDS.repeat(90), ENDS.clamp(-1, 1).nan_to_num().repeat(90)])
    x = torch.cat([x, torch.full_like(x, -0.0), torch.full_like(x, 1e-42)])
    for order in ("l2", "l1", "max"):
        arrays = {"x": x, "norm": torch.full((len(x),), 9.0)}
        call = Call("vector_norm", "fwd", "row_per_program", arrays, {"order": order})
        yield f"vector_norm {order}", call


CALLS = dict(calls())


@named(CALLS)
def test_interpreted_steps_give_the_bits_of_the_library(name, interpreted):
    require_the_librarys_bits(CALLS[name], interpreted[name])


@pytest.mark.parametrize("types", [(torch.float32, torch.bfloat16), (torch.float16,)])
@pytest.mark.parametrize("op", STATES)
def test_compiled_steps_round_as_they_are_told(op, types, tmp_path):
    for variant in variants(op).values():
        (launch,) = variant.launches(**arrays_of(op, *types), **EVERY[op])
        ptx = check_for_nvidia(launch, tmp_path)
        assert ("sqrt.rn.f32" in ptx) == ("div.rn.f32" in ptx) == (op == "adam")
        check_for_amd(launch)


@pytest.mark.parametrize("order", ["l2", "l1", "max"])
def test_compiled_norms_round_as_they_are_told(order, tmp_path):
    for cols in (16384, 100000):
        x = torch.empty(3, cols, dtype=torch.bfloat16, device="meta")
        norm = torch.empty(3, device="meta")
        for variant in variants("vector_norm").values():
            if variant.declines(Case.of(x=x, norm=norm)):
                continue
            (launch,) = variant.launches(x=x, norm=norm, order=order)
            assert ("sqrt.rn.f32" in check_for_nvidia(launch, tmp_path)) == (order == "l2")
            check_for_amd(launch)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 1 - 2.0**-30])
def test_the_complement_of_a_power_is_that_of_the_power(beta):
    for step in (1, 2, 3, 100, 12345):
        assert complement_of_power(beta, step) == pytest.approx(1 - beta**step, rel=1e-7)


REFUSED = [
    ("adam", {"beta1": 1.0}, "beta1 is 1.0; must be at least 0 and below 1"),
    ("adam", {"step": 0}, "step is 0; must be at least 1"),
    ("adam", {"lr": -1.0}, "lr is -1.0; must be at least 0"),
    ("adam", {"eps": float("inf")}, "eps is inf; must be finite"),
    ("lion", {"lr": 1e39}, r"lr is 1e\+39; must be within the range of float"),
    ("lion", {"maximize": True}, "maximize is True; allowed: no, yes"),
    ("sgd", {}, "momentum_buffer is given, but there is no momentum"),
    ("sgd", {"momentum": 0.9, "grad": torch.zeros(3, 1000).int()}, "grad is torch.int32"),
    ("sgd", {"momentum": 0.9, "grad": torch.zeros(3, 9)}, r"grad has shape \(3, 9\)"),
]


@pytest.mark.parametrize(("op", "given", "said"), REFUSED)
def test_steps_refuse_what_the_library_refuses(op, given, said):
    with pytest.raises((ValueError, NotImplementedError), match=said):
        list(variants(op)["naive"].launches(**arrays_of(op, device="cpu") | given))


def test_states_that_are_missing_are_named():
    arrays = arrays_of("adam", device="cpu")
    del arrays["new_max_exp_avg_sq"]
    with pytest.raises(ValueError, match=r"^adam: new_max_exp_avg_sq is missing"):
        variants("adam")["vec16"].run(**arrays)
    arrays = arrays_of("sgd", device="cpu")
    del arrays["new_momentum_buffer"]
    with pytest.raises(ValueError, match=r"^sgd: new_momentum_buffer is "):
        variants("sgd")["vec16"].run(**arrays, momentum=0.9)


def test_doubles_are_declined_and_orders_known():
    x, norm = torch.zeros(2, 5), torch.zeros(2)
    with pytest.raises(ValueError, match=r"^vector_norm: order is 'l3'; allowed: l2, l1, max"):
        variants("vector_norm")["streamed"].run(x=x, norm=norm, order="l3")
    with pytest.raises(ValueError, match=r"^vector_norm: norm is torch.float16; must be"):
        variants("vector_norm")["streamed"].run(x=x, norm=norm.half())
    for op, arrays in (("vector_norm", {"x": x.double()}), ("sgd", {"param": x.double()})):
        for variant in variants(op).values():
            assert variant.declines(Case.of(**arrays)) == "it computes in float, not in f64"
    assert variants("vector_norm")["streamed"].declines(Case.of(x=x[0, 0])) == "x has no dimension"
    many = Case({"x": "f32"}, {"x": (1, 16385)})
    said = variants("vector_norm")["row_per_program"].declines(many)
    assert said == "16385 columns; registers hold at most 16384"


if __name__ == "__main__":
    interpret(CALLS)
