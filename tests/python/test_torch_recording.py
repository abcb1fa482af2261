# SPDX-License-Identifier: Apache-2.0
"""What record writes, `isobit replay` repeats without PyTorch on every instruction set."""

import json
import subprocess

import pages
import pytest
import torch
from torch import nn
from torch_calls import draw

import isobit.torch
from isobit._library import library_path
from isobit.torch import Generator, convert, init, record


def replay(file, *more, status=0):
    """What it says of each configuration."""
    command = [library_path().parent / "isobit", "replay", file, "--json", *more]
    run = subprocess.run(command, capture_output=True, text=True, cwd=pages.ROOT)
    assert run.returncode == status, run.stdout + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def train(file):
    """A step of a model that has dropout, of which every bit of a seed counts, as of other random
    numbers, and calls whose result takes the place of an input."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 8))
    convert(model)
    with record(file):
        x = model(draw(5, 1, 8, 8))
        x, _ = isobit.torch.dropout_add_layer_norm(x, None, 8, p=0.3)
        q = x.reshape(1, 2, 5, 4)
        y = isobit.torch.scaled_dot_product_attention(q, q, q, dropout_p=0.2, is_causal=True)
        isobit.torch.silu(y.detach().clone(), inplace=True)
        init.normal_(torch.empty(30), generator=Generator(2**63 + 12345, 2**60 + 1))
        y.sum().backward()
    isobit.torch.increment(x.detach())  # behind the end


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    file = tmp_path_factory.mktemp("recording") / "step.bin"
    train(file)
    return file


def test_a_training_step_is_repeated_on_every_instruction_set(recorded):
    lines = replay(recorded, "--isa", "all", "--threads", "1,2")
    assert len(lines) >= 2
    for line in lines:
        assert line["different"] == line["unavailable"] == 0
        assert line["calls"] == lines[0]["calls"] >= 12 and line["results"] > line["calls"]


def test_the_emulator_of_gpus_repeats_it(recorded):
    (line,) = replay(recorded, "--device", "emu")
    assert line["different"] == 0 and line["calls"] + line["unavailable"] >= 12


def test_compiled_code_is_recorded_too(tmp_path):
    torch._dynamo.reset()
    compiled = torch.compile(isobit.torch.softmax, backend="aot_eager", fullgraph=True)
    with record(tmp_path / "compiled"):
        compiled(draw(4, 9), -1)
    (line,) = replay(tmp_path / "compiled")
    assert line["calls"] == 1
    torch._dynamo.reset()


def test_a_recording_ends_where_its_block_fails(tmp_path):
    file = tmp_path / "calls"
    with pytest.raises(ValueError, match="of the block"), record(file):
        isobit.torch.increment(draw(3))
        raise ValueError("of the block")
    assert replay(file)[0]["calls"] == 1
    with record(file):
        pass
    assert replay(file)[0]["calls"] == 0


def test_one_block_records_at_a_time_and_only_where_it_can_write(tmp_path):
    with record(tmp_path / "one"):
        other = record(tmp_path / "other")
        with pytest.raises(RuntimeError, match="another block records already"), other:
            pass
        isobit.torch.increment(draw(3))
    assert replay(tmp_path / "one")[0]["calls"] == 1
    other = record(tmp_path / "none" / "file")
    with pytest.raises(ValueError, match="isobit_record: cannot write "), other:
        pass
    with record(tmp_path / "again"):
        pass


def test_a_recording_that_was_cut_off_is_told(recorded, tmp_path):
    part = tmp_path / "part"
    part.write_bytes(recorded.read_bytes()[:-30])
    run = subprocess.run(
        [library_path().parent / "isobit", "replay", part], capture_output=True, text=True
    )
    assert run.returncode == 2 and "was cut off" in run.stderr
