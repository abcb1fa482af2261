# SPDX-License-Identifier: Apache-2.0
"""Models with Isobit's norms under DDP, FSDP, tensor and sequence parallelism, with checkpointing:
the errors and gradients of one rank, and of PyTorch's norms."""

import copy
import pickle

import pytest
import torch
import torch_parallel_cases
import torch_ranks

import isobit.torch


@pytest.fixture(scope="module")
def outcomes(request):
    return torch_ranks.outcomes(request, torch_parallel_cases)


@pytest.mark.parametrize(("ranks", "name"), torch_parallel_cases.CASES.parameters())
def test_in_several_ranks(outcomes, ranks, name):
    assert not outcomes[ranks, name], outcomes[ranks, name]


NORMS = (isobit.torch.LayerNorm, isobit.torch.RMSNorm)


def marks(norm):
    return [getattr(each, "sequence_parallel", None) for each in norm.parameters()]


@pytest.mark.parametrize("kind", NORMS)
def test_sequence_parallel_marks_every_parameter_and_its_copies(kind):
    norm = kind(8, sequence_parallel=True)
    assert marks(norm) and set(marks(norm)) == {True}
    meta = kind(8, sequence_parallel=True, device="meta").to_empty(device="cpu")
    for copied in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm)), norm.bfloat16(), meta):
        assert marks(copied) == marks(norm)
    assert norm.extra_repr().endswith(", sequence_parallel=True")
    assert kind(8, elementwise_affine=False, sequence_parallel=True)(torch.ones(8)).isfinite().all()


@pytest.mark.parametrize("kind", NORMS)
def test_nothing_is_marked_unasked(kind):
    norm = kind(8)
    assert set(marks(norm)) == {None} and "sequence_parallel" not in repr(norm)
