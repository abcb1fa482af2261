# SPDX-License-Identifier: Apache-2.0
"""Linear layers under FSDP and tensor parallelism: the bits of one rank where an element's sum is
whole, and the sum of parts where it is not."""

import pytest
import torch_linear_cases
import torch_ranks


@pytest.fixture(scope="module")
def outcomes(request):
    return torch_ranks.outcomes(request, torch_linear_cases)


@pytest.mark.parametrize(("ranks", "name"), torch_linear_cases.CASES.parameters())
def test_in_several_ranks(outcomes, ranks, name):
    assert not outcomes[ranks, name], outcomes[ranks, name]
