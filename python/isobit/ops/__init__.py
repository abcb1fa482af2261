# SPDX-License-Identifier: Apache-2.0
"""The operators' versions in PyTorch and Triton; in a checkout they lie beside their C++."""

from pathlib import Path

_BESIDE_CXX = Path(__file__).resolve().parents[3] / "src" / "isobit" / "ops"
if _BESIDE_CXX.is_dir():
    __path__.append(str(_BESIDE_CXX))
