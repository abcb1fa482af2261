# SPDX-License-Identifier: Apache-2.0
"""What a program may choose once, for all calls."""

import os
from dataclasses import dataclass

from isobit import c_abi


@dataclass
class Settings:
    """autocast_keeps_dtype: norms of 16-bit CUDA tensors under autocast return 16 bits. By default
    they return float32, as PyTorch's do; they compute in single precision either way.

    compiled_fuses: in code that torch.compile compiles, norms are PyTorch's formulas, which
    Inductor may fuse with what stands beside them. By default they are Isobit's operators, with the
    bits of eager code. Calls that drop, and weights stored less 1, stay Isobit's.

    isa: the widest instruction set that Isobit uses on the processor, of the whole process:
    "scalar", "avx2", "avx512" or "neon"; "auto" is all that there is. No bit depends on it. What
    the environment's ISOBIT_ISA holds is set when isobit.torch is imported."""

    autocast_keeps_dtype: bool = False
    compiled_fuses: bool = False
    isa: str = "auto"

    def __setattr__(self, name, value):
        if name == "isa":
            if not isinstance(value, str):
                kind = type(value).__name__
                raise TypeError(f"settings: isa must be a string; it is {kind}")
            c_abi.set_isa(value)
        super().__setattr__(name, value)


settings = Settings(isa=os.environ.get("ISOBIT_ISA", "auto"))
