# SPDX-License-Identifier: Apache-2.0
"""PackedLinear gives the bits of linear(), notices changes of its weight, and has no gradients."""

import copy
import gc
import io
import mmap
import pickle
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import isobit.torch  # noqa: E402
from isobit.torch import Linear, PackedLinear, linear, patch  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def layer(inputs=530, outputs=70, dtype=torch.float32, **options):
    torch.manual_seed(1)
    return PackedLinear(inputs, outputs, dtype=dtype, **options).requires_grad_(False)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bytes_of(a) == bytes_of(b)


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def expected_of(module, x):
    return linear(x, module.weight, module.bias, activation=module.activation)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(530,), (1, 530), (17, 530), (2, 3, 5, 530), (0, 530)], ids=str)
def test_gives_the_bits_of_linear(dtype, shape):
    x = torch.randn(shape).to(dtype)
    for options in ({}, {"bias": False}, {"activation": "gelu"}):
        module = layer(dtype=dtype, **options)
        for _ in range(2):
            assert same_bits(module(x), expected_of(module, x))


def test_bits_do_not_depend_on_threads_or_layouts():
    module, x = layer(1000, 300), torch.randn(40, 1000)
    expected = expected_of(module, x)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert same_bits(module(x), expected)
            assert same_bits(module(x.t().contiguous().t()), expected)
            module.weight.data = module.weight.data.t().contiguous().t()
            assert same_bits(module(x), expected)
    finally:
        torch.set_num_threads(before)


def test_is_made_of_a_linear_layer_and_shares_its_parameters():
    given = Linear(30, 20, activation="silu").requires_grad_(False)
    module, x = PackedLinear.of(given.eval()), torch.randn(4, 30)
    assert module.weight is given.weight and module.bias is given.bias and not module.training
    assert same_bits(module(x), given(x))
    assert "activation='silu'" in repr(module)
    plain = torch.nn.Linear(30, 20, bias=False).requires_grad_(False)
    assert same_bits(PackedLinear.of(plain)(x), linear(x, plain.weight))
    assert module.state_dict().keys() == given.state_dict().keys()
    with pytest.raises(TypeError, match=r"linear must be a torch\.nn\.Linear; it is ReLU"):
        PackedLinear.of(torch.nn.ReLU())


def changed_in_place(module):
    module.weight.mul_(3)


def loaded(module):
    module.load_state_dict({"weight": torch.ones(70, 530), "bias": torch.ones(70)})


def another(module):
    module.weight = torch.nn.Parameter(torch.randn(70, 530), requires_grad=False)


def other_data(module):
    module.weight.data = torch.randn(70, 530)


def part_of_it(module):
    module.weight[3, 5:] = 0


@pytest.mark.parametrize("change", [changed_in_place, loaded, another, other_data, part_of_it])
def test_packs_again_where_the_weight_changed(change):
    module, x = layer(), torch.randn(5, 530)
    before = module(x)
    change(module)
    after = module(x)
    assert same_bits(after, expected_of(module, x))
    assert not same_bits(after, before)


def test_packs_once_where_nothing_changed():
    module, x = layer(), torch.randn(5, 530)
    module(x)
    packed = module._packed
    module(x)
    module.bias.mul_(2)
    assert same_bits(module(x), expected_of(module, x))
    assert module._packed is packed


def test_changes_that_are_not_counted_need_a_word():
    module, x = layer(), torch.randn(5, 530)
    before = module(x)
    module.weight.data.mul_(2)
    assert same_bits(module(x), before)
    assert same_bits(module.pack()(x), expected_of(module, x))


def test_another_type_is_packed_anew():
    module, x = layer(), torch.randn(5, 530)
    module(x)
    module.bfloat16()
    assert module.packed_bytes == 0
    narrow = x.bfloat16()
    assert same_bits(module(narrow), expected_of(module, narrow))
    with pytest.raises(ValueError, match="b was packed of bf16; a is f32"):
        module(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_autocast_has_the_bits_of_linear_under_autocast(dtype):
    module, x = layer(dtype=dtype), torch.randn(5, 530).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same_bits(module(x), expected_of(module, x))
    assert same_bits(module(x), expected_of(module, x))


def test_has_no_gradients():
    module, x = layer(), torch.randn(5, 530)
    says = "PackedLinear: it has no gradients"
    with pytest.raises(RuntimeError, match=says):
        module(x.clone().requires_grad_())
    for parameter in (module.weight, module.bias):
        parameter.requires_grad_()
        with pytest.raises(RuntimeError, match=says):
            module(x)
        with torch.no_grad():
            assert same_bits(module(x), expected_of(module, x))
        with torch.inference_mode():
            assert same_bits(module(x), expected_of(module, x))
        parameter.requires_grad_(False)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError, match=says):
            module(dual)
        assert same_bits(module(x), expected_of(module, x))
    with pytest.raises(RuntimeError, match=says):
        torch.func.grad(lambda given: module(given).sum())(x)


