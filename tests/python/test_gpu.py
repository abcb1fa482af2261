# SPDX-License-Identifier: Apache-2.0
"""The phases that need a GPU write what each step said, whatever becomes of it."""

import json
import sys

import gpu
import pytest


def script(text):
    return [sys.executable, "-c", text]


@pytest.mark.parametrize(
    ("command", "missing", "status", "said"),
    [
        (script("print('done')"), None, 0, "done"),
        (script("raise SystemExit(3)"), None, 3, ""),
        (script("import time; print('one', flush=True); time.sleep(60)"), None, None, "one"),
        (["/no/such/program"], None, None, ""),
        (script("print('never')"), "there is no such tool", None, "there is no such tool"),
    ],
)
def test_step_is_written_down(tmp_path, command, missing, status, said):
    phase = gpu.Phase("test", tmp_path, dry=True)
    phase.step("a step", command, 1, missing)
    step = json.loads((tmp_path / "test.json").read_text())["steps"][0]
    assert step["said"] == said
    assert step["status"] == status or (status is None and isinstance(step["status"], str))
    assert phase.failed() == ([] if status == 0 or missing else ["a step"])


def test_phase_ends_before_its_time_does(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PHASE_SECONDS", 0)
    phase = gpu.Phase("test", tmp_path, dry=True)
    phase.step("a step", script("print('never')"), 1)
    assert phase.steps[0]["said"] == "no time was left"
