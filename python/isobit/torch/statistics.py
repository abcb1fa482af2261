# SPDX-License-Identifier: Apache-2.0
"""Counts the calls of Isobit's operators: how often, how long, how much they move and compute, for
which module."""

import json
import os
import resource
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from isobit import c_abi
from isobit.torch import memory
from isobit.torch.watching import call_site, module_names

_lock = threading.Lock()
_counting = []  # those that count at this moment


def _told(event):
    name = event.op.decode() + (" backward" if event.pass_ == b"bwd" else "")
    for each in tuple(_counting):
        each._add(name, event)


@dataclass
class Call:
    """begin and end: nanoseconds of the steady clock. bytes and operations: what a call must move
    and compute at least, as the operator's description says. module: of the model, None if it is
    not known. memory: bytes of live tensors in Isobit's pool, behind the call."""

    operator: str
    module: str | None
    backward: bool
    begin: int
    end: int
    bytes: float
    operations: float
    memory: int
    thread: int


@dataclass
class Row:
    """All calls of an operator, or for a module. of_roof: of the least time that what they move and
    compute takes at the rates that were given, the part; None if none were."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    bytes: float = 0.0
    operations: float = 0.0
    memory: int = 0
    of_roof: float | None = None

    @property
    def gbps(self):
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gflops(self):
        return self.operations / self.seconds / 1e9 if self.seconds else 0.0

    def as_json(self):
        return asdict(self) | {"gbps": self.gbps, "gflops": self.gflops}


_HEADS = ("calls", "ms", "share", "MB", "MFLOP", "GB/s", "GFLOP/s", "of roof", "pool MB")


@dataclass(repr=False, eq=False)
class Statistics:
    """What statistics() counts. calls: each Call, in the order of their ends."""

    model: torch.nn.Module | None = None
    gbps: float | None = None
    gflops: float | None = None
    calls: list[Call] = field(default_factory=list)
    _names: dict = field(default_factory=dict, init=False)
    _sites: dict = field(default_factory=dict, init=False)

    def __enter__(self):
        self._names = {} if self.model is None else module_names(self.model)
        with _lock:
            if self in _counting:
                raise RuntimeError("statistics: this block is counting already")
            if not _counting:
                c_abi.observe(_told)
            _counting.append(self)
        return self

    def __exit__(self, *_):
        with _lock:
            _counting.remove(self)
            if not _counting:
                c_abi.observe(None)
        self._sites.clear()

    def _module(self):
        """(name, whether in backward)"""
        node = torch._C._current_autograd_node()
        if node is not None:  # of what was called forward, whose node it is
            return self._sites.get(node._sequence_nr()), True
        site, _, inside = call_site(self._names)
        module = site.module if inside else None
        self._sites.setdefault(torch.autograd._get_sequence_nr() - 1, module)
        return module, False

    def _add(self, name, event):
        module, backward = self._module()
        self.calls.append(
            Call(
                *(name, module, backward, event.begin, event.end, event.bytes, event.operations),
                *(memory.cache_use()[0], threading.get_native_id()),
            )
        )

    def _rows(self, name_of):
        rows = {}
        for call in self.calls:
            row = rows.setdefault(name := name_of(call), Row(name))
            row.calls += 1
            row.seconds += (call.end - call.begin) / 1e9
            row.bytes += call.bytes
            row.operations += call.operations
            row.memory = max(row.memory, call.memory)
        for row in rows.values():
            least = [row.bytes / self.gbps / 1e9] if self.gbps else []
            least += [row.operations / self.gflops / 1e9] if self.gflops else []
            row.of_roof = max(least) / row.seconds if least and row.seconds else None
        return sorted(rows.values(), key=lambda row: -row.seconds)

    def operators(self):
        """A Row for each operator, the one that took longest first."""
        return self._rows(lambda call: call.operator)

    def modules(self):
        """A Row for each module of the model, and one for calls of none."""
        return self._rows(lambda call: "(no module)" if call.module is None else _named(call))

    def peak_memory(self):
        """Bytes. pool: of live tensors in Isobit's pool, behind one of the calls. process: of the
        process, since it began. cuda: of PyTorch's allocator, where it was used."""
        peaks = {
            "pool": max((call.memory for call in self.calls), default=0),
            "process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            * (1 if sys.platform == "darwin" else 1024),
        }
        if torch.cuda.is_initialized():
            peaks["cuda"] = torch.cuda.max_memory_allocated()
        return peaks

    def json(self):
        """A text with all rows."""
        return json.dumps(
            {
                "operators": [row.as_json() for row in self.operators()],
                "modules": [row.as_json() for row in self.modules()],
                "peak_memory": self.peak_memory(),
            }
        )

    def trace(self, file):
        """Writes what Chrome's tracing and Perfetto show: each call on the line of its thread."""
        process = os.getpid()
        events = [
            {
                "name": call.operator,
                "cat": "backward" if call.backward else "forward",
                "ph": "X",
                "ts": call.begin / 1000,
                "dur": (call.end - call.begin) / 1000,
                "pid": process,
                "tid": call.thread,
                "args": {
                    "module": call.module,
                    "bytes": call.bytes,
                    "operations": call.operations,
                },
            }
            for call in self.calls
        ]
        Path(file).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))

    def __repr__(self):
        tables = [_table("operator", self.operators())]
        if self.model is not None:
            tables.append(_table("module", self.modules()))
        peaks = ", ".join(
            f"{name} {size / 1e6:.1f} MB" for name, size in self.peak_memory().items()
        )
        return "\n\n".join([*tables, f"peak memory: {peaks}"])


def _named(call):
    return call.module or "(the model)"


def _table(head, rows):
    total = sum(row.seconds for row in rows)
    lines = [(head, *_HEADS)]
    for row in rows:
        roof = "" if row.of_roof is None else f"{100 * row.of_roof:.0f} %"
        lines.append(
            (
                *(row.name, str(row.calls), f"{1e3 * row.seconds:.3f}"),
                f"{100 * row.seconds / total:.0f} %" if total else "",
                *(f"{row.bytes / 1e6:.3f}", f"{row.operations / 1e6:.3f}"),
                *(f"{row.gbps:.2f}", f"{row.gflops:.2f}", roof, f"{row.memory / 1e6:.1f}"),
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def statistics(model=None, *, gbps=None, gflops=None) -> Statistics:
    """with statistics() as counted: counts every operator of Isobit that the process calls inside,
    from whichever thread, eager or compiled. print(counted) shows a table; operators(), modules(),
    peak_memory(), json() and trace(file) have the same for programs.

    model: also for each of its modules; what is called in backward counts for the module that
    called the operator whose derivative it is.

    gbps, gflops: what the memory and the processor reach at most, such as `isobit bench` measures;
    rows then say how near the calls came.

    Outside of such blocks nothing is called and nothing is installed. On a GPU the times are those
    of handing over kernels. PackedLinear is not counted.
    """
    if not (model is None or isinstance(model, torch.nn.Module)):
        kind = type(model).__name__
        raise TypeError(f"statistics: model must be a torch.nn.Module; it is {kind}")
    for name, rate in (("gbps", gbps), ("gflops", gflops)):
        if rate is not None and not rate > 0:
            raise ValueError(f"statistics: {name} is {rate}; must be more than 0")
    return Statistics(model, gbps, gflops)
