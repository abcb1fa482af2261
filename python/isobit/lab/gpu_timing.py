# SPDX-License-Identifier: Apache-2.0
"""Times calls on a GPU against each other, each captured in a CUDA graph and replayed in turn."""

import statistics
import sys
import time

import torch


class Timer:
    """Seconds of one call, averaged over all sets of arrays, each time it is asked."""

    def __init__(self, call, sets, device):
        self.call, self.sets, self.device, self.how = call, sets, device, "graph"
        for s in sets:  # compiles, and takes memory
            call(s)
        if device == "cpu":
            self.how = "eager"
            return
        torch.cuda.synchronize()
        try:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                for s in sets:
                    call(s)
        except Exception as error:  # a peer that cannot be captured is timed as it is called
            print(f"not captured: {error}", file=sys.stderr)
            torch.cuda.synchronize()
            self.how = "eager"

    def once(self):
        if self.how == "graph":
            self.graph.replay()
        else:
            for s in self.sets:
                self.call(s)

    def __call__(self):
        if self.device == "cpu":
            begin = time.perf_counter()
            self.once()
            return (time.perf_counter() - begin) / len(self.sets)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.once()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / len(self.sets)


def time_interleaved(timers, rounds):
    """Rounds of all, there and back, so that a drift meets each alike."""
    seconds = {name: [] for name in timers}
    for round_ in range(rounds):
        order = list(timers) if round_ % 2 == 0 else list(reversed(timers))
        for name in order:
            seconds[name].append(timers[name]())
    return seconds


def quantiles(samples):
    p20, *_, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    return {"median": statistics.median(samples), "p20": p20, "p80": p80}
