# SPDX-License-Identifier: Apache-2.0
"""The operators' Triton versions, as the lab asks for them: `isobit ... --device triton`.

`python -m isobit.lab.triton` reads JSON objects, a line each, and answers each with another. `do`
says what is asked: `list` what there is and who executes it, `support` which variants take a case
and with which plan, `run` to run one on arrays in files, `counters` what kernels did, `bench` to
time some. With the path of libisobit_ptx.so, Triton compiles and that executes.
"""

import json
import math
import os
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import shorten

from isobit import ops
from isobit._library import remedy

INTERPRETER = "interpreter"
ASKED = ("list", "support", "run", "counters", "bench")
_CALLS = 20  # that a graph has


def operators():
    """{operator: module}, without importing one."""
    files = (file for folder in ops.__path__ for file in Path(folder).glob("*/triton.py"))
    return {
        name: f"isobit.ops.{name}.triton" for name in sorted(file.parent.name for file in files)
    }


class Lab:
    executing = None  # who executes what Triton compiled; otherwise Triton launches it

    def __init__(self, library=None):
        """Triton decides as kernels are defined whether they will be interpreted.

        library: libisobit_ptx.so, which then executes compiled kernels.
        """
        import torch

        interpreting = os.environ.pop("TRITON_INTERPRET", None) == "1"
        if library:
            from isobit.lab.executor import Executor

            self.device, self.executor = "cpu", "ptx"
            self.executing = Executor(library)
        elif interpreting or not torch.cuda.is_available():
            os.environ["TRITON_INTERPRET"] = "1"
            self.device, self.executor = "cpu", INTERPRETER
        else:
            self.device, self.executor = "cuda", torch.cuda.get_device_name()
        self.variants = {op: import_module(name).VARIANTS for op, name in operators().items()}

    def list(self):
        import triton

        from isobit.ops.triton_variants import KNOBS

        described = []
        for op, variants in self.variants.items():
            for variant in variants.values():
                knobs = [
                    {"name": knob, "values": values, "meaning": KNOBS[knob]}
                    for knob, values in variant.knobs.items()
                ]
                described += [
                    {"op": op, "pass": each, "name": variant.name, "knobs": knobs}
                    for each in _passes(variant)
                ]
        return {"executor": self.executor, "version": triton.__version__, "variants": described}

    def support(self, case, options, arrays):
        """By the variants of the case's pass: the plan they choose, or why they decline."""
        from isobit.ops.triton_variants import Case

        forms = Case(
            {name: array["dtype"] for name, array in arrays.items()},
            {name: tuple(array["shape"]) for name, array in arrays.items()},
            options,
        )
        supported = {}
        for variant in self.variants[case["op"]].values():
            if case["pass"] not in _passes(variant):
                continue
            reason = _lacks(variant, case, options, arrays) or variant.declines(forms)
            supported[variant.name] = (
                {"unavailable": reason} if reason else {"plan": dict(variant.choose(forms))}
            )
        return supported

    def run(self, op, variant, plan, options, arrays):
        memory = {name: _mapped(array) for name, array in arrays.items()}
        there = {name: storage.to(self.device) for name, storage in memory.items()}
        views = _views(there, arrays)
        chosen = self.variants[op][variant]
        for launch in chosen.launches(plan, **_taken(chosen, options), **views):
            if self.executing:
                self.executing.launch(launch)
            else:
                launch()
        for name, storage in memory.items():
            storage.copy_(there[name])
        return {}

    def counters(self):
        """What each kernel did that was executed since this was asked last."""
        return {"kernels": self.executing.counters()}

    def bench(self, op, configurations, options, arrays, copied_bytes, rounds):
        """Seconds a call: of all configurations, and last of a plain copy of as many bytes."""
        import torch

        from isobit.lab.gpu_timing import Timer, quantiles, time_interleaved

        views = _views({n: _mapped(a).to(self.device) for n, a in arrays.items()}, arrays)
        half = torch.empty(math.ceil(copied_bytes / 2), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(half)
        calls = [
            partial(self._bound(op, way["variant"], options), way["plan"], **views)
            for way in configurations
        ]
        calls.append(partial(target.copy_, half))
        timers = {
            number: Timer(lambda call: call(), [call] * _CALLS, self.device)
            for number, call in enumerate(calls)
        }
        seconds = time_interleaved(timers, rounds)
        return {"times": [quantiles(samples) for samples in seconds.values()]}

    def _bound(self, op, variant, options):
        """Its `run`, with the options that it takes."""
        chosen = self.variants[op][variant]
        return partial(chosen.run, **_taken(chosen, options))


def _taken(variant, options):
    return {name: value for name, value in options.items() if name in variant.takes}


def _passes(variant):
    """Kinds of an operator that has no passes belong to `fwd`."""
    return [kind for kind in variant.kinds if kind in ("fwd", "bwd")] or ["fwd"]


def _lacks(variant, case, options, arrays):
    """What a case asks for that the variant does not know; empty where it knows all."""
    kind = options.get("kind", case["pass"])
    if kind not in variant.kinds:
        return f"it computes only {' and '.join(variant.kinds)}"
    if unknown := [name for name in arrays if name not in variant.takes]:
        return f"it does not support {', '.join(unknown)}"
    for name, value in options.items():
        known = name in variant.takes or name in ("kind", "dropout_seed")  # a seed does nothing
        if not known and value not in (0, "no"):
            return f"it does not support {name}"
    for name, array in arrays.items():
        shape, strides = array["shape"], array["strides"]
        if not (variant.any_strides or _adjacent(shape, strides)):
            return f"elements must be adjacent; {name} of shape {shape} has strides {strides}"
    return ""


def _adjacent(shape, strides):
    """Whether the elements lie one after the other, in order."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected:
            return math.prod(shape) == 0
        expected *= extent
    return True


def _span(shape, strides):
    """How many elements lie from the first to the last, with all gaps."""
    if math.prod(shape) == 0:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def _mapped(array):
    """The whole memory of an array of the lab's, guards too, as its file has it."""
    import torch

    return torch.from_file(array["file"], shared=True, size=array["bytes"], dtype=torch.uint8)


def _views(memory, arrays):
    from isobit.ops.triton_variants import DTYPES

    views = {}
    for name, array in arrays.items():
        dtype, first = DTYPES[array["dtype"]], array["first"]
        count = _span(array["shape"], array["strides"]) * dtype.itemsize
        elements = memory[name][first : first + count].view(dtype)
        views[name] = elements.as_strided(array["shape"], array["strides"])
    return views


def answer(lab: Lab, request: Mapping):
    asked = {key: value for key, value in request.items() if key != "do"}
    try:
        return {name: getattr(lab, name) for name in ASKED}[request["do"]](**asked)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {shorten(str(error), 300)}"}


def main(*library):
    # What others print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        lab = Lab(*library)
    except Exception as error:
        why = f"{shorten(str(error), 300)}; {remedy('torch triton')}"
        print(json.dumps({"error": why}), file=answers, flush=True)
        return
    for line in sys.stdin:
        print(json.dumps(answer(lab, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
