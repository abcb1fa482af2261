# SPDX-License-Identifier: Apache-2.0
"""What `isobit parity` and `isobit doctor` ask of Python.

`python -m isobit.lab.callers FOLDER` computes the call that the lab wrote there, once for each
caller that Python has. The outputs of each go into a folder of its name, and a line reports them as
soon as it ends, so one that crashes the process hides no other. `python -m isobit.lab.callers`
says what of Python can be used.
"""

import json
import platform
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import shorten

from isobit._library import library_path, remedy
from isobit.lab import functions
from isobit.lab.functions import DTYPES, LINEAR, NORMS, Unavailable
from isobit.lab.triton import operators

# What no function of Python returns.
_INTERNAL = {"attention": {"max", "sum"}}
_STATISTICS = {"mean", "rstd"}


class Call:
    """What the lab wrote: a case, which arrays it takes and gives, and on how many threads."""

    def __init__(self, folder):
        self.folder = folder
        case = json.loads((folder / "case.json").read_text())
        self.inputs, self.outputs, self.threads = case["inputs"], case["outputs"], case["threads"]
        self.case = case
        self.internal = _INTERNAL.get(case["op"], _STATISTICS)
        self.norm = NORMS.get(case["op"])
        self.dropout = case.get("dropout", 0)
        self.adds = self.dropout > 0 or not {"residual", "sum", "grad_sum"}.isdisjoint(
            (*self.inputs, *self.outputs)
        )
        self.options = {}
        if self.norm:
            self.options = {"eps": case["eps"], "zero_centered": case["zero_centered"] == "yes"}

    def arrays(self, convert):
        """The inputs by name, made by convert(array, dtype) of ndarrays that lie as the case has
        them, bf16 as integers."""
        return {name: convert(self._array(name), dtype) for name, dtype in self.inputs.items()}

    def _array(self, name):
        import numpy as np

        packed = np.load(self.folder / f"{name}.npy")
        layout, row_stride = self.case.get("layout"), self.case.get("row_stride", 0)
        if name in _TRANSPOSED.get(layout, ""):
            strides = _strides(packed.swapaxes(-1, -2).shape, "dense", row_stride)
            strides[-2:] = reversed(strides[-2:])
        else:
            strides = _strides(packed.shape, layout, row_stride)
        reach = sum((n - 1) * step for n, step in zip(packed.shape, strides, strict=True)) + 1
        memory = np.empty(self.case["offset"] + (reach if packed.size else 0), packed.dtype)
        array = np.ndarray(
            packed.shape,
            packed.dtype,
            memory,
            self.case["offset"] * packed.itemsize,
            [step * packed.itemsize for step in strides],
        )
        array[...] = packed
        return array

    def forward(self, library, dtype_named):
        """A function of isobit.numpy or isobit.torch, from inputs to outputs, both by name."""
        return functions.forward(self, library, dtype_named)

    def cast(self, option, dtype_named):
        """The option that gives y another dtype than x, where it has one."""
        y_dtype = self.case["y_dtype"]
        return {} if y_dtype == self.case["dtype"] else {option: dtype_named(DTYPES[y_dtype])}


# Of these isobit.numpy has no gradients.
_WITHOUT_GRADIENTS = (
    *("attention", "conv1d", "conv2d", "cross_entropy", "matmul", "pool2d", "softmax"),
    "interpolate",
    *("batch_norm", "embedding", "group_norm", "linear_cross_entropy", *LINEAR),
    "reduce",
    "pointwise_loss",
)
_TRANSPOSED = {"nt": "b", "tn": "a", "tt": "ab"}
_SPREAD = 3  # elements from one to the next, in the lab too


def _strides(shape, layout, row_stride):
    """Where the lab has the elements of an array: the last dimension's are nearest, or in the
    layout `reversed` the first one's."""
    last, strides = len(shape) - 1, [0] * len(shape)
    between = _SPREAD if layout == "spread" else 0
    step = between or 1
    for dim in range(len(shape)) if layout == "reversed" else range(last, -1, -1):
        if dim == last - 1:
            step = max(step, row_stride)
        strides[dim] = step
        step = step * max(shape[dim], 1) + between
    return strides


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
    elif call.case["op"] == "rope":
        gradients = {name.removeprefix("grad_y_"): each for name, each in inputs.items()}
        found = call.forward(library, str)(**gradients)
        outputs = {name.replace("y_", "grad_"): each for name, each in found.items()}
    elif call.case["op"] in _WITHOUT_GRADIENTS:
        raise Unavailable(f"isobit.numpy has no gradients of {call.case['op']}")
    elif call.adds:
        raise Unavailable("isobit.numpy has no gradients of sums or dropout")
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
        here = torch.from_numpy(array).view(getattr(torch, DTYPES[dtype]))
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
        raise Unavailable("PyTorch finds no GPU")
    return "cuda"


