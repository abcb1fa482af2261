# SPDX-License-Identifier: Apache-2.0
"""Times isobit.torch beside PyTorch on the CPU: eager and compiled, in time and in memory.

All are timed in turns in one process; how is said in timing.py. `fresh memory` is what users have:
results are allocated at each call and dropped, and the C library returns large ones to the system.
PyTorch's norms have no out=, so `recycled memory` is the same calls in a process whose C library
keeps what is freed. `faults` counts the pages that a call had to ask for. Isobit's pool for large
results is on, but for `isobit without pool`.
"""

import argparse
import ctypes
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from timing import TimedCall, count_the_peak_from_here, nothing, status, time_interleaved
from torch_cases import DTYPES, IMPLEMENTATIONS, NORMS, POOLED, Arrays, Case, checked

import isobit.torch
from isobit.lab.report import grouped

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
import tables  # noqa: E402

import bench  # noqa: E402

SHAPES = [  # rows, columns: in the caches, then the widths of real models
    *((64, 768), (1024, 768), (16384, 768), (16384, 1024), (8192, 1024), (4096, 1280)),
    *((2048, 1600), (2048, 2048), (2048, 4096), (2048, 5120), (2048, 6144)),
    *((1024, 8192), (512, 12288)),
]
QUICK_SHAPES = [(64, 768), (2048, 5120)]
CALL_SHAPES = [(1, 64), (1, 768), (8, 768)]
PEAK_SHAPE = (2048, 5120)
PEAK_STEPS = 20
MEMORY = ("fresh", "recycled")
GROUPS = ("forward", "backward", "add", "calls", "memory")
LARGE = 32 << 20  # bytes from which on the C library maps each result anew
FRESH, RECYCLED, CALLS = "fresh memory", "recycled memory", "cost of a call"
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}  # of the C library

# What is aimed at: torch's time over ours where results are large, and ours over torch's in calls.
LARGE_TARGETS = {"fwd": 2.5, "fwd+bwd": 2.0}
CALL_TARGETS = {"fwd": 0.75, "fwd+bwd": 1.15}


class Length(NamedTuple):
    """Of time_interleaved, for each call."""

    seconds: float = 0.2
    rounds: int = 7
    turn: float = 5e-4