def test_weights_whose_changes_are_not_counted_are_refused():
    with torch.inference_mode():
        module = PackedLinear(8, 4)
        with pytest.raises(RuntimeError, match="weight was made in inference mode"):
            module(torch.randn(2, 8))


def test_weights_elsewhere_are_refused():
    with pytest.raises(NotImplementedError, match="weight is on meta; matrices are packed for cpu"):
        layer(device="meta")(torch.randn(2, 530))
    with pytest.raises(ValueError, match="a is on meta"):
        layer()(torch.randn(2, 530, device="meta"))


def test_says_what_is_wrong():
    module = layer()
    with pytest.raises(ValueError, match="b was packed with 530 rows; a has 529 columns"):
        module(torch.randn(2, 529))
    with pytest.raises(RuntimeError, match="arithmetic tensor needs bf16 on a processor"):
        layer(arithmetic="tensor")(torch.randn(2, 530))
    with pytest.raises(ValueError, match="input has no dimensions"):
        module(torch.tensor(1.0))
    with pytest.raises(TypeError, match="input must be a Tensor; it is list"):
        module([1.0])
    with pytest.raises(ValueError, match="Linear: activation is 'tanh'"):
        PackedLinear(3, 4, activation="tanh")


def test_copies_and_pickles_have_panels_of_their_own():
    module, x = layer(), torch.randn(5, 530)
    expected = module(x)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    copies = [copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    for each in (*copies, torch.load(buffer, weights_only=False)):
        assert each.packed_bytes == 0
        assert same_bits(each(x), expected)
        assert each.packed_bytes == module.packed_bytes >= 530 * 70 * 4


def test_nested_tensors_are_their_rows():
    module = layer(8, 4)
    parts = [torch.randn(3, 8), torch.randn(5, 8)]
    y = module(torch.nested.nested_tensor(parts, layout=torch.jagged))
    assert all(
        same_bits(of, expected_of(module, x)) for of, x in zip(y.unbind(), parts, strict=True)
    )


def test_vmap_calls_it_for_each_sample():
    module, x = layer(), torch.randn(3, 2, 530)
    assert same_bits(torch.vmap(module)(x), expected_of(module, x))


def test_serves_many_threads_at_once():
    module, x = layer(700, 300), torch.randn(40, 700)
    expected, results = expected_of(module, x), []

    def call():
        with torch.no_grad():
            results.extend(module(x) for _ in range(10))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(results) == 60 and all(same_bits(y, expected) for y in results)


def test_panels_are_freed_with_their_module():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    weight, x = torch.randn(2000, 1000), torch.randn(2, 1000)

    def used_once():
        module = PackedLinear(1000, 2000, bias=False, device="meta").requires_grad_(False)
        module.weight = torch.nn.Parameter(weight, requires_grad=False)
        module(x)
        assert module.packed_bytes >= 8_000_000

    used_once()
    gc.collect()
    before = resident()
    for _ in range(40):
        used_once()
    gc.collect()
    assert resident() - before < 100_000_000


def test_compiled_models_call_it_outside_of_the_graph():
    model = torch.nn.Sequential(layer(), torch.nn.ReLU()).eval()
    x = torch.randn(5, 530)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        assert same_bits(compiled(x), model(x))


def test_patch_leaves_it_as_it_is():
    model = torch.nn.Sequential(layer(), torch.nn.Linear(70, 3)).requires_grad_(False)
    x = torch.randn(5, 530)
    expected = expected_of(model[0], x)
    patch(model, linear=True)
    assert type(model[0]) is PackedLinear and type(model[1]) is isobit.torch.Linear
    assert same_bits(model[0](x), expected)
