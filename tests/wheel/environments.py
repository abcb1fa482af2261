# SPDX-License-Identifier: Apache-2.0
"""Python environments that hold the named packages and nothing else, without a network."""

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

# By these names ccache has what tools/wheel compiled.
COMPILERS = {"CC": "cc", "CXX": "c++"}
# What a shell exports and an empty environment has not.
FORGOTTEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "ISOBIT_LIBRARIES", "ISOBIT_PYTHON")


def with_requirements(names):
    """The distributions of .venv that the named ones need, themselves among them."""
    found, open_ = {}, list(names)
    while open_:
        name = open_.pop()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for text in found[name].requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                open_.append(requirement.name.lower())
    return found.values()


class Environment:
    """A virtual environment; what .venv has installed is lent to it by links."""

    def __init__(self, folder, *packages, python=sys.executable):
        self.folder = folder
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        (self.site,) = folder.glob("lib/python3*/site-packages")
        lender = Path(sysconfig.get_path("purelib"))
        for distribution in with_requirements(packages):
            for top in {Path(file).parts[0] for file in distribution.files or ()}:
                if top not in ("..", "__pycache__") and not (self.site / top).exists():
                    (self.site / top).symlink_to(lender / top)

    def program(self, name):
        return self.folder / "bin" / name

    def pip_install(self, *arguments):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        pip += ["--python", self.program("python"), "install", "--quiet", "--no-index"]
        env = COMPILERS | dict(os.environ) | {"PYTHONPATH": ""}
        subprocess.run([*pip, *arguments], check=True, env=env)

    def run(self, name, *arguments, **variables):
        env = {key: value for key, value in os.environ.items() if key not in FORGOTTEN} | variables
        command = [self.program(name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=self.folder)

    def python(self, code, **variables):
        return self.run("python", "-c", code, **variables)
