# SPDX-License-Identifier: Apache-2.0
"""Runs cases of a module in several ranks, and tells what went wrong in each.

PyTorch is imported once: the process that this file starts forks all ranks. They go from case to
case together; where one fails, others take over with the next case. A rank ends itself when a case
takes too long, so nothing hangs and nothing is left behind.
"""

import atexit
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path

import untraced

COLLECTIVE_SECONDS = 100
CASE_SECONDS = 150  # longer than a collective waits for a rank that has gone
ALL_SECONDS = 600  # many times what all cases of a module take


class Cases(dict):
    """Functions of the number of ranks, by name; `ranks` has where each runs."""

    def __init__(self):
        super().__init__()
        self.ranks = {}

    def __call__(self, *ranks, of=None):
        """Decorates a function; where there is `of`, each of it is a case, and its argument."""

        def add(function):
            for each in [None] if of is None else of:
                name = function.__name__ if each is None else f"{function.__name__}-{each}"
                self[name] = function if each is None else partial(_flipped, function, each)
                self.ranks[name] = ranks
            return function

        return add

    def parameters(self):
        """Of a test that runs all: (number of ranks, name)."""
        return [(ranks, name) for name in self for ranks in self.ranks[name]]


def _flipped(function, argument, ranks):
    return function(ranks, argument)


def outcomes(request, module):
    """Of those cases that were asked for."""
    wanted = [
        (each.callspec.params["ranks"], each.callspec.params["name"])
        for each in request.session.items
        if each.module is request.module and "ranks" in getattr(each, "fixturenames", ())
    ]
    return launch(module.__name__, wanted)


def launch(module, cases, seconds=CASE_SECONDS):
    """cases: of (number of ranks, name). The same with what went wrong, or nothing. They share an
    empty folder, where they start. seconds: after which a case is ended."""
    with tempfile.TemporaryDirectory() as folder:
        said = _forked(module, folder, cases, seconds)
        found = dict.fromkeys(cases, f"the ranks did not come to this case\n{said}")
        for file in Path(folder).glob("*.ended"):
            found[cases[int(file.stem)]] = file.read_text()
    return found


def _forked(*arguments):
    """What was said beside the reports in the folder."""
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=ALL_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0] + f"\nstopped after {ALL_SECONDS} s"


def _run(known, folder, ranks, cases, seconds):
    """cases: of (number, name). Returns those that are left."""
    children = {}
    for rank in range(ranks):
        log = folder / f"{cases[0][0]}.{rank}.log"
        if not (child := os.fork()):
            _be_rank(known, folder, rank, ranks, cases, seconds, log)
        children[child] = (rank, log)
    failure = _end_of(children)
    left = [each for each in cases if not _ended(folder, each[0]).exists()]
    if failure:
        number, _ = left[0] if left else cases[-1]
        _ended(folder, number).write_text(failure)
    return left[1:]


def _ended(folder, number):
    return folder / f"{number}.ended"


def _end_of(children):
    """What the ranks said, if one failed: the first is to blame, the others wait in vain."""
    ranks, failed = list(children.values()), []

    def ended(child, status):
        rank, log = children.pop(child)
        if status:  # who was heard last before the others was first, whichever is waited for first
            code = os.waitstatus_to_exitcode(status)
            failed.append((log.stat().st_mtime_ns, rank, code))

    while children and not failed:
        ended(*os.wait())
    if not failed:
        return ""
    time.sleep(0.2)  # they may have failed alike
    for child in tuple(children):
        if (found := os.waitpid(child, os.WNOHANG))[0]:
            ended(*found)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    _, rank, code = min(failed)
    said = "".join(f"rank {rank}:\n{log.read_text()}\n" for rank, log in ranks)
    return f"rank {rank} ended first, with {code}\n{said}"


def _be_rank(known, folder, rank, ranks, cases, seconds, log):
    import torch
    import torch.distributed as dist

    output = log.open("a")
    os.dup2(output.fileno(), sys.stdout.fileno())
    os.dup2(output.fileno(), sys.stderr.fileno())
    torch.set_num_threads(1)
    if rank:  # which executes what rank 0 does
        untraced.pause()
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}  # as torchrun does
    try:
        store = dist.FileStore(str(folder / f"{cases[0][0]}.store"), ranks)
        limit = timedelta(seconds=COLLECTIVE_SECONDS)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
        for number, name in cases:
            faulthandler.dump_traceback_later(seconds, exit=True, file=output)
            known[name](ranks)
            dist.barrier()
            sys.stdout.flush()
            output.truncate(0)  # what passed has nothing to say
            if rank == 0:
                _ended(folder, number).write_text("")
        atexit._run_exitfuncs()  # coverage is written
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # PyTorch's own end takes seconds


def main():
    module, folder, cases, seconds = json.loads(sys.argv[1])
    known = import_module(module).CASES
    (work := Path(folder) / "work").mkdir()
    os.chdir(work)
    by_ranks = {}
    for number, (ranks, name) in enumerate(cases):
        by_ranks.setdefault(ranks, []).append((number, name))
    for ranks, left in by_ranks.items():
        while left:
            left = _run(known, Path(folder), ranks, left, seconds)


if __name__ == "__main__":
    main()
