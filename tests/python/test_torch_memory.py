# SPDX-License-Identifier: Apache-2.0
"""Large results come from a pool, which keeps its limit and outlives forks, threads and views."""

import gc
import os
import resource
import subprocess
import sys
import threading

import pytest
import torch
from torch_calls import bits, draw
from untraced import untraced

import isobit.torch

LARGE = (5 << 10, 1 << 10)  # 20 MB
STEP = 20 << 20


@pytest.fixture(autouse=True)
def use():
    """What a test lends and what waits: tensors of other tests may live still."""
    limit = isobit.torch.cache_limit()
    isobit.torch.set_cache_limit(1 << 30)
    gc.collect()
    isobit.torch.empty_cache()
    lent = isobit.torch.cache_use().lent

    def use():
        now = isobit.torch.cache_use()
        return now.lent - lent, now.waiting

    yield use
    isobit.torch.set_cache_limit(limit)
    isobit.torch.empty_cache()


@pytest.fixture(scope="module")
def x():
    return draw(*LARGE)


def test_the_next_result_takes_the_memory_of_the_last(x, use):
    y = isobit.torch.layer_norm(x, 1 << 10)
    address = y.data_ptr()
    assert use() == (STEP, 0)
    del y
    assert use() == (0, STEP)
    y = isobit.torch.layer_norm(x, 1 << 10)
    assert y.data_ptr() == address and use() == (STEP, 0)
    del y
    isobit.torch.empty_cache()
    assert use() == (0, 0)


