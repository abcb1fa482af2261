# SPDX-License-Identifier: Apache-2.0
"""Norms of channels in Triton give the library's bits in the interpreter, and compile.

A process of its own interprets: this file as a program (triton_interpreted.py).
"""

import itertools
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))  # where it is a script, too
from triton_checks import check_for_amd, check_for_nvidia  # noqa: E402
from triton_interpreted import Call, interpret, named, require_the_librarys_bits  # noqa: E402

from isobit.ops.batch_norm.triton import VARIANTS as OF_BATCH  # noqa: E402
from isobit.ops.group_norm.triton import VARIANTS as OF_GROUPS  # noqa: E402
from isobit.ops.triton_variants import DTYPES, Case  # noqa: E402

TYPES = (("f32", "f32"), ("f16", "f16"), ("bf16", "f32"))


def drawn(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def of_every_kind(batch, channels, extent):
    """Channels that are usual, constant, huge, tiny, far from zero, all but constant, broken."""
    x = drawn(batch, channels, extent)
    kinds = (
        lambda v: v * 0 + 3,
        lambda v: v * 1e30,
        lambda v: v * 1e-30,
        lambda v: v + 1e6,
        lambda v: 1 + (v > 2) * 2.0**-23,
        lambda v: v * 0 - 0.0,
        lambda v: torch.where(v > 2, torch.nan, v),
    )
    for channel, kind in zip(range(1, channels), kinds, strict=False):
        x[:, channel] = kind(x[:, channel])
    return x


def moments_of(op, x, groups):
    """What forward gives of rows; the mean may be any number near theirs."""
    rows = x.float().unflatten(1, (groups, -1)).flatten(2)
    if op == "batch_norm":
        rows = x.float().transpose(0, 1).flatten(1)
    first = rows.mean(-1, keepdim=True)
    left = rows - first
    return torch.cat((first, left.sum(-1, True), left.square().sum(-1, True)), -1)


def arrays_of(op, way, types, x, groups=1, training=True, last=False):
    kind, of_weights = (DTYPES[name] for name in types)
    x = x.to(kind)
    if last:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    channels = x.shape[1]
    arrays = {"x": x, "weight": drawn(channels, seed=2).to(of_weights)}
    if op == "batch_norm" and (way == "fwd" or not training):
        arrays["running_mean"] = drawn(channels, seed=3).float()
        arrays["running_var"] = drawn(channels, seed=4).square().float()
    if way == "bwd":
        grad_y = drawn(*x.shape, seed=5).to(kind)
        sums = {name: torch.full((channels,), 99, dtype=of_weights) for name in ("weight", "bias")}
        gradients = {f"grad_{name}": each for name, each in sums.items()}
        if last and training:
            gradients["moments"] = moments_of(op, x, groups)
        return arrays | {"grad_y": grad_y, "grad_x": torch.full_like(x, 99)} | gradients
    arrays |= {"bias": drawn(channels, seed=6).to(of_weights), "y": torch.full_like(x, 99)}
    shape = (x.shape[0], groups) if op == "group_norm" else (channels,)
    arrays |= {name: torch.full(shape, 99.0) for name in ("mean", "rstd")}
    if training:
        arrays["moments"] = torch.full((*shape, 3), 99.0)
    if op == "batch_norm" and training:
        arrays |= {name: torch.full((channels,), 99.0) for name in ("next_mean", "next_var")}
    return arrays


def calls():
    """op, way, variant, arrays, options, by their names."""
    shapes = {"row_per_program": [(2, 8, 70), (3, 2, 1), (0, 2, 5)], "streamed": [(3, 2, 1500)]}
    for op, way, (variant, some) in itertools.product(
        ("group_norm", "batch_norm"), ("fwd", "bwd"), shapes.items()
    ):
        for shape, types in itertools.product(some, TYPES):
            if types != TYPES[0] and shape != some[0]:
                continue
            x = of_every_kind(*shape)
            for choice in (1, 2) if op == "group_norm" else (True, False):
                if op == "group_norm":
                    options = {"groups": shape[1] // choice}
                    arrays = arrays_of(op, way, types, x, shape[1] // choice, last=choice == 2)
                else:
                    options = {"training": "yes" if choice else "no"}
                    if way == "fwd":
                        options["momentum"] = 0.3
                    arrays = arrays_of(op, way, types, x, training=choice, last=choice)
                name = f"{op} {way} {variant} {shape} {types} {choice}"
                yield name, op, way, variant, arrays, options


CALLS = {name: Call(*call) for name, *call in calls()}


@named(CALLS)
def test_interpreted_norms_give_the_bits_of_the_library(name, interpreted):
    require_the_librarys_bits(CALLS[name], interpreted[name])


@pytest.mark.parametrize("name", ["row_per_program", "streamed"])
@pytest.mark.parametrize("way", ["fwd", "bwd"])
@pytest.mark.parametrize("op", ["group_norm", "batch_norm"])
def test_compiled_norms_round_as_they_are_told_and_spill_nothing(op, way, name, tmp_path):
    variants = OF_GROUPS if op == "group_norm" else OF_BATCH
    extent = 512 if name == "row_per_program" else 5000
    x = torch.empty(4, 8, extent, device="meta")
    arrays = {
        key: torch.empty_like(each, device="meta")
        for key, each in arrays_of(op, way, TYPES[0], torch.zeros(4, 8, extent), 4).items()
    }
    arrays["x"] = x
    options = {"groups": 4} if op == "group_norm" else {"training": "yes"}
    for launch in variants[name].launches(**arrays, **options):
        check_for_nvidia(launch, tmp_path)
        check_for_amd(launch)


def test_what_triton_cannot_hold_is_declined():
    def reason(variants, name, extent, dtype="f32", **options):
        x = torch.empty(2, 4, extent, dtype=DTYPES[dtype], device="meta")
        return variants[name].declines(Case.of(x=x, y=x, **options))

    assert reason(OF_GROUPS, "row_per_program", 2048, groups=2) == ""
    said = "rows of 4098 elements; registers hold at most 4096"
    assert reason(OF_GROUPS, "row_per_program", 2049, groups=2) == said
    assert reason(OF_BATCH, "row_per_program", 2049) == said
    assert reason(OF_BATCH, "streamed", 2049) == ""
    assert reason(OF_BATCH, "streamed", 8, "f64") == "it computes in float, not in f64"
    x = torch.empty(2, 4, 3)
    with pytest.raises(ValueError, match="x has 4 channels, which 3 groups cannot share"):
        OF_GROUPS["streamed"].run(x=x, y=x, groups=3)
    with pytest.raises(ValueError, match=r"weight has shape \(3,\); must have \(4,\)"):
        OF_BATCH["streamed"].run(x=x, y=x, weight=torch.empty(3), training="yes")


if __name__ == "__main__":
    interpret(CALLS)
