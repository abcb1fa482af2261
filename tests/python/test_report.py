# SPDX-License-Identifier: Apache-2.0
"""The report shows what the lab wrote, and needs nothing beside its one file."""

import json
import sys

import pytest

from isobit.lab import report

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


def computed(name, bits, **changes):
    return CASE | {"configuration": name, "outputs": {"y": {"bits": bits}}} | changes


def in_order(page, *parts):
    """Where each begins, after the one before."""
    places = [page.index(part) for part in parts]
    return places == sorted(places)


def test_what_differs_comes_first_what_agrees_is_one_line_what_is_unavailable_comes_last(tmp_path):
    lines = [computed(name, "aa01") for name in ("scalar", "avx512", "emu")]
    lines.insert(1, CASE | {"configuration": "cuda", "unavailable": "no <GPU> here"})
    lines.insert(2, computed("torch", "bb02"))
    write(
        tmp_path,
        "parity-a.jsonl",
        CASE | {"configuration": "cuda", "unavailable": "too few", "rows": 7},
    )
    write(
        tmp_path, "parity-b.jsonl", *lines, *(computed(name, "cc03", rows=8) for name in ("a", "b"))
    )
    page = report.write(tmp_path).read_text()
    assert "Parity: 2 cases, 1 with differing bits." in page
    assert len({part.split('"')[0] for part in page.split("background: hsl")[1:]}) == 3
    assert in_order(
        page,
        ">torch<",
        "3 configurations agree",
        "rows=8",
        "2 configurations agree",
        "no &lt;GPU&gt; here",
    )
    assert '<td class="bad"><i class="swatch"' in page and page.count("bb02") == 1
    assert page.count("aa01") == page.count("cc03") == 1


def test_cases_that_differ_in_their_rows_alone_are_two(tmp_path):
    write(tmp_path, "parity.jsonl", computed("C", "aa01", rows=3), computed("C", "bb02", rows=4))
    page = report.write(tmp_path).read_text()
    assert "Parity: 2 cases, 0 with differing bits." in page
    assert page.count("1 configuration agrees") == 2


def test_a_case_computed_from_another_place_is_the_same_case(tmp_path):
    lines = (computed(f"at {n}", "aa01", offset=n, row_stride=769 + n) for n in (0, 1))
    write(tmp_path, "parity.jsonl", *lines)
    assert "Parity: 1 case, 0 with differing bits." in report.write(tmp_path).read_text()


def test_a_title_holds_what_tells_its_case_from_the_others(tmp_path):
    options = {"eps": 1e-5, "seed": 0}
    lines = (computed("C", "aa01", **options, dropout=dropout) for dropout in (0, 0.5))
    write(tmp_path, "parity.jsonl", *lines)
    page = report.write(tmp_path).read_text()
    for dropout in ("0", "0.5"):
        assert f">layernorm, fwd, rows=33, cols=769, f32, randn, dropout={dropout}<" in page


def test_configurations_that_are_unavailable_for_one_reason_share_a_line(tmp_path):
    lines = [
        CASE | {"configuration": name, "unavailable": "no GPU", "rows": rows}
        for rows in (1, 2)
        for name in ("eager", "compiled")
    ]
    write(tmp_path, "parity.jsonl", *lines)
    page = report.write(tmp_path).read_text()
    assert page.count("no GPU") == 1
    assert "eager, compiled" in page and page.index(">2<") > page.index("no GPU")


def test_an_output_that_a_configuration_lacks_is_no_difference(tmp_path):
    outputs = {"y": {"bits": "aa01"}, "mean": {"bits": "bb02"}}
    write(tmp_path, "parity.jsonl", computed("C", "", outputs=outputs), computed("NumPy", "aa01"))
    assert "Parity: 1 case, 0 with differing bits." in report.write(tmp_path).read_text()


