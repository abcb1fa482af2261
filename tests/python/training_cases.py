# SPDX-License-Identifier: Apache-2.0
"""What test_train_gpt_distributed.py runs in several ranks, one case after the other."""

import json
import os
import signal
import sys
from itertools import product
from pathlib import Path

import torch._dynamo  # noqa: F401, here, once: else it is every rank that imports it
import torch.distributed as dist
from torch_ranks import Cases

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
import train_gpt_distributed as example

CASES = Cases()
STEPS, SAVE_EVERY = 12, 4
TINY = (
    *("--steps", f"{STEPS}", "--batch", "8", "--context", "16"),
    *("--layers", "1", "--width", "16", "--save-every", f"{SAVE_EVERY}"),
)


# Documents, which are the text otherwise, may change while this runs; plots take their time.
example.train_gpt.training_text = Path(example.__file__).read_text
example.train_gpt.plot = lambda folder, curves: None


def run(way, folder, *more):
    return example.run(example.options_of([*TINY, "--way", way, "--out", folder, *more]))


def result(way, folder, ranks):
    """What was written of a training, or nothing."""
    file = Path(folder) / "losses.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return found.get(f"{way}, {ranks} rank{'s' * (ranks > 1)}")


@CASES(1, 4, of=example.WAYS)
def trains_twice_to_the_same_bits(ranks, way):
    """And along the curve of one rank."""
    first = None
    for _ in range(2):
        assert run(way, "together")
        if dist.get_rank() == 0:
            last = result(way, "together", ranks)
            assert first is None or first == last
            first = last
        dist.barrier()
    if dist.get_rank() == 0:
        assert len(last["losses"]) == STEPS and last["losses"][-1] < last["losses"][0]
        alone = result(way, "together", 1)["losses"]
        pairs = zip(last["losses"], alone, strict=True)
        assert max(abs(one - other) for one, other in pairs) < 1e-5


def folder_of(name):
    return f"killed-{name}"


def die():
    Path("killed").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)


@CASES(2, of=[f"{way}-{when}" for way, when in product(example.WAYS, ("stepping", "storing"))])
def is_killed(ranks, name):
    """Rank 1 in its seventh step; or rank 0 when the second checkpoint lacks but its name."""
    way, when = name.split("-")
    assert run(way, f"whole-{name}")
    step, save = example.Training.step, example.checkpoints.save

    def step_and_die(training, *batch):
        step(training, *batch)
        if when == "stepping" and dist.get_rank() == 1 and len(training.losses) == 7:
            die()

    def save_and_die(state, checkpoint_id):
        save(state, checkpoint_id=checkpoint_id)
        if when == "storing" and dist.get_rank() == 0 and "08" in checkpoint_id.name:
            die()

    example.Training.step, example.checkpoints.save = step_and_die, save_and_die
    run(way, folder_of(name))


@CASES(2, of=[f"{way}-{when}" for way, when in product(example.WAYS, ("stepping", "storing"))])
def goes_on_to_the_same_bits(ranks, name):
    way, _ = name.split("-")
    folder = folder_of(name)
    assert Path("killed").exists() and result(way, folder, ranks) is None
    (checkpoint,) = example.stored(Path(folder) / f"{way}-2-ranks")
    assert checkpoint.name == "step-000004"
    dist.barrier()
    assert run(way, folder, "--resume")
    if dist.get_rank() == 0:
        ours, whole = result(way, folder, ranks), result(way, f"whole-{name}", ranks)
        assert ours["losses"] == whole["losses"] and ours["weights"] == whole["weights"]


@CASES(2)
def what_cannot_go_on_is_refused(ranks):
    assert "there is no checkpoint in" in said("--resume")
    assert run("ddp", "refused")
    assert "other options, or another text" in said("--resume", "--rate", "1")
    file = Path("refused/losses.json")
    dist.barrier()
    if dist.get_rank() == 0:
        known = json.loads(file.read_text())
        known["ddp, 2 ranks"]["weights"] = "of another machine"
        file.write_text(json.dumps(known))
    assert run("ddp", "refused") == (dist.get_rank() > 0), "other bits are a failure"


def said(*more):
    try:
        run("ddp", "refused", *more)
    except SystemExit as refused:
        return str(refused)
