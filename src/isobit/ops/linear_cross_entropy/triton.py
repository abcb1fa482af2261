# SPDX-License-Identifier: Apache-2.0
"""A linear layer and the cross-entropy of its logits in Triton, one after the other: each by
kernels of its own, with the bits of all other variants, and with an array of all logits. No GPU has
run it.

    VARIANTS["unfused"].run(x=x, weight=w, target=target, loss=loss, largest=m, sum=s)
"""

from isobit.ops.cross_entropy import triton as loss_of
from isobit.ops.matmul import triton as product
from isobit.ops.triton_norm_linear import _launches
from isobit.ops.triton_variants import Variant, by_name, fitting

_TAKES = {"x", "weight", "bias", "target", "class_weight", "loss", "lse", "largest", "sum"}
_TAKES |= {"total", "count", "grad_loss", "grad_x", "grad_weight", "grad_bias"}
_OPTIONS = {"ignore_index", "label_smoothing", "z_loss"}
_GRADIENTS = ("grad_x", "grad_weight", "grad_bias")


def _make(_plan, **given):
    given = {name: each for name, each in given.items() if each is not None}
    options = {name: given.pop(name) for name in _OPTIONS & given.keys()}
    wanted = {name: given.pop(name) for name in _GRADIENTS if name in given}
    x, weight, bias = given.pop("x"), given.pop("weight"), given.pop("bias", None)
    x = x.view(-1, x.shape[-1])
    numbers = {name: each if each.dim() == 1 else each.view(-1) for name, each in given.items()}
    if "class_weight" in numbers:
        numbers["weight"] = numbers.pop("class_weight")
    logits = x.new_empty((len(x), len(weight)))
    yield from _launches(product.VARIANTS, "fwd", a=x, b=weight.mT, bias=bias, y=logits)
    if "grad_loss" not in numbers:
        yield from _launches(loss_of.VARIANTS, "fwd", x=logits, **numbers, **options)
        return
    arrays = {"x": logits, "grad_x": logits, **numbers, **options}
    yield from _launches(loss_of.VARIANTS, "bwd", **arrays)
    arrays = {"grad_y": logits, "a": x, "b": weight.mT}
    # First what reads x, in whose place its gradient may come to stand.
    of_layer = {"grad_bias": wanted.get("grad_bias")}
    of_layer["grad_b"] = wanted["grad_weight"].mT if "grad_weight" in wanted else None
    if any(each is not None for each in of_layer.values()):
        yield from _launches(product.VARIANTS, "bwd", **arrays, **of_layer)
    if "grad_x" in wanted:
        grad_x = wanted["grad_x"].view(x.shape)
        yield from _launches(product.VARIANTS, "bwd", **arrays, grad_a=grad_x)


def _declines(case):
    if "f64" in case.dtypes.values():
        return "it computes in float, not in f64"
    return "" if case.shapes["x"] else "x has no dimension"


VARIANTS = by_name(
    Variant(
        name="unfused",
        kinds=("fwd", "bwd"),
        takes=frozenset(_TAKES | _OPTIONS),
        make=_make,
        knobs={},
        choose=lambda case: {},
        declines=_declines,
        fits=fitting("linear_cross_entropy"),
    )
)