@pytest.mark.parametrize("failing", ["Accuracy", "Parity"])
def test_a_section_with_a_failure_comes_first_and_the_machine_last(tmp_path, failing):
    c, bits = (9.25, "aa01") if failing == "Accuracy" else (2.5, "bb02")
    write(tmp_path, "info.json", {"cpu": {"name": "some CPU"}})
    write(tmp_path, "bench.jsonl", timed(16))
    write(tmp_path, "verify.jsonl", verified(2.5, input="fine"), verified(c))
    write(tmp_path, "parity.jsonl", computed("C", "aa01"), computed("NumPy", bits))
    page = report.write(tmp_path).read_text()
    other = {"Accuracy": "Parity", "Parity": "Accuracy"}[failing]
    assert in_order(page, *(f"<h2>{name}</h2>" for name in (failing, other, "Speed", "Machine")))
    assert page.count('<li class="bad">') == 1
    assert (page.index(">randn<") < page.index(">fine<")) == (failing == "Accuracy")


def test_plots_that_are_unavailable_are_the_last_of_their_section(tmp_path, monkeypatch):
    monkeypatch.delattr("isobit.lab.plots", raising=False)
    monkeypatch.setitem(sys.modules, "isobit.lab.plots", None)
    write(tmp_path, "bench.jsonl", timed(16))
    assert in_order(report.write(tmp_path).read_text(), "<h2>Speed", "<table", "Plots are unavail")


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


def test_memory_is_shown_and_drawn_beside_a_peers_that_counts_it(tmp_path):
    pytest.importorskip("matplotlib")
    counted = {"name": "torch", "version": "2.13.0", "median_us": 30.0, "ratio": 1.5}
    counted |= {"workspace_bytes": 7 * 2**20}
    write(tmp_path, "bench.jsonl", timed(16, workspace_bytes=3 * 2**20, peers=[counted]))
    page = report.write(tmp_path).read_text()
    assert "<th>MiB</th>" in page and "<td>3</td>" in page and "µs, 7 MiB" in page
    assert [path.name for path in sorted(tmp_path.glob("*-memory.png"))]
    write(tmp_path, "bench.jsonl", timed(16, workspace_bytes=3 * 2**20))
    for path in tmp_path.glob("*.png"):
        path.unlink()
    report.write(tmp_path)
    assert not list(tmp_path.glob("*-memory.png"))


def test_wrong_arguments_end_with_2(tmp_path):
    assert report.main([]) == 2
    assert report.main([tmp_path / "nowhere"]) == 2


@pytest.mark.parametrize("second", ['{"op":', "[1]", "null", "\x00"])
def test_a_line_that_was_cut_off_is_named_by_its_file_and_number(second, tmp_path, capsys):
    (tmp_path / "verify.jsonl").write_text("\n" + second)
    assert report.main([tmp_path]) == 1
    said = f"isobit.lab.report: {tmp_path}/verify.jsonl:2: is no JSON object"
    assert capsys.readouterr().err.startswith(said)
    assert not (tmp_path / "report.html").exists()


def test_operators_of_any_dims_have_their_figures(tmp_path):
    case = {"op": "rope", "pass": "fwd", "batch": 1, "seq": 2048, "heads": 32, "table": 2048}
    case |= {"dtype": "f32", "input": "randn", "variant": "simd", "threads": 1}
    peers = [{"name": "torch", "version": "2.13.0", "median_us": 30.0, "ratio": 1.5}]
    timing = {"median_us": 20.0, "p20_us": 19.0, "p80_us": 22.0, "gbps": 9.5, "peers": peers}
    styles = [case | timing | {"style": style, "copy_fraction": 0.9} for style in ("half", "other")]
    write(tmp_path, "bench.jsonl", *styles)
    judged = {"outputs": {"y_q": {"C": 9.0}}, "passed": True, "limit": 10.0}
    write(tmp_path, "verify.jsonl", case | judged)
    page = report.write(tmp_path).read_text()
    assert ">2,048 × 32<" in page
    assert "style=half" in page and "style=other" in page
    assert 'class="good"' in page and "seq=2048" in page and "table=" not in page
