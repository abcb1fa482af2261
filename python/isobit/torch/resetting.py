# SPDX-License-Identifier: Apache-2.0
"""reset_parameters_: the initial weights of a whole model with the same bits on every machine.

Every module resets itself by its own rules; a dispatch mode gives it our numbers in the place of
PyTorch's, whose normal ones depend on the instruction set.
"""

from hashlib import sha256

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isobit.torch.generators import Generator, fill

_aten = torch.ops.aten
# What a drawing operator of PyTorch's is here, and the names of its numbers in their order.
_DRAWN = {
    _aten.uniform_.default: ("uniform", ("low", "high"), (0.0, 1.0)),
    _aten.normal_.default: ("normal", ("mean", "std"), (0.0, 1.0)),
    _aten.bernoulli_.float: ("bernoulli", ("p",), (0.5,)),
}
_KEYWORDS = {"from": "low", "to": "high"}
# By these PyTorch makes truncated normal numbers of others, in some versions and ranges, and
# orthogonal ones.
_OF_THE_MACHINE = (
    _aten.linalg_qr.default,
    *(_aten.erfinv_.default, _aten.erfinv.default),
    *(_aten.log_.default, _aten.log.default),
)


def _sequence(seed, name):
    """The seed of the numbers of one parameter."""
    return int.from_bytes(sha256(f"{seed} {name}".encode()).digest()[:8], "little")


class _Draws(TorchDispatchMode):
    """Fills what PyTorch would fill: each parameter from a sequence of its own."""

    def __init__(self, seed, names):
        super().__init__()
        self.seed, self.names = seed, names  # by the address of the first element
        self.generators, self.path = {}, ""

    def begin(self, path):
        """The module of that name is reset: of a parameter that two share, each draws the same."""
        self.path = path
        self.generators.clear()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in _DRAWN:
            return self._filled(function, args, kwargs)
        if torch.Tag.nondeterministic_seeded in function.tags or function in _OF_THE_MACHINE:
            raise NotImplementedError(
                f"reset_parameters_: a module calls {function}, whose bits depend on the machine; "
                "isobit.torch.init has functions whose bits do not"
            )
        return function(*args, **kwargs)

    def _filled(self, function, args, kwargs):
        distribution, names, defaults = _DRAWN[function]
        if kwargs.get("generator") is not None:
            raise NotImplementedError(
                f"reset_parameters_: a module gives {function} a generator of PyTorch's"
            )
        tensor, *given = args
        numbers = dict(zip(names, defaults, strict=True)) | dict(zip(names, given, strict=False))
        numbers |= {
            _KEYWORDS.get(name, name): value
            for name, value in kwargs.items()
            if name != "generator"
        }
        # What is no parameter, but may become part of one, has the numbers of the module's name.
        name = self.names.get(tensor.data_ptr(), f"{self.path}:")
        if name not in self.generators:
            self.generators[name] = Generator(_sequence(self.seed, name))
        generator = self.generators[name]
        return fill(tensor, distribution, generator.seed, generator.take(tensor.numel()), **numbers)


def reset_parameters_(model, seed, *, keep_unknown=False):
    """Initialises a model as its modules' reset_parameters do, inner ones first, with numbers that
    depend on the seed and on each parameter's name alone; returns the model.

    A parameter with several names has the numbers of its first one. A module that holds
    parameters and has no reset_parameters, or one that draws other numbers than uniform,
    normal ones or those of bernoulli, is refused, in the former case unless keep_unknown leaves it
    as it is.
    """
    if isinstance(seed, torch.Tensor):
        seed = seed.item()
    seed = Generator(seed).seed
    tensors = (*model.named_parameters(), *model.named_buffers())
    names = {}
    for name, tensor in tensors:
        if tensor.is_meta:
            raise ValueError(
                f"reset_parameters_: {name} is on the meta device; give it memory first"
            )
        if tensor.numel():
            names.setdefault(tensor.data_ptr(), name)
    resets, unknown = [], []
    for path, module in reversed([*model.named_modules()]):
        reset = _reset_of(module)
        if reset is not None:
            resets.append((path, reset))
        else:
            own = module.named_parameters(prefix=path, recurse=False)
            unknown += [f"{name} of {type(module).__name__}" for name, _ in own]
    if unknown and not keep_unknown:
        raise ValueError(
            f"reset_parameters_: no reset_parameters says how to begin {', '.join(unknown)}; "
            "keep_unknown=True leaves them as they are"
        )
    with torch.no_grad(), _Draws(seed, names) as draws:
        for path, reset in resets:
            draws.begin(path)
            reset()
    return model


def _reset_of(module):
    for name in ("reset_parameters", "_reset_parameters"):
        if callable(reset := getattr(module, name, None)):
            return reset
    return None
