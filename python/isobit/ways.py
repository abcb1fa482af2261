# SPDX-License-Identifier: Apache-2.0
"""What `isobit parity` and `isobit doctor` ask of Python.

`python -m isobit.ways FOLDER` computes the call that the lab wrote there in every way that Python
has. The outputs of each go into a folder of its name, and a line tells of them as soon as it ends:
a way that takes the process with it hides no other. `python -m isobit.ways` says what of Python can
be used.
"""

import json
import platform
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import shorten

from isobit import library_path, remedy
from isobit.triton_lab import operators

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i32": "int32"}
_STATISTICS = {"mean", "rstd"}  # no function of Python returns them
_NORMS = {"layernorm": "layer_norm", "rmsnorm": "rms_norm"}


class Declined(Exception):
    """Why a way cannot be gone."""


class Call:
    """What the lab wrote: a case, which arrays it takes and gives, and on how many threads."""

    def __init__(self, folder):
        self.folder = folder
        case = json.loads((folder / "case.json").read_text())
        self.inputs, self.outputs, self.threads = case["inputs"], case["outputs"], case["threads"]
        self.case = case
        self.norm = _NORMS.get(case["op"])
        self.dropout = case.get("dropout", 0)
        self.adds = self.dropout > 0 or not {"residual", "sum", "grad_sum"}.isdisjoint(
            (*self.inputs, *self.outputs)
        )
        self.options = {}
        if self.norm:
            self.options = {"eps": case["eps"], "zero_centered": case["zero_centred"] == "yes"}

    def arrays(self, convert):
        """The inputs by name, made by convert(array, dtype) of ndarrays that lie as the case has
        them, bf16 as integers."""
        return {name: convert(self._array(name), dtype) for name, dtype in self.inputs.items()}

    def _array(self, name):
        import numpy as np

        packed = np.load(self.folder / f"{name}.npy")
        rows, cols = np.atleast_2d(packed).shape
        offset, stride = self.case["offset"], cols if packed.ndim == 1 else self.case["row_stride"]
        memory = np.empty(offset + rows * stride, packed.dtype)
        array = memory[offset:].reshape(rows, stride)[:, :cols].reshape(packed.shape)
        array[...] = packed
        return array

    def forward(self, library, dtype_named):
        """A function of isobit.numpy or isobit.torch, from inputs to outputs, both by name."""
        if not self.norm:
            function = getattr(library, self.case.get("kind", self.case["op"]))
            return lambda **inputs: {"y": function(**inputs)}
        cols, options = self.case["cols"], dict(self.options)
        if self.case["y_dtype"] != self.case["dtype"]:
            options["out_dtype"] = dtype_named(_DTYPES[self.case["y_dtype"]])
        if not self.adds:
            function = getattr(library, self.norm)
            return lambda x, **weights: {"y": function(x, cols, **weights, **options)}
        function = getattr(library, f"dropout_add_{self.norm}")
        options |= {"p": self.dropout, "seed": int(self.case["dropout_seed"])}

        def sum_and_norm(x, residual=None, **weights):
            y, total = function(x, residual, cols, **weights, **options)
            return {"y": y, "sum": total}

        return sum_and_norm


def _numpy(call):
    import numpy as np

    from isobit import dlpack
    from isobit import numpy as library

    library.set_num_threads(call.threads)
    inputs = call.arrays(
        lambda array, dtype: array.view(dlpack.BFLOAT16) if dtype == "bf16" else array
    )
    if call.case["pass"] == "fwd":
        outputs = call.forward(library, str)(**inputs)
    elif call.adds:
        raise Declined("isobit.numpy has no gradients of sums and dropout")
    else:
        backward = getattr(library, f"{call.norm}_backward")
        x, grad_y, weight = (inputs[name] for name in ("x", "grad_y", "weight"))
        found = backward(grad_y, x, call.case["cols"], weight, **call.options)
        outputs = dict(zip(("grad_x", "grad_weight", "grad_bias"), found, strict=False))
    return {
        name: array.view(np.uint16) if array.dtype.name == "bfloat16" else array
        for name, array in outputs.items()
    }


def _torch(call, compiled, on_gpu=False):
    import torch

    from isobit import torch as library

    gpu = _gpu(torch) if on_gpu else None

    def tensor(array, dtype):
        here = torch.from_numpy(array).view(getattr(torch, _DTYPES[dtype]))
        return _copied(here, call.case["offset"], gpu) if on_gpu else here

    def array(tensor):
        tensor = tensor.detach().cpu()
        return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()

    if call.threads:
        torch.set_num_threads(call.threads)
    inputs = call.arrays(tensor)
    forward = call.forward(library, partial(getattr, torch))
    if compiled:
        forward = torch.compile(forward, fullgraph=True)
    # What is compiled now, not what another version of Isobit left in PyTorch's caches.
    with torch.compiler.config.patch(force_disable_caches=True):
        forward_only = call.case["pass"] == "fwd"
        outputs = forward(**inputs) if forward_only else _gradients(call, forward, inputs)
    return {name: array(each) for name, each in outputs.items()}


def _gpu(torch):
    if not torch.cuda.is_available():
        raise Declined("PyTorch finds no GPU")
    return "cuda"


