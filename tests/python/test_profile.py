# SPDX-License-Identifier: Apache-2.0
"""`isobit profile`, and the committed counters of the default kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import counters  # noqa: E402

LAB = ROOT / "build" / "release" / "isobit"
EXECUTOR = LAB.with_name("libisobit_ptx.so")
needs_sass = pytest.mark.skipif(
    not LAB.with_name("libisobit_sass.so").exists(), reason="`make kernels` found no cuobjdump"
)
needs_ptx = pytest.mark.skipif(not EXECUTOR.exists(), reason="`make kernels` was not run")


def profile(*arguments, **environment):
    return subprocess.run(
        [LAB, "profile", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@needs_sass
@pytest.mark.parametrize(
    "group",
    [
        "larger",
        "usual-f32",
        pytest.param("usual-bf16", marks=pytest.mark.full),
    ],
)
def test_no_default_kernel_counts_worse_than_it_did(group):
    assert list(counters.compare(counters.read(group), counters.counted(LAB, group))) == []


def test_each_operation_has_committed_counters():
    listed = subprocess.run([LAB, "list", "--json"], capture_output=True, text=True, check=True)
    operations = {
        (entry["op"], entry["pass"], dtype)
        for entry in map(json.loads, listed.stdout.splitlines())
        for dtype in ("f32", "bf16")
        if "op" in entry and dtype in entry["dtypes"]
    }
    usual = [*counters.read("usual-f32"), *counters.read("usual-bf16")]
    counted = {(op, which, words[-1]) for op, which, *words in map(str.split, usual)}
    assert counted == operations


def test_the_defaults_of_the_norms_waste_no_sector_and_no_bank():
    for call, of in counters.read("larger").items():
        for kernel, figures in of["kernels"].items():
            if call.startswith(("layernorm", "rmsnorm")):
                assert figures["stores"] <= 1.0, (call, kernel)
                assert figures["loads"] <= 1.0, (call, kernel)
                assert figures["banks"] <= 1.0, (call, kernel)


@needs_ptx
@pytest.mark.parametrize("layout", ["dense", "reversed"])
def test_products_by_tensor_cores_waste_no_bank_and_read_a_tile_once(layout):
    words = ["--arithmetic", "tensor", "--dtype", "bf16", "--plan", "side=64", "--json"]
    extents = ["--m", "128", "--n", "192", "--k", "320"]
    words += ["--pass", "fwd", "--variant", "mma", "--layout", layout]
    done = profile("matmul", *words, *extents)
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["shared_wavefronts"] == kernel["shared_least"] > 0
    assert kernel["copied_bytes"] == (2 * 3) * (64 + 64) * 320 * 2
    assert kernel["stores"]["sectors"] == kernel["stores"]["least"]
    assert kernel["by_kind"]["tensor"] > (128 / 16) * (192 / 8) * (320 / 16)


@needs_ptx
def test_products_by_a_warpgroup_waste_no_bank_and_read_a_tile_once():
    words = ["--arithmetic", "tensor", "--dtype", "bf16", "--pass", "fwd", "--variant", "wgmma"]
    extents = ["--batch", "1", "--m", "128", "--n", "192", "--k", "320"]
    done = profile("matmul", *words, *extents, "--json")
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["shared_wavefronts"] == kernel["shared_least"] > 0
    of_a, of_b = 2 * 128 * 320 * 2, 320 * 192 * 2  # a for both tiles of y; b ends in the second
    assert kernel["copied_bytes"] == of_a + of_b
    assert kernel["stores"]["sectors"] == kernel["stores"]["least"] == 128 * 192 * 2 / 32
    # Of each of two tiles eight warps issue 20 products, a fence, a commit and a wait each 4.
    assert kernel["by_kind"]["tensor"] == 2 * 8 * (320 // 16 + 3 * (320 // 64) + 1)


@needs_ptx
def test_attention_by_tensor_cores_wastes_no_bank_and_reads_keys_once_a_tile():
    words = ["--pass", "fwd", "--variant", "flash_mma", "--arithmetic", "tensor", "--dtype", "bf16"]
    extents = [
        "--batch",
        "1",
        "--heads",
        "2",
        "--kv-heads",
        "1",
        "--seq-q",
        "128",
        "--seq-k",
        "256",
    ]
    dims = ["--head-dim", "64", "--value-dim", "64", "--plan", "queries=64", "--json"]
    done = profile("attention", *words, *extents, *dims)
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["shared_wavefronts"] == kernel["shared_least"] > 0
    assert kernel["copied_bytes"] == 2 * 2 * (64 + 2 * 256) * 64 * 2
    assert kernel["stores"]["sectors"] == kernel["stores"]["least"]
    assert kernel["by_kind"]["tensor"] > 2 * 2 * (128 / 16) * (256 / 8) * (64 / 16)


@needs_ptx
def test_gradients_of_attention_by_tensor_cores_waste_no_bank_and_no_sector():
    words = ["--pass", "bwd", "--variant", "flash_mma", "--arithmetic", "tensor", "--dtype", "bf16"]
    words += ["--batch", "1", "--heads", "2", "--kv-heads", "1", "--seq-q", "128"]
    words += ["--seq-k", "256", "--head-dim", "64", "--value-dim", "64", "--plan", "rows=64"]
    kernels = json.loads(profile("attention", *words, "--json").stdout)["kernels"]
    assert len(kernels) == 2
    for kernel in kernels:  # tiles: 4 of queries, with 4 panels each; 4 of keys, with 2 * 2
        assert kernel["shared_wavefronts"] == kernel["shared_least"] > 0
        assert kernel["stores"]["sectors"] == kernel["stores"]["least"] > 0
        assert kernel["copied_bytes"] == 4 * (2 + 4 * 3) * 64 * 64 * 2
        assert kernel["by_kind"]["tensor"] > 0


@needs_ptx
def test_attention_by_warpgroups_wastes_no_bank_and_reads_keys_once_a_tile():
    words = ["--pass", "fwd", "--variant", "flash_wgmma", "--arithmetic", "tensor"]
    heads = ["--batch", "1", "--heads", "2", "--kv-heads", "1", "--dtype", "bf16", "--json"]
    extents = ["--seq-q", "256", "--seq-k", "512", "--head-dim", "72", "--value-dim", "128"]
    done = profile("attention", *words, *heads, *extents)
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["shared_wavefronts"] == kernel["shared_least"] > 0
    assert kernel["local_requests"] == 0
    # The second box of a row of q or k has eight elements of it.
    assert kernel["copied_bytes"] == 2 * 2 * (128 * 72 + 512 * (72 + 128)) * 2
    assert kernel["stores"]["sectors"] == kernel["stores"]["least"]
    # Of each of four tiles and four panels eight warps issue 8 products and 2 times 8, and begin,
    # commit and wait for them three times; and more registers once.
    blocks = kernel["blocks"]
    assert kernel["by_kind"]["tensor"] == 4 * 4 * 8 * (8 + 16 + 3 * 3) + blocks * 12


@needs_ptx
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("given", ["bias", "mask"])
def test_attention_reads_bias_and_mask_side_by_side(given, dtype):
    words = ["--pass", "fwd", "--variant", "flash", "--dtype", dtype, "--with", given, "--json"]
    if dtype == "bf16":
        words[3:4] = ["flash_mma", "--arithmetic", "tensor"]
    extents = ["--batch", "1", "--heads", "1", "--kv-heads", "1", "--seq-q", "64"]
    dims = ["--seq-k", "256", "--head-dim", "16", "--value-dim", "16"]
    done = profile("attention", *words, *extents, *dims)
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["loads"]["bytes"] >= 64 * 256
    assert kernel["loads"]["sectors"] == kernel["loads"]["least"]
    assert kernel["shared_wavefronts"] < 1.05 * kernel["shared_least"]


@needs_ptx
def test_a_case_is_told_kernel_by_kernel_and_as_a_model():
    done = profile("rmsnorm", "--pass", "bwd", "--rows", "64", "--cols", "600")
    assert done.returncode == 0, done.stderr
    assert "FoldTiles" in done.stdout
    assert "a model, not a measurement" in done.stdout


@needs_ptx
def test_what_is_counted_follows_from_the_case():
    lines = [
        json.loads(profile("elementwise", "--rows", rows, "--cols", "4096", "--json").stdout)
        for rows in ("8", "16")
    ]
    few, many = (line["kernels"][0] for line in lines)
    assert few["loads"]["bytes"] == 2 * 8 * 4096 * 4
    assert many["loads"]["bytes"] == 2 * few["loads"]["bytes"]
    assert few["stores"]["sectors"] == 8 * 4096 * 4 // 32
    assert 0 < few["registers"] <= 255


def test_without_the_executor_it_says_how_to_get_it(tmp_path):
    done = profile("elementwise", ISOBIT_PTX_LIBRARY=str(tmp_path / "none.so"))
    assert done.returncode == 1
    assert "make kernels" in done.stderr


BEFORE = {
    "instructions": 10.0,
    "loads": 1.0,
    "stores": 1.0,
    "banks": 1.0,
    "local": 0.0,
    "wide": 1.0,
    "warps": 16.0,
    "kib_in_flight": 32.0,
}


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": 10.3},
        {"loads": 1.1},
        {"stores": 2.0},
        {"banks": 1.5},
        {"local": 1.0},
        {"wide": 0.5},
        {"kib_in_flight": 16.0},
    ],
)
def test_each_change_for_the_worse_is_told(change):
    (told,) = counters.worse(BEFORE, {**BEFORE, **change})
    assert told.startswith(*change)


def test_what_is_better_or_within_two_per_cent_is_not_told():
    better = {"instructions": 5.0, "wide": 1.0, "kib_in_flight": 31.5, "warps": 8.0}
    assert list(counters.worse(BEFORE, {**BEFORE, **better})) == []


def test_kernels_of_one_name_stay_apart():
    kernels = [{"figures": {"name": name, "loads": i}} for i, name in enumerate("AABA")]
    found = {name: figures["loads"] for name, figures in counters.numbered(kernels).items()}
    assert found == {"A": 0, "A 2": 1, "B": 2, "A 3": 3}


@needs_sass
def test_a_case_without_its_first_argument_is_counted():
    done = profile("reduce", "--pass", "bwd", "--kept", "8", "--dtype", "f32", "--device", "sass")
    assert done.returncode == 0, done.stderr


def test_a_kernel_that_nobody_committed_is_told():
    committed = {"a call": {"kernels": {"Old": BEFORE}}}
    today = {"a call": {"kernels": {"New": BEFORE}}, "another": {"kernels": {}}}
    assert list(counters.compare(committed, today)) == ["a call: New is new", "another: is new"]
