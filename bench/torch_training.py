# SPDX-License-Identifier: Apache-2.0
"""Times whole training steps of transformers' models on the CPU: forward, backward, clipping and
AdamW, by PyTorch and converted to Isobit, eager and compiled, in turns in one process; the largest
memory of each comes from a process of its own.

The logits' loss of a language model is PyTorch's cross_entropy over all logits, as transformers
compute it; `isobit, fused loss` is the same model whose last product and loss are one
linear_cross_entropy.
"""

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from timing import TimedCall, count_the_peak_from_here, status, time_interleaved

import isobit.torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
import bench  # noqa: E402

BY_PYTORCH = ("torch", "torch compiled")
BY_ISOBIT = ("isobit", "isobit compiled")
FUSED = "isobit, fused loss"


def gpt2(**sizes):
    """GPT-2, by default small, without dropout, whose masks differ."""
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**quiet, **sizes))


def bert():
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForMaskedLM(transformers.BertConfig(**quiet))


def resnet18():
    config = transformers.ResNetConfig(
        **{"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]},
        **{"layer_type": "basic", "num_labels": 1000},
    )
    return transformers.ResNetForImageClassification(config)


class Case(NamedTuple):
    make: Callable
    shape: tuple  # of the tokens, or of the images

    @property
    def has_text(self):
        return len(self.shape) == 2

    def inputs(self, model):
        if self.has_text:
            tokens = torch.randint(model.config.vocab_size, self.shape)
            return {"input_ids": tokens, "labels": tokens}
        labels = torch.randint(model.config.num_labels, self.shape[:1])
        return {"pixel_values": torch.randn(self.shape), "labels": labels}


CASES = {
    "gpt-4-layers": Case(lambda: gpt2(n_layer=4, n_embd=256, n_head=4, vocab_size=256), (8, 128)),
    "gpt2-small": Case(gpt2, (4, 256)),
    "bert-base": Case(bert, (2, 128)),
    "resnet-18": Case(resnet18, (8, 3, 64, 64)),
}


class FusedLoss(torch.nn.Module):
    """A causal language model whose logits never stand in memory."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        x = self.model.transformer(input_ids).last_hidden_state[:, :-1].flatten(0, 1)
        return isobit.torch.linear_cross_entropy(
            x, self.model.lm_head.weight, labels[:, 1:].flatten()
        )


def step_of(name, by):
    """A call that makes one step."""
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make().train()
    inputs = case.inputs(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=by in BY_PYTORCH or None)
    clip = torch.nn.utils.clip_grad_norm_
    if by not in BY_PYTORCH:
        optimizer = isobit.torch.convert(model, optimizer).optimizer
        clip = isobit.torch.clip_grad_norm_
    call = FusedLoss(model) if by == FUSED else model
    if by.endswith("compiled"):
        call = torch.compile(call)

    def step():
        optimizer.zero_grad()
        found = call(**inputs)
        loss = found if by == FUSED else found.loss
        loss.backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def ways(name):
    fused = (FUSED,) if name.startswith("gpt") else ()
    return (*BY_PYTORCH, *BY_ISOBIT, *fused)


def time_of(name, threads, options):
    torch.set_num_threads(threads)
    steps = {by: step_of(name, by) for by in options.by or ways(name)}
    first = {by: step().item() for by, step in steps.items()}
    found = time_interleaved(
        {by: TimedCall(step) for by, step in steps.items()}, options.seconds, options.rounds
    )
    for by, times in found.items():
        yield {
            **{"model": name, "threads": threads, "by": by, "median": times.median},
            **{"p20": times.p20, "p80": times.p80, "loss": first[by]},
        }


def memory_of(name, by, steps=2):
    """Bytes at most while steps were made, beyond what the process had without a model."""
    gc.collect()  # what leaves later would be taken off
    before = status("VmRSS")
    step = step_of(name, by)
    step()  # compilers' own memory is not counted
    count_the_peak_from_here()
    for _ in range(steps):
        step()
    return status("VmHWM") - before


def memory_lines(name, options):
    for by in options.by or ways(name):
        command = [sys.executable, __file__, name, "--memory-of", by]
        found = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True)
        yield {"model": name, "by": by, "peak": int(found.stdout.split()[-1])}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--by", action="append", help="one way; all if not given")
    parser.add_argument("--seconds", type=float, default=20, help="for each way, at least")
    parser.add_argument("--rounds", type=int, default=5, help="at least")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="a file for lines of JSON, after a header")
    options = parser.parse_args(arguments)
    if options.memory_of:
        print(memory_of(options.models[0], options.memory_of))
        return
    lines = []
    for name in options.models or CASES:
        for threads in options.threads.split(","):
            lines += print_all(time_of(name, int(threads), options))
        if not options.no_memory:
            lines += print_all(memory_lines(name, options))
    if options.out:
        head = bench.header([]) | {"command": " ".join(["bench/torch_training.py", *sys.argv[1:]])}
        options.out.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))


def print_all(lines):
    for line in lines:
        print(json.dumps(line), flush=True)
        yield line


if __name__ == "__main__":
    main()
