# SPDX-License-Identifier: Apache-2.0
"""Times Python functions against each other, by the rules of `isobit bench`; and what a process
holds of memory."""

import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TURN = 5e-4  # seconds at least, a thousand times what reading the clock costs


def nothing():
    pass


class TimedCall(NamedTuple):
    """What is timed; `before` goes ahead of each of its turns."""

    call: Callable
    before: Callable = nothing


class Times(NamedTuple):
    """Seconds a call, and how many pages of memory the system had to hand out for it."""

    median: float
    p20: float
    p80: float
    faults: float


def wait_until_quiet():
    """OpenMP's threads go on spinning after a call and would be timed with whoever comes next."""
    step, most = 3e-4, 3e-2
    end = time.perf_counter() + most
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(step)
        if time.process_time() - before < step / 2:
            return


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def status(field):
    """Bytes of a field in Linux's account of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) << 10


def count_the_peak_from_here():
    """VmHWM is that of all the process's life otherwise."""
    Path("/proc/self/clear_refs").write_text("5")


class Subject:
    def __init__(self, timed_call, turn):
        self.timed_call, self.calls = timed_call, 1
        self.turns, self.faults = [], []
        while (seconds := self.turn()) * self.calls < turn:
            self.calls = max(2 * self.calls, int(turn / max(seconds, 1e-9)))
        self.turns, self.faults = [], []

    def turn(self):
        """One untimed call brings its data to where it would be had nothing else run."""
        call, calls = self.timed_call.call, range(self.calls)
        wait_until_quiet()
        self.timed_call.before()
        call()
        faults, start = page_faults(), time.perf_counter()
        for _ in calls:
            call()
        seconds = time.perf_counter() - start
        self.turns.append(seconds / self.calls)
        self.faults.append((page_faults() - faults) / self.calls)
        return self.turns[-1]

    def times(self):
        p20, *_, p80 = statistics.quantiles(self.turns, n=5, method="inclusive")
        return Times(statistics.median(self.turns), p20, p80, statistics.median(self.faults))


def time_interleaved(timed_calls, seconds, rounds, turn=TURN):
    """{name: Times}. Turns A B C, then C B A, for so many seconds a call and rounds at least."""
    subjects = {name: Subject(timed_call, turn) for name, timed_call in timed_calls.items()}
    end = time.perf_counter() + seconds * len(subjects)
    done = 0
    while done < rounds or time.perf_counter() < end:
        for subject in list(subjects.values())[:: 1 if done % 2 == 0 else -1]:
            subject.turn()
        done += 1
    return {name: subject.times() for name, subject in subjects.items()}
