# SPDX-License-Identifier: Apache-2.0
"""What a program may choose once, for all calls."""

from dataclasses import dataclass


@dataclass
class Settings:
    """autocast_keeps_dtype: norms of 16-bit CUDA tensors under autocast return 16 bits. By default
    they return float32, as PyTorch's do; they compute in single precision either way.

    compiled_fuses: in code that torch.compile compiles, norms are PyTorch's formulas, which
    Inductor may fuse with what stands beside them. By default they are Isobit's operators, with the
    bits of eager code. Calls that drop, and weights stored less 1, stay Isobit's."""

    autocast_keeps_dtype: bool = False
    compiled_fuses: bool = False


settings = Settings()
