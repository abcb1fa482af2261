# SPDX-License-Identifier: Apache-2.0
"""What Triton's variants refuse, called directly: arrays of which kernels would reach beyond."""

import importlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

ROPE = {"q": (2, 3, 4, 6), "y_q": (2, 3, 4, 6), "cos": (9, 3), "sin": (9, 3)}
TURNED = {"k": (2, 3, 1, 6), "y_k": (2, 3, 1, 6)}
GRADIENTS = {"grad_y": (2, 3, 5), "a": (2, 3, 4), "b": (2, 4, 5)}
PRODUCT = {"a": (2, 3, 4), "b": (2, 4, 5), "y": (2, 3, 5)}
PAIR = {"x": (2, 8), "y": (2, 8)}
SCAN = {"x": (2, 7, 3), "y": (2, 7, 3)}

# Operator, arrays that fit, those that take the place of some or join them, what is said of them.
REFUSED = [
    ("elementwise", PAIR, {"residual": (2, 7)}, "residual has shape (2, 7), of which cols is 7; "),
    ("elementwise", PAIR, {"y": (3, 8)}, "y has shape (3, 8), of which rows is (3,); must be (2,)"),
    ("elementwise", PAIR, {"x": None}, "x is not given; it is required"),
    ("activation", PAIR, {"gate": (2, 9)}, "gate has shape (2, 9), of which cols is 9; must be 8"),
    (
        "activation",
        {"x": (2, 8), "grad_y": (2, 8), "grad_x": (2, 8)},
        {"grad_x": (2, 4)},
        "grad_x has shape (2, 4), of which cols is 4; must be 8, as x has it",
    ),
    ("activation", PAIR, {"grad_y": (2, 8)}, "grad_y, x, y do not belong to one pass"),
    (
        "transpose",
        {"x": (2, 3, 4), "y": (2, 4, 3)},
        {"y": (2, 3, 4)},
        "of which cols is 3; must be",
    ),
    ("transpose", {"x": (4, 3), "y": (3, 4)}, {"x": (3,)}, "must have at least 2 dimensions, rows"),
    ("scan", SCAN, {"init": (2, 4)}, "init has shape (2, 4), of which inner is 4; must be 3, as x"),
    ("scan", SCAN, {"y": (2, 6, 3)}, "y has shape (2, 6, 3), of which length is 6; must be 7"),
    ("scan", SCAN, {"init": (3, 3)}, "of which outer is (3,); must be (2,), as x has it"),
    (
        "matmul",
        PRODUCT,
        {"b": (2, 3, 5)},
        "b has shape (2, 3, 5), of which k is 3; must be 4, as a",
    ),
    ("matmul", PRODUCT, {"b": (4, 5)}, "b has shape (4, 5), of which batch is (); must be (2,)"),
    ("matmul", PRODUCT, {"bias": (1, 5)}, "bias has shape (1, 5); must have 1 dimensions, n"),
    ("matmul", PRODUCT, {"residual": (2, 3, 4)}, "of which n is 4; must be 5, as b has it"),
    ("matmul", GRADIENTS, {"grad_b": (2, 5, 4)}, "grad_b has shape (2, 5, 4), of which k is 5"),
    ("matmul", GRADIENTS, {"grad_bias": (4,)}, "grad_bias has shape (4,), of which n is 4; must"),
    ("rope", ROPE, {"y_q": (2, 3, 4, 5)}, "y_q has shape (2, 3, 4, 5), of which head_dim is 5"),
    ("rope", ROPE | TURNED, {"y_k": (2, 3, 2, 6)}, "of which kv_heads is 2; must be 1, as k has"),
    ("rope", ROPE | TURNED, {"k": (2, 2, 1, 6)}, "of which seq is 2; must be 3, as q has it"),
    ("rope", ROPE, {"sin": (8, 3)}, "sin has shape (8, 3), of which table is 8; must be 9, as cos"),
    ("rope", ROPE, {"positions": (4,)}, "positions has shape (4,), of which seq is 4; must be 3"),
    ("rope", ROPE, {"positions": (3, 3)}, "of which batch is (3,); must be (2,), as q has it"),
    ("rope", ROPE, {"q": (1, 2, 3, 4, 6)}, "q has 5 dimensions; must have 4"),
    ("rope", ROPE, {"k": (2, 3, 1, 6)}, "k is given without its result, or the reverse"),
    ("rope", ROPE | {"rotary_dim": 8}, {}, "rotary_dim is 8; must be even, from 0 to 6"),
]


def launches(op, shapes):
    """Those of every variant, of arrays that need no memory and are not touched."""
    given = {
        name: torch.empty(shape, device="meta") if isinstance(shape, tuple) else shape
        for name, shape in shapes.items()
        if shape is not None
    }
    if op == "activation":
        given["function"] = "gelu"
    variants = importlib.import_module(f"isobit.ops.{op}.triton").VARIANTS
    for variant in variants.values():
        yield lambda variant=variant: list(variant.launches(**given))


@pytest.mark.parametrize(("op", "fitting", "other", "said"), REFUSED)
def test_arrays_that_do_not_fit_are_told_and_not_computed(op, fitting, other, said):
    for make in launches(op, fitting | other):
        with pytest.raises(ValueError) as refused:
            make()
        assert str(refused.value).startswith(f"{op}: ") and said in str(refused.value)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("elementwise", {"x": (3, 2, 8), "residual": (3, 2, 8), "y": (3, 2, 8)}),
        ("matmul", {"a": (3, 4), "b": (4, 5), "y": (3, 5), "bias": (5,)}),
        ("matmul", {"a": (2, 2, 3, 4), "b": (2, 2, 4, 5), "y": (2, 2, 3, 5)}),
        ("rope", ROPE | {"positions": (3,)}),
        ("rope", ROPE | TURNED | {"positions": (2, 3)}),
        ("scan", SCAN | {"init": (2, 3)}),
    ],
)
def test_a_batch_has_any_dimensions_and_positions_need_none(op, shapes):
    for make in launches(op, shapes):
        assert make()


def test_a_launch_exchanges_tritons_language_once_for_a_module(monkeypatch):
    from triton.runtime import interpreter

    from isobit.ops import triton_fitting, triton_variants

    asked = []
    monkeypatch.setattr(interpreter, "_patch_lang", asked.append)
    exchange, (one, other) = interpreter._patch_lang, (triton_variants.parts, triton_fitting.check)
    for _ in range(2):
        with triton_variants._quick_interpreter():
            for function in (one, other, triton_variants.fitting, other):
                interpreter._patch_lang(function)
    assert asked == [one, other] * 2 and interpreter._patch_lang == exchange