def copies(size):
    """Plain copies that move so many bytes in all."""
    source = torch.randint(0, 255, (size // 2,), dtype=torch.uint8)
    target = source.clone()
    addresses = target.data_ptr(), source.data_ptr(), source.nbytes
    return {
        "copy_": TimedCall(partial(target.copy_, source)),
        "memmove": TimedCall(partial(ctypes.memmove, *addresses)),
    }


def timed(case, asked):
    """The line of one case."""
    arrays, setting = Arrays(case), asked["setting"]
    names = [name for name in asked["names"] if IMPLEMENTATIONS[name].differs(case)]
    if any(IMPLEMENTATIONS[name].compiled for name in names):
        torch._dynamo.reset()  # or all shapes would count as one function compiled too often
    with torch.set_grad_enabled(case.backward):
        calls = {name: arrays.call(IMPLEMENTATIONS[name].function(case)) for name in names}
        errors = checked(case, arrays, calls)
        timed_calls = {
            name: TimedCall(
                call, IMPLEMENTATIONS[name].set_pool if case.size >= POOLED else nothing
            )
            for name, call in calls.items()
        }
        roofs = {} if setting == CALLS else copies(case.moved)
        times = time_interleaved(timed_calls | roofs, *asked["length"])
    mine = times["isobit"].median

    def figures(name):
        median, p20, p80, faults = times[name]
        microseconds = {"median_us": median * 1e6, "p20_us": p20 * 1e6, "p80_us": p80 * 1e6}
        return microseconds | {"faults": faults, "error": errors[name]}

    described, copy = case.described(), min((times[name].median for name in roofs), default=None)
    return {
        **described,
        "kind": f"{case.norm}, {setting}, {described['pass']}",
        **{"setting": setting, "threads": asked["threads"], **figures("isobit")},
        "gbps": case.moved / mine / 1e9 if roofs else None,
        "copy_fraction": copy / mine if roofs else None,
        "peers": [
            {
                **{"name": name, "version": torch.__version__, **figures(name)},
                "ratio": times[name].median / mine,
            }
            for name in names
            if name != "isobit"
        ],
    }


def peak_of_calls(call, calls):
    """The most memory that some calls take beyond what the process holds before them."""
    call()
    gc.collect()
    isobit.torch.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS")
    count_the_peak_from_here()
    for _ in range(calls):
        call()
    return status("VmHWM") - before


def peak(case, asked):
    implementation, arrays = IMPLEMENTATIONS[asked["names"][0]], Arrays(case)
    with torch.set_grad_enabled(case.backward):
        implementation.set_pool()
        call = arrays.call(implementation.function(case))
        return {"peak": peak_of_calls(call, PEAK_STEPS)}


def child(asked):
    torch.set_num_threads(asked["threads"])
    measure = {"timed": timed, "peak": peak}[asked["measure"]]
    for case in asked["cases"]:
        print(json.dumps(measure(Case(*case), asked)), flush=True)


def spawned(measure, cases, setting=FRESH, **asked):
    """The lines of a process of its own, as they come."""
    asked |= {"measure": measure, "cases": cases, "setting": setting}
    env = os.environ | {"OMP_NUM_THREADS": str(asked["threads"])}
    if setting == RECYCLED:
        env |= KEEPING
    command = [sys.executable, __file__, "--child", json.dumps(asked)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode:
        sys.exit(f"a process of the benchmark ended with {process.returncode}")


def cases_of(groups, dtypes, shapes):
    passes = [(adds, backward) for adds in (False, True) for backward in (False, True)]
    wanted = {
        (False, False): "forward" in groups,
        (False, True): "backward" in groups,
        (True, False): "add" in groups,
        (True, True): "add" in groups,
    }
    return [
        Case(norm, *which, dtype, *shape)
        for norm in NORMS
        for which in passes
        if wanted[which]
        for dtype in dtypes
        for shape in shapes
    ]


def races(args):
    """(setting, cases, length) of everything that is raced, for each count of threads."""
    length = Length(0.06, 5) if args.quick else Length()
    if cases := cases_of(args.only, args.dtypes, args.shapes):
        for setting in args.memory:
            yield f"{setting} memory", cases, length
    if "calls" in args.only:
        cases = cases_of(("forward", "backward"), args.dtypes, CALL_SHAPES)
        yield CALLS, cases, length._replace(turn=5e-3)


def peaks(args):
    """One line a case, one process an implementation."""
    groups = ["backward"] if args.quick else ["forward", "backward", "add"]
    threads = max(args.threads)
    for case in cases_of(groups, args.dtypes, [args.peak_shape]):
        found = {}
        for name in args.implementations:
            [line] = spawned("peak", [case], names=[name], threads=threads)
            found[name] = line["peak"]
        yield {
            **{"peak_of": title(case.described() | {"threads": threads}), **case._asdict()},
            **{"threads": threads, "steps": PEAK_STEPS, "returned": case.returned, "peaks": found},
        }


def measured(args):
    """All lines, as they come."""
    for threads in args.threads:
        for setting, cases, length in races(args):
            asked = {"names": args.implementations, "threads": threads, "length": length}
            yield from spawned("timed", cases, setting, **asked)
    if "memory" in args.only:
        yield from peaks(args)


def title(line):
    added = " with residual and sum" * ("with" in line)
    threads = f"{line['threads']} thread" + "s" * (line["threads"] > 1)
    return f"{line['op']} {line['pass']}{added}, {line['dtype']}, {threads}"


def mib(size):
    return f"{size / (1 << 20):.1f}"


def progress(line):
    shape = f"{line['rows']} x {line['cols']}"
    if "peak_of" in line:
        sizes = (f"{name} {mib(size)}" for name, size in line["peaks"].items())
        return f"{line['peak_of']}, {shape}; MiB beyond the inputs: {', '.join(sizes)}"
    ratios = (f"{peer['name']} {peer['ratio']:.2f}" for peer in line["peers"])
    return f"{line['setting']}, {title(line)}, {shape}; speed-up over {', '.join(ratios)}"


def case_of(line):
    backward = line["pass"] == "fwd+bwd"
    shape = line["dtype"], line["rows"], line["cols"]
    return Case(line["op"], "with" in line, backward, *shape)


def torch_over_ours(line):
    return next(peer["ratio"] for peer in line["peers"] if peer["name"] == "torch")


def aims(lines, targets, worst, figure):
    """The worst figure of each kind of case beside what was aimed at."""
    rows = []
    for name, same in grouped(lines, title).items():
        found, target = [figure(line) for line in same], targets[same[0]["pass"]]
        verdict = "reached" if worst(*found, target) == target else "missed"
        cells = (worst(found), statistics.median(found), target)
        rows.append([name, *(f"{each:.2f}" for each in cells), verdict])
    return tables.table(["", "worst", "median", "target", ""], rows)


def faults(lines):
    """Pages that a call asked for over those that its results fill, in the median."""
    cells = {}
    for line in lines:
        pages = case_of(line).returned / resource.getpagesize()
        of_kind = cells.setdefault(line["kind"], {})
        for figures in (line | {"name": "isobit"}, *line["peers"]):
            of_kind.setdefault(figures["name"], []).append(figures["faults"] / pages)
    names = list(dict.fromkeys(name for of_kind in cells.values() for name in of_kind))
    rows = [
        [kind, *(f"{statistics.median(of_kind[name]):.2f}" for name in names)]
        for kind, of_kind in cells.items()
    ]
    return tables.table(["", *names], rows)


def peak_table(lines):
    rows = [
        [
            f"{line['peak_of']}, {line['rows']} × {line['cols']}",
            *map(mib, (line["returned"], *line["peaks"].values())),
        ]
        for line in lines
    ]
    return tables.table(["", "its results", *lines[0]["peaks"]], rows)


def summary(lines):
    """{heading: table} of what the lab's own tables do not say."""
    peaks = [line for line in lines if "peak_of" in line]
    raced = [line for line in lines if "op" in line]
    calls = [line for line in raced if line["setting"] == CALLS]
    large = [line for line in raced if line["setting"] != CALLS and case_of(line).size >= LARGE]
    fresh = [line for line in large if line["setting"] == FRESH]
    found = {}
    if large:
        found["Results of 32 MiB and more: pages asked for, over those they fill"] = faults(large)
    if fresh:
        heading = "Results of 32 MiB and more in fresh memory: speed-up over torch"
        found[heading] = aims(fresh, LARGE_TARGETS, min, torch_over_ours)
    if calls:
        heading = "Cost of a call: our time over torch's"
        found[heading] = aims(calls, CALL_TARGETS, max, lambda line: 1 / torch_over_ours(line))
    if peaks:
        found["MiB beyond the inputs at the peak"] = peak_table(peaks)
    return found


def header():
    changed = bench.output("git", "status", "--porcelain", "src", "python", "bench/*.py")
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    return bench.header([]) | {
        "versions": {"torch": torch.__version__, "isobit": isobit.__version__},
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": huge.split("[")[1].split("]")[0],
        "uncommitted_changes": bool(changed),
        "command": " ".join(["python", f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
    }


def listed(choices=None, convert=str):
    """Reads values separated by commas."""

    def read(text):
        values = [convert(value) for value in text.split(",")]
        if choices and (wrong := [value for value in values if value not in choices]):
            raise argparse.ArgumentTypeError(f"{wrong[0]} is unknown; known: {', '.join(choices)}")
        return values

    return read


def shape(text):
    rows, cols = map(int, text.split("x"))
    return rows, cols


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="f32, few shapes, short measurements")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "torch_cpu.jsonl")
    parser.add_argument("--only", type=listed(GROUPS), default=GROUPS, help=",".join(GROUPS))
    parser.add_argument("--threads", type=listed(convert=int), default=sorted({1, os.cpu_count()}))
    parser.add_argument("--dtypes", type=listed(DTYPES))
    parser.add_argument("--shapes", type=listed(convert=shape), help="ROWSxCOLS,...")
    parser.add_argument("--peak-shape", type=shape, default=PEAK_SHAPE, help="ROWSxCOLS")
    parser.add_argument("--memory", type=listed(MEMORY), default=MEMORY, help=",".join(MEMORY))
    parser.add_argument(
        "--peers", type=listed(IMPLEMENTATIONS), default=IMPLEMENTATIONS, help="with torch"
    )
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    wanted = {"isobit", "torch", *args.peers}
    args.implementations = [name for name in IMPLEMENTATIONS if name in wanted]
    args.dtypes = args.dtypes or (["f32"] if args.quick else list(DTYPES))
    args.shapes = args.shapes or (QUICK_SHAPES if args.quick else SHAPES)
    return args


def main():
    args = arguments()
    if args.child:
        return child(args.child)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    with args.out.open("w") as out, tempfile.TemporaryDirectory() as cache:
        # The user's own would serve what was compiled with an older Isobit's derivatives.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        print(json.dumps(header()), file=out, flush=True)
        for line in measured(args):
            print(json.dumps(line), file=out, flush=True)
            print(progress(line), file=sys.stderr)
            lines.append(line)
    for heading, table in (tables.speed([args.out]) | summary(lines)).items():
        print("", heading, "", *table, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