def _copied(tensor, offset, device):
    """On a device, with its elements as far apart and so many past the beginning of memory."""
    reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.new_empty(offset + max(reach + 1, 0), device=device)
    return memory.as_strided(tensor.shape, tensor.stride(), offset).copy_(tensor)


def _gradients(call, forward, inputs):
    """The case's x is what was normalised: the sum, where there was one."""
    import torch

    if call.case["op"] == "rope":  # whose gradients do not depend on q and k
        given = {name: inputs.pop(f"grad_y_{name}") for name in "qk" if f"grad_y_{name}" in inputs}
        at = {name: torch.zeros_like(each, requires_grad=True) for name, each in given.items()}
        found = torch.autograd.grad(
            list(forward(**at, **inputs).values()), list(at.values()), list(given.values())
        )
        return {f"grad_{name}": each for name, each in zip(at, found, strict=True)}
    if call.case["op"] == "attention":
        raise Unavailable("autograd makes max and sum itself")
    if call.case["op"] == "softmax":  # autograd makes y itself
        case, dtype = call.case, getattr(torch, DTYPES[call.case["dtype"]])
        given = (inputs["grad_y"], inputs["y"], inputs.get("mask"))
        grad_x = torch.ops.isobit.softmax_backward(
            *given, case["scale"], case["log"] == "yes", dtype
        )
        return {"grad_x": grad_x}
    if call.case["op"] == "pool2d":
        return _pooling_gradients(call, forward, inputs, inputs.pop("grad_y"))
    if call.case["op"] == "interpolate":
        sides = (call.case["height"], call.case["width"])
        x = inputs["grad_y"].new_zeros(*inputs["grad_y"].shape[:2], *sides).requires_grad_()
        return {"grad_x": torch.autograd.grad(forward(x=x)["y"], x, inputs["grad_y"])[0]}
    if call.case["op"].endswith("cross_entropy"):  # autograd makes largest and sum itself
        return _losses_gradients(call, inputs)
    if call.case["op"] == "embedding":
        index, grad_y = inputs["index"], inputs["grad_y"]
        weight = grad_y.new_zeros(call.case["tokens"], grad_y.shape[-1]).requires_grad_()
        y = forward(weight=weight, index=index)["y"]
        return {"grad_weight": torch.autograd.grad(y, weight, grad_y)[0]}
    if call.case["op"] == "pointwise_loss":
        x, gradient = inputs.pop("x").requires_grad_(), inputs.pop("grad_loss")
        return {"grad_x": torch.autograd.grad(forward(x, **inputs)["loss"], x, gradient)[0]}
    if call.case["op"] in LINEAR:
        return _product_gradients(call, forward, inputs, inputs.pop("grad_z"))
    if call.case["op"] == "reduce" and "x" not in inputs:  # of which autograd asks the shape alone
        shape = call.case["kept"], call.case["reduced"]
        dtype = getattr(torch, DTYPES[call.case["dtype"]])
        inputs["x"] = torch.zeros(shape, dtype=dtype, device=inputs["grad_y"].device)
    gradients = {"y": inputs.pop("grad_y")}
    if call.case["op"] == "matmul":
        return _product_gradients(call, forward, inputs, gradients["y"])
    if call.case["op"] in ("conv1d", "conv2d"):
        return _convolution_gradients(call, forward, inputs, gradients["y"])
    if call.case["op"] in ("batch_norm", "group_norm"):
        return _channel_gradients(call, forward, inputs, gradients["y"])
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
        raise Unavailable(
            "autograd needs the sum of x and 0, which does not keep the NaNs and -0 of x"
        )
    results = [outputs[name] for name in gradients]
    found = torch.autograd.grad(results, list(inputs.values()), list(gradients.values()))
    return {f"grad_{name}": each for name, each in zip(inputs, found, strict=True)}


def _channel_gradients(call, forward, inputs, gradient):
    import torch

    given = {name: inputs[name].requires_grad_() for name in ("x", "weight") if name in inputs}
    if "grad_bias" in call.outputs:
        dtype = getattr(torch, DTYPES[call.case["weight_dtype"]])
        zeros = torch.zeros(call.case["channels"], dtype=dtype).to(gradient.device)
        inputs["bias"] = given["bias"] = zeros.requires_grad_()
    y = forward(**inputs)["y"]
    found = torch.autograd.grad(y, list(given.values()), gradient)
    return {f"grad_{name}": each for name, each in zip(given, found, strict=True)}


def _product_gradients(call, forward, inputs, gradient):
    """Autograd makes what an activation was applied to itself, and so has the case's only where
    there is none."""
    import torch

    if "pre" in inputs or "grad_c" in call.outputs:
        raise Unavailable("autograd takes no pre, and has no c")
    if "grad_bias" in call.outputs:
        dtype = getattr(torch, DTYPES[call.case["weight_dtype"]])
        features = call.case["n" if call.case["op"] == "matmul" else "features"]
        inputs["bias"] = torch.zeros(features, dtype=dtype)
        inputs["bias"] = inputs["bias"].to(gradient.device)
    for each in inputs.values():
        each.requires_grad_()
    (y,) = forward(**inputs).values()
    found = torch.autograd.grad(y, list(inputs.values()), gradient)
    return {f"grad_{name}": each for name, each in zip(inputs, found, strict=True)}


