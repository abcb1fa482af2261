# SPDX-License-Identifier: Apache-2.0
"""What tools/abi.py takes for a break, and for a change that must be recorded."""

import shutil

import pytest

import abi

if shutil.which("abidw") is None:
    pytest.skip("no abidw", allow_module_level=True)


@pytest.fixture(scope="module")
def recorded():
    return abi.record_of(abi.interface_of(abi.LIBRARY)).read_text()


GROWN = (
    "</data-member>\n    </class-decl>\n    <class-decl name='isobit_elementwise_increment_args'",
    "</data-member>\n      <data-member access='public' layout-offset-in-bits='256'>\n"
    "        <var-decl name='more' type-id='a0eb0f08' visibility='default'/>\n"
    "      </data-member>\n    </class-decl>\n"
    "    <class-decl name='isobit_elementwise_increment_args'",
)


def test_the_library_is_what_was_recorded():
    assert abi.check(abi.interface_of(abi.LIBRARY)) == ""


def test_a_struct_may_grow_at_its_end_and_that_is_announced(recorded, monkeypatch, tmp_path):
    grown = recorded.replace(*GROWN).replace(
        "'isobit_elementwise_add_args' size-in-bits='256'",
        "'isobit_elementwise_add_args' size-in-bits='320'",
    )
    assert grown.count("'more'") == 1
    assert abi.broken(recorded, grown) == []
    assert "announces it" in abi.check(grown)
    monkeypatch.setattr(abi, "ROOT", tmp_path)
    assert abi.write(recorded) == ""
    assert abi.write(grown) == ""
    assert abi.check(grown) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("'isobit_version'", "'isobit_release'"), "isobit_version was an entry, and is gone"),
        (
            ("name='ISOBIT_UNSUPPORTED' value='2'", "name='ISOBIT_UNSUPPORTED' value='6'"),
            "ISOBIT_UNSUPPORTED was 2, and is 6",
        ),
        (("var-decl name='residual'", "var-decl name='rest'"), "residual changed its place"),
        (
            (
                "name='isobit_context' size-in-bits='576'",
                "name='isobit_context' size-in-bits='512'",
            ),
            "isobit_context had 576 bits, and has 512",
        ),
    ],
)
def test_what_breaks_a_program_is_refused(recorded, monkeypatch, tmp_path, change, says):
    assert change[0] in recorded
    monkeypatch.setattr(abi, "ROOT", tmp_path)
    assert abi.write(recorded) == ""
    told = abi.write(recorded.replace(*change))
    assert says in told
    assert "raise the minor version" in told
    assert abi.check(recorded) == ""
