# SPDX-License-Identifier: Apache-2.0
"""What the lab finds of Triton variants, for the tests that ask it."""

import json
import os
import subprocess
from pathlib import Path

import triton_forked

LAB = Path(__file__).resolve().parents[2] / "build" / "release" / "isobit"


def verified(call):
    """The lines of `isobit verify`, all of which passed."""
    command = [LAB, "verify", *call.split(), "--device", "triton", "--json"]
    forking = os.environ | {"ISOBIT_PYTHON": triton_forked.python()}
    lab = subprocess.run(command, env=forking, capture_output=True, text=True)
    assert lab.returncode == 0, lab.stderr
    return [json.loads(line) for line in lab.stdout.splitlines()]