def _losses_gradients(call, inputs):
    import torch

    options = {name: call.case[name] for name in ("label_smoothing", "z_loss")}
    options["ignore_index"] = int(call.case["ignore_index"])
    if call.case["op"] == "cross_entropy":
        given = {"weight": None} | inputs
        return {"grad_x": torch.ops.isobit.cross_entropy_backward(**given, **options)}
    needs = {f"needs_{name}": f"grad_{name}" in call.outputs for name in ("x", "weight")}
    if "grad_bias" in call.outputs:
        needs["bias_dtype"] = getattr(torch, DTYPES[call.case["dtype"]])
    given = {"bias": None, "class_weight": None} | inputs
    found = torch.ops.isobit.linear_cross_entropy_backward(**given, **options, **needs)
    names = (f"grad_{name}" for name in ("x", "weight", "bias"))
    return {n: each for n, each in zip(names, found, strict=True) if n in call.outputs}


def _pooling_gradients(call, forward, inputs, gradient):
    """Autograd makes the index of a largest element itself: the operator is told of one."""
    import torch

    case = call.case
    extents = (case["height"], case["width"])
    if "index" not in inputs:
        x = gradient.new_zeros(*gradient.shape[:2], *extents).requires_grad_()
        (y,) = forward(x=x).values()
        return {"grad_x": torch.autograd.grad(y, x, gradient)[0]}
    names = ("window", "bins", "stride", "padding", "dilation")
    numbers = [[case[f"{name}_{side}"] for side in ("h", "w")] for name in names]
    windows = dict(zip(names, numbers, strict=True))
    steps = zip(windows["stride"], windows["window"], strict=True)
    windows["stride"] = [stride or window for stride, window in steps]
    found = torch.ops.isobit.max_pool_backward(
        gradient, inputs["index"], extents, *windows.values(), case["ceil_mode"] == "yes"
    )
    return {"grad_x": found}


def _convolution_gradients(call, forward, inputs, gradient):
    import torch

    if "grad_bias" in call.outputs:
        dtype = getattr(torch, DTYPES[call.case["weight_dtype"]])
        inputs["bias"] = torch.zeros(call.case["filters"], dtype=dtype).to(gradient.device)
    for each in inputs.values():
        each.requires_grad_()
    y = forward(**inputs)["y"]
    found = torch.autograd.grad(y, list(inputs.values()), gradient)
    return {f"grad_{name}": each for name, each in zip(inputs, found, strict=True)}


CALLERS = {
    "NumPy": _numpy,
    "PyTorch eager": partial(_torch, compiled=False),
    "PyTorch compiled": partial(_torch, compiled=True),
    "PyTorch eager on cuda": partial(_torch, compiled=False, on_gpu=True),
    "PyTorch compiled on cuda": partial(_torch, compiled=True, on_gpu=True),
}


def _summary(error):
    """Its first paragraph: PyTorch's compiler has whole pages."""
    return shorten(str(error).partition("\n\n")[0], 300)


def attempt(caller, call):
    """The outputs that it wrote, or why there are none."""
    try:
        if "rstd" in call.inputs:
            raise Unavailable("mean and rstd are given, but it computes them itself")
        found = CALLERS[caller](call)
        outputs = {name: found[name] for name in call.outputs if name not in call.internal}
    except Unavailable as reason:
        return {"unavailable": str(reason)}
    except ImportError as error:
        return {"unavailable": f"{_summary(error)}; run `isobit doctor` for details"}
    except Exception as error:
        return {"unavailable": f"{type(error).__name__}: {_summary(error)}"}
    import numpy as np

    (call.folder / caller).mkdir()
    for name, array in outputs.items():
        np.save(call.folder / caller / f"{name}.npy", np.ascontiguousarray(array))
    return {"outputs": list(outputs)}


def compute(folder):
    call = Call(folder)
    for caller in CALLERS:
        yield {"configuration": caller, **attempt(caller, call)}


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
        fast_path = fast.missing or "_isobit_fast.abi3.so"
        yield not fast.missing, f"isobit.torch's fast path for small calls: {fast_path}"


def _cuda_adapter(torch):
    name = "isobit_torch_cuda.so"
    if not torch.version.cuda:
        return False, f"{name}: needs a PyTorch built with CUDA"
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
        return False, f"{what} cannot be used: {_summary(error)}"
    how = "on a GPU" if torch.cuda.is_available() else "interpreted, because PyTorch finds no GPU"
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
        print("usage: python -m isobit.lab.callers [FOLDER]", file=sys.stderr)
        return 2
    for line in compute(Path(arguments[0])) if arguments else states():
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
