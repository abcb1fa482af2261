# SPDX-License-Identifier: Apache-2.0
"""The report shows what the lab wrote, and needs nothing beside its one file."""

import json

import pytest

from isobit import report

CASE = {
    "op": "layernorm",
    "pass": "fwd",
    "variant": "cpu.simd",
    "device": "cpu",
    "isa": "avx512",
    "threads": 2,
    "rows": 33,
    "cols": 769,
    "dtype": "f32",
    "input": "randn",
}


def verified(c, **changes):
    outputs = {"y": {"C": c, "max_abs": 1e-7, "max_ulp": 2, "bits": "0123456789abcdef"}}
    return CASE | {"outputs": outputs, "passed": c <= 8} | changes


def timed(rows, **changes):
    peers = [{"name": "torch", "version": "2.13.0", "median_us": 30.0, "ratio": 1.5}]
    figures = {"median_us": 20.0, "p20_us": 19.0, "p80_us": 22.0, "gbps": 9.5}
    return CASE | figures | {"rows": rows, "copy_fraction": 0.9, "peers": peers} | changes


def write(folder, name, *objects):
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in objects))


def test_empty_folder_gives_a_page_that_says_so(tmp_path):
    assert "No results" in report.write(tmp_path).read_text()


def test_accuracy_shows_the_worst_case_and_marks_a_failure(tmp_path):
    write(tmp_path, "verify.jsonl", verified(2.5), verified(9.25, rows=7), verified(float("nan")))
    page = report.write(tmp_path).read_text()
    assert "3 cases, 2 failed" in page
    assert 'class="bad"' in page and ">nan<" in page


def test_rows_of_a_sweep_tell_their_plans(tmp_path):
    plans = [{"stream": 0, "ahead": 4}, {"stream": 1, "ahead": 4}]
    write(tmp_path, "bench.jsonl", *(timed(33, plan=plan) for plan in plans))
    page = report.write(tmp_path).read_text()
    assert "avx512, stream=0, ahead=4" in page and "avx512, stream=1, ahead=4" in page


def test_equal_hashes_share_a_colour_and_a_declined_way_gives_its_reason(tmp_path):
    ways = [
        CASE | {"way": way, "outputs": {"y": {"bits": bits}}}
        for way, bits in (("scalar", "aa01"), ("avx512", "aa01"), ("torch", "bb02"))
    ]
    write(tmp_path, "parity.jsonl", *ways, CASE | {"way": "cuda", "declined": "no <GPU> here"})
    page = report.write(tmp_path).read_text()
    assert len({part.split('"')[0] for part in page.split("background: hsl")[1:]}) == 2
    assert "no &lt;GPU&gt; here" in page


def test_plots_are_embedded_and_lie_beside_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    elementwise = {"op": "elementwise", "kind": "add", "pass": None}
    write(tmp_path, "info.json", {"cpu": {"name": "some CPU"}})
    write(tmp_path, "bench-a.jsonl", {"commit": "abc"}, timed(16), timed(64), timed(1, peers=[]))
    write(tmp_path, "bench-b.jsonl", timed(16, **elementwise), timed(64, **elementwise))
    page = report.write(tmp_path).read_text()
    assert page.count("<picture>") == 3 and page.count("data:image/png;base64,") == 6
    assert len(list(tmp_path.glob("*.png"))) == 6
    assert "src=" not in page.replace('src="data:', "")


def test_wrong_arguments_end_with_2(tmp_path):
    assert report.main([]) == 2
    assert report.main([tmp_path / "nowhere"]) == 2
