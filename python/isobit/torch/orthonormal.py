# SPDX-License-Identifier: Apache-2.0
"""Orthonormal rows out of any, with the same bits wherever they are computed: LAPACK's depend on
the processor and on its library.

Gram and Schmidt's way in panels: what lies along the rows before is subtracted by products, twice,
since rounding leaves a part of it the first time that a second time makes as small as a rounding
("twice is enough", Giraud and others 2005). Each row keeps its direction, so that the result is the
Q of a QR decomposition whose R has positive numbers on its diagonal: normal numbers become each
orthogonal matrix equally often.
"""

import torch

from isobit.torch.product_functions import matmul
from isobit.torch.reduction_functions import norm

_PANEL = 32  # rows that are made orthogonal one by one, before others are to all of them at once


def _less(rows, others):
    """Subtracts what of rows lies along others, which are orthonormal."""
    if len(others):
        rows -= matmul(matmul(rows, others.t()), others)


@torch._disable_dynamo  # in a graph it would be thousands of operators
def orthonormal(rows):
    """The rows, in their order, each less what lies along those before it, with a length of 1. No
    more than there are columns; float64. A row of which nothing is left is 0."""
    found = rows.contiguous().clone()
    for first in range(0, len(found), _PANEL):
        panel, before = found[first : first + _PANEL], found[:first]
        for _ in range(2):
            _less(panel, before)
            for i in range(len(panel)):
                row = panel[i : i + 1]
                for _ in range(2):
                    _less(row, panel[:i])
                length = norm(row)
                row /= torch.where(length == 0, 1, length)
    return found
