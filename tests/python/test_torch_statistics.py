# SPDX-License-Identifier: Apache-2.0
"""statistics() counts each call of Isobit's operators, for the module that made it, and leaves
nothing behind."""

import json
import threading

import pytest
import torch
from torch import nn
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import statistics

WIDTH = 24


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = isobit.torch.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(isobit.torch.Linear(WIDTH, 40), isobit.torch.GELU())

    def forward(self, x):
        return isobit.torch.softmax(self.mlp(self.norm(x)), -1)


X = draw(50, WIDTH)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def step(net):
    y = net(X)
    return bits(y, *torch.autograd.grad(y, list(net.parameters()), draw(50, 40)))


FORWARD = {"layernorm": "norm", "matmul": "mlp.0", "activation": "mlp.1", "softmax": ""}


def test_each_call_is_counted_for_the_module_that_made_it_or_whose_derivative_it_is(net):
    plain = step(net)
    with statistics(net) as counted:
        assert step(net) == plain
    found = {(call.operator, call.module, call.backward) for call in counted.calls}
    assert found == {(name, module, False) for name, module in FORWARD.items()} | {
        (f"{name} backward", module, True) for name, module in FORWARD.items()
    }
    rows = {row.name: row.calls for row in counted.modules()}
    assert rows == {"norm": 2, "mlp.0": 2, "mlp.1": 2, "(the model)": 2}


def test_bytes_operations_and_rates_are_those_of_the_calls(net):
    with statistics(gbps=1.0, gflops=2.0) as counted:
        for _ in range(3):
            isobit.torch.linear(X, net.mlp[0].weight.detach())
    (row,) = counted.operators()
    assert row.calls == 3 and row.operations == 3 * 2 * 50 * WIDTH * 40
    assert row.bytes == 3 * 4 * (50 * WIDTH + WIDTH * 40 + 50 * 40)
    spent = sum(call.end - call.begin for call in counted.calls)
    assert row.seconds == pytest.approx(spent / 1e9) and spent > 0
    assert row.gbps == pytest.approx(row.bytes / row.seconds / 1e9)
    least = max(row.bytes / 1e9, row.operations / 2e9)
    assert row.of_roof == pytest.approx(least / row.seconds)
    assert {call.module for call in counted.calls} == {None}


def test_the_table_the_json_and_the_trace_say_the_same(net, tmp_path):
    with statistics(net, gbps=10) as counted:
        step(net)
    shown = repr(counted)
    assert all(name in shown for name in ("softmax backward", "mlp.0", "of roof", "peak memory"))
    read = json.loads(counted.json())
    assert {row["name"]: row["calls"] for row in read["operators"]} == {
        row.name: row.calls for row in counted.operators()
    }
    assert read["peak_memory"]["process"] > 1e6
    counted.trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == len(counted.calls) == 8
    assert {each["ph"] for each in events} == {"X"} and all(each["dur"] >= 0 for each in events)
    backward = next(each for each in events if each["name"] == "softmax backward")
    assert backward["cat"] == "backward" and backward["args"]["module"] == ""


def test_the_pools_memory_is_told(net):
    with statistics() as counted:
        y = isobit.torch.increment(torch.ones(1 << 19))
    assert counted.peak_memory()["pool"] >= 4 * y.numel()


def test_nothing_is_installed_outside_of_a_block(net):
    counted = statistics(net)
    step(net)
    assert counted.calls == [] and not statistics.__globals__["_counting"]
    with counted:
        assert not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack()
    net(X)
    assert counted.calls == []
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in net.modules())


def test_blocks_may_stand_in_each_other_and_see_other_threads():
    with statistics() as outer:
        isobit.torch.increment(X)
        with statistics() as inner:
            thread = threading.Thread(target=lambda: isobit.torch.increment(X))
            thread.start()
            thread.join()
        isobit.torch.increment(X)
    assert len(outer.calls) == 3 and len(inner.calls) == 1
    (call,) = inner.calls
    assert call.thread != threading.get_native_id() and call in outer.calls
    with outer, pytest.raises(RuntimeError, match="this block is counting already"), outer:
        pass


def test_compiled_code_is_counted(net):
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    compiled(X)
    with statistics() as counted:
        compiled(X)
    assert [call.operator for call in counted.calls] == list(FORWARD)
    torch._dynamo.reset()


def test_arguments_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match=r"statistics: model must be a torch.nn.Module; it is int"):
        statistics(3)
    with pytest.raises(ValueError, match=r"statistics: gflops is 0; must be more than 0"):
        statistics(gflops=0)
