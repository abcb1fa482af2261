# SPDX-License-Identifier: Apache-2.0
"""Loads the adapters that tell PyTorch of Isobit's operators."""

from pathlib import Path

from isobit._library import library_path, remedy

try:
    import torch
except ImportError as error:
    raise ImportError(f"isobit.torch needs PyTorch 2.11 or later; {remedy('torch')}") from error

_OLDEST = (2, 11)


def names() -> tuple[str, ...]:
    """The operators that the adapter for CPU tensors has defined, without underscore in front.
    Those with one behind change their tensors, and are no operators of their own."""
    qualified = torch._C._dispatch_get_all_op_names()
    every = {each[8:] for each in qualified if each.startswith("isobit::")}
    return tuple(sorted(name for name in every if f"_{name}" in every and name[-1] != "_"))


def __getattr__(name):
    if name == "NAMES":
        return names()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _load(path: Path) -> str:
    """Why it cannot be loaded, or nothing."""
    if not path.exists():
        return f"{path.name} was not found next to {library_path().name}"
    try:
        torch.ops.load_library(path)
    except OSError as error:
        return str(error.__cause__ or error)
    return ""


def load() -> None:
    """Makes torch.ops.isobit complete, or raises an ImportError that says what to do."""
    version = torch.__version__
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise ImportError(
            f"isobit.torch needs PyTorch 2.11 or later; this is {version}. "
            "Run `pip install --upgrade torch`."
        )
    try:
        folder = library_path().parent
    except FileNotFoundError as error:
        raise ImportError(f"isobit.torch: {error}") from None
    if missing := _load(folder / "isobit_torch_cpu.so"):
        raise ImportError(
            f"isobit.torch: {missing}. Isobit was built without PyTorch's headers, or for another "
            "machine; run `make build` in a checkout, or `pip install --no-build-isolation .`"
        )
    if not hasattr(torch.ops.isobit, "_increment"):
        raise ImportError(
            "isobit.torch: PyTorch rejected the operators; another copy of Isobit is loaded"
        )
    if torch.version.cuda and (missing := _load(folder / "isobit_torch_cuda.so")):
        _decline_cuda(missing)


def _decline_cuda(reason: str) -> None:
    def decline(*_args, **_kwargs):
        raise NotImplementedError(f"isobit.torch cannot use CUDA tensors: {reason}")

    global _declined  # the registration lasts as long as this object
    _declined = torch.library.Library("isobit", "IMPL")
    for name in names():
        for each in (name, "_" + name):
            _declined.impl(each, decline, "CUDA")