def _copied(tensor, offset, device):
    """On a device, with its elements as far apart and so many past the beginning of memory."""
    reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.new_empty(offset + max(reach + 1, 0), device=device)
    return memory.as_strided(tensor.shape, tensor.stride(), offset).copy_(tensor)


def _gradients(call, forward, inputs):
    """The case's x is what was normalised: the sum, where there was one."""
    import torch

    gradients = {"y": inputs.pop("grad_y")}
    if "grad_sum" in inputs:
        gradients["sum"] = inputs.pop("grad_sum")
    x = inputs["x"]
    if call.dropout > 0:  # it leaves zeros alone
        inputs |= {"x": torch.zeros_like(x), "residual": x}
    if "grad_bias" in call.outputs:
        inputs["bias"] = torch.zeros_like(inputs["weight"])
    for each in inputs.values():
        each.requires_grad_()
    outputs = forward(**inputs)
    if call.dropout > 0 and not torch.equal(outputs["sum"].view(torch.uint8), x.view(torch.uint8)):
        raise Declined("autograd needs the sum of x and 0, which lacks the NaNs and -0 of x")
    results = [outputs[name] for name in gradients]
    found = torch.autograd.grad(results, list(inputs.values()), list(gradients.values()))
    return {f"grad_{name}": each for name, each in zip(inputs, found, strict=True)}


WAYS = {
    "NumPy": _numpy,
    "PyTorch eager": partial(_torch, compiled=False),
    "PyTorch compiled": partial(_torch, compiled=True),
    "PyTorch eager on cuda": partial(_torch, compiled=False, on_gpu=True),
    "PyTorch compiled on cuda": partial(_torch, compiled=True, on_gpu=True),
}


def _summary(error):
    """Its first paragraph: PyTorch's compiler has whole pages."""
    return shorten(str(error).partition("\n\n")[0], 300)


def attempt(way, call):
    """The outputs that it wrote, or why there are none."""
    try:
        if "rstd" in call.inputs:
            raise Declined("it finds mean and rstd by itself, which are given here")
        found = WAYS[way](call)
        outputs = {name: found[name] for name in call.outputs if name not in _STATISTICS}
    except Declined as reason:
        return {"declined": str(reason)}
    except ImportError as error:
        return {"declined": f"{_summary(error)}; `isobit doctor` says more"}
    except Exception as error:
        return {"declined": f"{type(error).__name__}: {_summary(error)}"}
    import numpy as np

    (call.folder / way).mkdir()
    for name, array in outputs.items():
        np.save(call.folder / way / f"{name}.npy", np.ascontiguousarray(array))
    return {"outputs": list(outputs)}


def compute(folder):
    call = Call(folder)
    for way in WAYS:
        yield {"way": way, **attempt(way, call)}


def _module(name, purpose):
    try:
        return True, f"Python's {name} {import_module(name).__version__}"
    except Exception as error:
        why = _summary(error)
        return False, f"Python's {name}, for {purpose}: {why}; {remedy(name)}"


def _isobit_numpy():
    try:
        import numpy as np

        from isobit.numpy import increment

        increment(np.zeros(1))
    except Exception as error:
        return False, f"isobit.numpy: {_summary(error)}"
    return True, f"isobit.numpy, with {library_path()}"


def _adapters():
    """Of PyTorch; the first is the one that all calls need."""
    try:
        import torch

        from isobit.torch import fast
    except Exception as error:
        why = _summary(error)
        yield False, why if why.startswith("isobit.torch") else f"isobit.torch: {why}"
    else:
        yield True, "isobit.torch, with isobit_torch_cpu.so"
        yield _cuda_adapter(torch)
        short_way = fast.missing or "_isobit_fast.abi3.so"
        yield not fast.missing, f"isobit.torch's short way for small calls: {short_way}"


def _cuda_adapter(torch):
    name = "isobit_torch_cuda.so"
    if not torch.version.cuda:
        return False, f"{name}: this PyTorch was built without CUDA; one with CUDA would use it"
    try:
        torch.ops.load_library(library_path().with_name(name))
    except OSError as error:
        return False, f"{name}: {_summary(error.__cause__ or error)}"
    return True, name


def _triton():
    usable, what = _module("triton", "Isobit's kernels in Triton")
    if not usable:
        return usable, what
    try:
        import torch
    except ImportError as error:
        return False, f"{what}, which is of no use here: {_summary(error)}"
    how = "on a GPU" if torch.cuda.is_available() else "interpreted, as PyTorch finds no GPU"
    return True, f"{what}, for `--device triton`: {', '.join(operators())}; {how}"


def pieces():
    """Of Python: whether each can be used, and what it is, or else what to do."""
    yield True, f"Python {platform.python_version()}, {sys.executable}"
    yield _module("numpy", "isobit.numpy")
    yield _isobit_numpy()
    yield _module("ml_dtypes", "bf16 in isobit.numpy")
    yield _module("torch", "isobit.torch")
    yield from _adapters()
    yield _triton()
    yield _module("matplotlib", "`isobit report`")


def states():
    for usable, what in pieces():
        yield {"state": "ok" if usable else "missing", "what": what}


def main(arguments):
    if len(arguments) > 1:
        print("usage: python -m isobit.ways [FOLDER]", file=sys.stderr)
        return 2
    for line in compute(Path(arguments[0])) if arguments else states():
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
