# SPDX-License-Identifier: Apache-2.0
"""What `isobit parity` and `isobit doctor` ask of Python.

`python -m isobit.ways FOLDER` computes the call that the lab wrote there in every way that Python
has. Each way's outputs go into a folder of its name, and a line of ways.jsonl tells of it as soon
as it ends, so that a way which ends the process hides no other. `python -m isobit.ways` says what
of Python can be used.
"""

import json
import platform
import sys
from functools import partial
from importlib import import_module, metadata
from pathlib import Path

from isobit import library_path

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i32": "int32"}
_NORMS = {"layernorm": "layer_norm", "rmsnorm": "rms_norm"}


class Declined(Exception):
    """Why a way cannot be gone."""


class Call:
    """A case of the lab: what it says, and its arrays."""

    def __init__(self, folder):
        self.folder = folder
        self.said = json.loads((folder / "case.json").read_text())
        self.norm = _NORMS.get(self.said["op"])
        self.backward = self.said["pass"] == "bwd"
        self.dropout = self.said.get("dropout", 0)
        arrays = {*self.said["inputs"], *self.said["outputs"]}
        self.adds = self.dropout > 0 or not arrays.isdisjoint({"residual", "sum", "grad_sum"})
        if "rstd" in self.said["inputs"]:
            raise Declined("it finds mean and rstd by itself; here they are given")

    def inputs(self, bfloat16, convert=lambda array: array):
        """By name. bfloat16 is what the array library calls that type."""
        return {
            name: convert(self._input(name)).view(bfloat16)
            if dtype == "bf16"
            else convert(self._input(name))
            for name, dtype in self.said["inputs"].items()
        }

    def _input(self, name):
        """Its rows lie where the case has them; bf16 is unsigned integers."""
        import numpy as np

        packed = np.load(self.folder / f"{name}.npy")
        if packed.ndim == 1:
            return packed
        rows, cols = packed.shape
        offset, stride = self.said["offset"], self.said["row_stride"]
        memory = np.empty(offset + rows * stride, packed.dtype)
        array = memory[offset:].reshape(rows, stride)[:, :cols]
        array[:] = packed
        return array

    def forward(self, library, dtype_named):
        """The function of isobit.numpy or isobit.torch that is meant, from inputs to outputs, both
        by name."""
        if self.norm is None:
            function = getattr(library, self.said["kind"])
            return lambda **inputs: {"y": function(**inputs)}
        cols = self.said["cols"]
        options = {"eps": self.said["eps"], "zero_centered": self.said["zero_centred"] == "yes"}
        if self.said["y_dtype"] != self.said["dtype"]:
            options["out_dtype"] = dtype_named(_DTYPES[self.said["y_dtype"]])
        if not self.adds:
            function = getattr(library, self.norm)
            return lambda x, **weights: {"y": function(x, cols, **weights, **options)}
        function = getattr(library, f"dropout_add_{self.norm}")
        options |= {"p": self.dropout, "seed": int(self.said["dropout_seed"])}

        def sum_and_norm(x, residual=None, **weights):
            y, total = function(x, residual, cols, **weights, **options)
            return {"y": y, "sum": total}

        return sum_and_norm