def test_what_waits_serves_results_of_other_sizes(x, use):
    results = [isobit.torch.layer_norm(x, 1 << 10) for _ in range(2)]
    first = min(each.data_ptr() for each in results)
    del results
    both = torch.cat([x, x])
    y = isobit.torch.add(both, both)
    assert y.data_ptr() == first and use() == (2 * STEP, 0)
    del y
    halves = [isobit.torch.layer_norm(half, 1 << 10) for half in x.chunk(2)]
    assert use() == (STEP, STEP)
    assert {each.data_ptr() - first for each in halves} == {0, STEP // 2}


def test_workspace_waits_for_the_next_call(use):
    x, weight, target = draw(512, 64), draw(4096, 64), torch.arange(512)
    isobit.torch.linear_cross_entropy(x, weight, target)
    lent, waiting = use()
    assert lent == 0 and waiting >= 512 * 4096 * 4
    isobit.torch.linear_cross_entropy(x, weight, target)
    assert use() == (0, waiting)


def test_no_two_living_results_share_memory(x, use):
    """However many of their size wait, and with what they hold of their own."""
    for waiting in (1, 2, 4):
        results = [isobit.torch.layer_norm(x, 1 << 10) for _ in range(waiting)]
        del results
        assert use() == (0, waiting * STEP)
        results = [isobit.torch.add(x, torch.full_like(x, i)) for i in range(waiting + 1)]
        assert len({each.data_ptr() for each in results}) == len(results)
        assert use() == (len(results) * STEP, 0)
        assert all(torch.equal(each, x + i) for i, each in enumerate(results))
        del results
        isobit.torch.empty_cache()


def test_bits_do_not_depend_on_where_results_come_from(x, use):
    pooled = isobit.torch.layer_norm(x, 1 << 10)
    isobit.torch.set_cache_limit(0)
    plain = isobit.torch.layer_norm(x, 1 << 10)
    assert use()[0] == STEP
    assert torch.equal(pooled, plain)


def test_no_more_waits_than_the_limit_allows(x, use):
    isobit.torch.set_cache_limit(2 * STEP)
    results = [isobit.torch.layer_norm(x, 1 << 10) for _ in range(4)]
    assert use() == (4 * STEP, 0)
    del results
    assert use() == (0, 2 * STEP)
    isobit.torch.set_cache_limit(STEP)
    assert use() == (0, STEP)
    with pytest.raises(ValueError, match="must be at least 0"):
        isobit.torch.set_cache_limit(-1)


def test_small_results_come_from_pytorch(use):
    isobit.torch.layer_norm(draw(64, 64), 64)
    assert use() == (0, 0)


@pytest.mark.parametrize("rows", [256, 257, 700, 4095, 4097, 9001])  # of 4 KB
def test_a_block_is_hardly_larger_than_its_result(rows, use):
    y = isobit.torch.layer_norm(draw(rows, 1 << 10), 1 << 10)
    assert y.nbytes <= use()[0] <= y.nbytes * 9 / 8


def test_a_large_block_wastes_less_than_a_huge_page(use):
    x = draw(22_900, 1 << 10)
    y = isobit.torch.add(x, x)
    assert y.nbytes <= use()[0] < y.nbytes + (2 << 20)


def test_activations_of_few_tokens_leave_their_memory_to_gradients(use):
    """They lay in PyTorch's heap, where no gradient of a weight came from the pool."""
    activations = [isobit.torch.layer_norm(draw(256, 768), 768) for _ in range(4)]
    assert use() == (4 * activations[0].nbytes, 0)
    del activations
    x = draw(768, 768)
    gradient = isobit.torch.add(x, x)
    assert use() == (gradient.nbytes, 4 * 256 * 768 * 4 - gradient.nbytes)


def test_results_of_a_megabyte_fill_no_fresh_pages():
    """The C library gives them back when they end its heap, which depends on what else lives."""
    x = draw(1024, 768, requires_grad=True)
    w = draw(768, requires_grad=True)

    def step():
        y = isobit.torch.layer_norm(x, 768, w)
        return torch.autograd.grad(y, (x, w), y.detach())

    for _ in range(5):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    steps = 50
    for _ in range(steps):
        step()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < steps * x.nbytes / resource.getpagesize() / 10


def test_views_and_graphs_keep_the_memory(x):
    y = isobit.torch.layer_norm(x.requires_grad_(), 1 << 10)
    row = y[7]
    expected = bits(row)
    del y
    others = [isobit.torch.layer_norm(x, 1 << 10) for _ in range(2)]
    assert bits(row) == expected
    others[0].sum().backward()
    x.requires_grad_(False)
    x.grad = None


def test_threads_share_the_pool(x):
    expected = isobit.torch.layer_norm(x, 1 << 10)
    wrong = []

    def work():
        for _ in range(5):
            if not torch.equal(isobit.torch.layer_norm(x, 1 << 10), expected):
                wrong.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_computes_and_frees():
    """In a process of its own, as PyTorch's threads do not outlive a fork."""
    code = """
import os, torch, isobit.torch
torch.set_num_threads(1)
x = torch.randn(5 << 10, 1 << 10)
kept = isobit.torch.layer_norm(x, 1 << 10)
isobit.torch.layer_norm(x, 1 << 10)  # waits
child = os.fork()
if child == 0:
    y = isobit.torch.layer_norm(x, 1 << 10)
    same = torch.equal(y, kept)
    del y, kept
    isobit.torch.empty_cache()
    os._exit(0 if same and isobit.torch.cache_use() == (0, 0) else 1)
_, status = os.waitpid(child, 0)
assert torch.equal(kept, isobit.torch.layer_norm(x, 1 << 10))
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def resident():
    pages = int(open("/proc/self/statm").read().split()[1])  # noqa: SIM115, PTH123
    return pages * resource.getpagesize()


def test_seven_thousand_steps_take_no_more_memory_than_two_thousand():
    """Of sizes that differ from step to step, forward and backward."""
    sizes = [260, 300, 311, 290, 257]  # rows of 4 KB: just above what the pool serves
    xs = [torch.randn(rows, 1 << 10) for rows in sizes]
    small = draw(16, 64, requires_grad=True)
    w = torch.ones(1 << 10, requires_grad=True)

    def step(i):
        isobit.torch.layer_norm(small, 64).sum().backward()
        if i % 100 == 0:
            isobit.torch.layer_norm(xs[i // 100 % len(xs)], 1 << 10, w).sum().backward()
        small.grad = w.grad = None

    with untraced():
        for i in range(2_000):
            step(i)
        before = resident()
        for i in range(5_000):
            step(i)
    assert resident() - before < 4 << 20


def test_results_live_as_long_as_the_process():
    code = """
import torch, isobit.torch
y = isobit.torch.layer_norm(torch.randn(5 << 10, 1 << 10), 1 << 10)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ, timeout=300)
