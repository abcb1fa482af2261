# SPDX-License-Identifier: Apache-2.0
"""isobit.torch.init and isobit.numpy.random draw what torch.nn.init says, with bits by seed and
place, and reset_parameters_ begins whole models."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

import isobit.numpy
import isobit.torch
from isobit.torch import Generator, init

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NAMES = ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_")
NAMES += ("kaiming_uniform_", "kaiming_normal_")
# Their numbers depend on each other.
OF_MATRICES = ("orthogonal_", "sparse_")


def bits(tensor):
    return tensor.detach().contiguous().view(torch.uint8)


def same(one, other):
    return torch.equal(bits(one), bits(other))


@pytest.mark.parametrize("name", NAMES + OF_MATRICES)
def test_arguments_are_those_of_pytorch(name):
    ours, theirs = (inspect.signature(getattr(each, name)) for each in (init, nn.init))
    assert [(p.name, p.default, p.kind) for p in ours.parameters.values()] == [
        (p.name, p.default, p.kind) for p in theirs.parameters.values()
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_spread_as_pytorchs(name, dtype):
    ours, theirs = (torch.empty(300, 200, dtype=dtype) for _ in range(2))
    assert getattr(init, name)(ours, generator=Generator(3)) is ours
    torch.manual_seed(0)
    getattr(nn.init, name)(theirs)
    at = torch.tensor([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
    quantiles = [each.flatten().float().quantile(at) for each in (ours, theirs)]
    scale = theirs.float().std().item()
    torch.testing.assert_close(*quantiles, rtol=0, atol=0.05 * scale)
    assert ours.float().min() >= theirs.float().min() - scale


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", NAMES + OF_MATRICES[:1])
def test_tensors_without_elements_are_drawn_as_pytorch_draws_them(name):
    for shape in ((0, 3), (3, 0), (2, 0, 4)):
        empty = torch.empty(shape)
        assert getattr(init, name)(empty) is empty


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_range_without_width_gives_its_only_number(dtype):
    generator = Generator(3)
    for value in (1.5, 0.0, -2.0):
        found = init.uniform_(torch.empty(5, dtype=dtype), value, value, generator)
        expected = nn.init.uniform_(torch.empty(5, dtype=dtype), value, value)
        assert same(found, expected)
        if dtype != torch.bfloat16:
            name = str(dtype).removeprefix("torch.")
            array = isobit.numpy.random.uniform(5, value, value, seed=3, dtype=name)
            assert array.tobytes() == found.numpy().tobytes()
    assert generator.offset == 15
    zeros = init.xavier_uniform_(torch.empty(4, 3, dtype=dtype), gain=0.0)
    assert same(zeros, torch.zeros(4, 3, dtype=dtype))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_layers_without_inputs_or_outputs_begin_as_pytorchs():
    for shape in ((0, 3), (3, 0)):
        model = init.reset_parameters_(nn.Linear(*shape), seed=1)
        assert model.bias.isfinite().all()


def test_integers_are_no_orthogonal_matrix():
    with pytest.raises(ValueError, match=r"orthogonal_: tensor has dtype torch\.int64"):
        init.orthogonal_(torch.empty(4, 5, dtype=torch.int64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(70, 40), (40, 70), (33, 33), (1, 5), (5, 1), (6, 4, 3, 2)])
def test_orthogonal_matrices_are_those_of_pytorch_out_of_the_same_numbers(shape, dtype):
    ours = torch.empty(shape, dtype=dtype)
    assert init.orthogonal_(ours, 3.0, Generator(8)) is ours
    flat = ours.double().reshape(len(ours), -1)
    short = flat if flat.shape[0] <= flat.shape[1] else flat.t()
    rounding = torch.finfo(dtype).eps
    square = short @ short.t()
    expected = 9 * torch.eye(len(short), dtype=torch.float64)
    torch.testing.assert_close(square, expected, rtol=0, atol=60 * rounding)
    drawn = init.normal_(torch.empty(flat.shape, dtype=torch.float64), generator=Generator(8))
    tall = drawn if shape[0] >= drawn.shape[1] else drawn.t()
    q, r = torch.linalg.qr(tall)
    q = 3 * q * r.diagonal().sign()
    theirs = q if tall is drawn else q.t()
    torch.testing.assert_close(flat, theirs, rtol=0, atol=max(4 * rounding, 1e-10))


def test_orthogonal_matrices_have_the_same_bits_with_any_threads_and_instructions():
    threads = torch.get_num_threads()
    found = []
    try:
        for count, isa in ((1, "auto"), (2, "auto"), (3, "scalar")):
            torch.set_num_threads(count)
            isobit.torch.settings.isa = isa
            tensor = torch.empty(80, 130).t()
            found.append(init.orthogonal_(tensor, generator=Generator(2)))
    finally:
        torch.set_num_threads(threads)
        isobit.torch.settings.isa = "auto"
    assert same(found[0], found[1]) and same(found[0], found[2])
    wide = init.orthogonal_(torch.empty(130, 80, dtype=torch.float64), generator=Generator(2))
    assert same(found[0], wide.float()), "the numbers of a type are those of float64, rounded"


def test_rows_that_depend_on_others_do_not_become_noise():
    """Nearly alike rows stay orthogonal; of equal ones nothing is left, or a row that is."""
    from isobit.torch.orthonormal import orthonormal

    draws = init.normal_(torch.empty(40, 50, dtype=torch.float64), generator=Generator(1))
    near = draws[:1] + 1e-9 * draws
    found = orthonormal(near)
    torch.testing.assert_close(found @ found.t(), torch.eye(40).double(), rtol=0, atol=1e-14)
    assert torch.equal(orthonormal(torch.zeros(3, 4).double()), torch.zeros(3, 4).double())
    units = torch.eye(3, 5).double()
    assert torch.equal(
        orthonormal(units[[0, 0, 1]]), units[[0, 2, 1]] * torch.tensor([[1], [0], [1]])
    )


def test_sparse_columns_have_as_many_zeros_as_pytorchs():
    ours, theirs = torch.empty(30, 200), torch.empty(30, 200)
    assert init.sparse_(ours, 0.31, std=0.5, generator=Generator(4)) is ours
    nn.init.sparse_(theirs, 0.31)
    assert torch.equal((ours == 0).sum(0), (theirs == 0).sum(0))
    assert (ours == 0).sum(1).min() > 20, "every row has its share"
    assert abs(ours[ours != 0].std() - 0.5) < 0.02
    dense = init.normal_(torch.empty(30, 200), 0, 0.5, Generator(4))
    assert torch.equal(ours, dense.where(ours != 0, 0))
    turned = init.sparse_(torch.empty(200, 30).t(), 0.31, 0.5, Generator(4))
    assert same(turned, ours)
    generator = Generator(4)
    init.sparse_(torch.empty(30, 200), 0.31, generator=generator)
    assert generator.offset == 2 * 30 * 200
    assert (init.sparse_(torch.empty(3, 2), 1) == 0).all()
    assert (init.sparse_(torch.empty(3, 2), 0) != 0).all()


def test_bits_are_those_of_the_same_places_on_every_path():
    whole = init.normal_(torch.empty(1000), generator=Generator(5))
    generator = Generator(5)
    parts = [init.normal_(torch.empty(n), generator=generator) for n in (1, 2, 300, 697)]
    assert generator.offset == 1000
    assert same(torch.cat(parts), whole)
    turned = init.normal_(torch.empty(40, 25).t(), generator=Generator(5))
    assert same(turned, whole.view(25, 40))
    for isa in ("scalar", "auto"):
        isobit.torch.settings.isa = isa
        try:
            assert same(init.normal_(torch.empty(1000), generator=Generator(5)), whole)
        finally:
            isobit.torch.settings.isa = "auto"
    with torch.no_grad():
        parameter = nn.Parameter(torch.empty(1000))
    before = parameter._version
    assert same(init.normal_(parameter, generator=Generator(5)), whole)
    assert parameter.requires_grad and parameter._version > before


def test_compiled_functions_draw_the_same():
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def drawn():
        return init.uniform_(torch.empty(100), -1, 2, Generator(4))

    assert same(drawn(), init.uniform_(torch.empty(100), -1, 2, Generator(4)))
    torch._dynamo.reset()


def test_numpy_has_the_same_bits():
    random = isobit.numpy.random
    for dtype in ("float32", "float64", "float16"):
        like = torch.empty(7, 30, dtype=getattr(torch, dtype))
        given = {"seed": 7, "offset": 2**40 + 1, "dtype": dtype}
        for ours, theirs in (
            (random.uniform((7, 30), -1, 3, **given), lambda t, g: init.uniform_(t, -1, 3, g)),
            (random.normal((7, 30), 1, 2, **given), lambda t, g: init.normal_(t, 1, 2, g)),
            (
                random.truncated_normal((7, 30), **given),
                lambda t, g: init.trunc_normal_(t, generator=g),
            ),
            (random.bernoulli((7, 30), 0.3, **given), lambda t, g: init.bernoulli_(t, 0.3, g)),
        ):
            assert ours.shape == (7, 30) and ours.dtype == dtype
            expected = theirs(like, Generator(7, 2**40 + 1))
            assert np.array_equal(ours, expected.numpy())
    assert random.uniform(3, seed=-1).tolist() == random.uniform(3, seed=2**64 - 1).tolist()
    assert random.normal((), seed=1).shape == () and random.normal((0, 2), seed=1).size == 0
    with pytest.raises(TypeError, match=r"random.normal: dtype is int32; must be float32"):
        random.normal(3, seed=1, dtype="int32")
    with pytest.raises(ValueError, match=r"random: low is 2.0 and high 1.0|low is 2 and high 1"):
        random.uniform(3, 2, 1, seed=1)


def test_the_module_level_generator_is_begun_by_manual_seed():
    generator = isobit.torch.manual_seed(11)
    assert generator.initial_seed() == 11
    first = init.uniform_(torch.empty(5))
    second = init.uniform_(torch.empty(5))
    assert not same(first, second)
    isobit.torch.manual_seed(11)
    assert same(init.uniform_(torch.empty(5)), first)
    assert repr(generator) == "Generator(seed=11, offset=5)"
    assert repr(Generator(-1)) == f"Generator(seed={2**64 - 1}, offset=0)"


def test_what_is_wrong_is_told_by_name():
    with pytest.raises(TypeError, match=r"must be an isobit.torch.Generator; it is torch"):
        init.normal_(torch.empty(3), generator=torch.Generator())
    with pytest.raises(TypeError, match="Generator: seed must be an integer; it is float"):
        Generator(1.5)
    with pytest.raises(ValueError, match=r"Generator: offset is 18446744073709551616; allowed"):
        Generator(1, 2**64)
    with pytest.raises(ValueError, match=r"random_: y has dtype torch.int64; must be float32"):
        init.normal_(torch.empty(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="elements of y must be adjacent"):
        torch.ops.isobit.random_(torch.empty(4)[::2], 0, 0.0, 1.0, 0.0, 1.0, 0.5, 1, 0)
    with pytest.raises(ValueError, match="std is -1"):
        init.normal_(torch.empty(3), 0.0, -1.0)
    assert init.normal_(torch.empty(3, device="meta")).is_meta
    with pytest.raises(ValueError, match="orthogonal_: tensor has 1 dimensions; must have 2 or mo"):
        init.orthogonal_(torch.empty(3))
    with pytest.raises(ValueError, match="sparse_: tensor has 3 dimensions; must have 2"):
        init.sparse_(torch.empty(3, 2, 2), 0.5)
    with pytest.raises(ValueError, match=r"sparse_: sparsity is 1.5; allowed: 0 to 1"):
        init.sparse_(torch.empty(3, 2), 1.5)
    for each in (init.orthogonal_, lambda tensor: init.sparse_(tensor, 0.5)):
        assert each(torch.empty(3, 2, device="meta")).is_meta
    assert init.orthogonal_(torch.empty(0, 2)).shape == (0, 2)


def test_opcheck():
    y = torch.empty(6)
    torch.library.opcheck(torch.ops.isobit.random_.default, (y, 1, 0.0, 1.0, 0.0, 1.0, 0.5, 3, 4))


MODULES = {
    "linear": lambda: nn.Linear(40, 30),
    "bilinear": lambda: nn.Bilinear(9, 8, 7),
    "conv1d": lambda: nn.Conv1d(4, 6, 3),
    "conv2d": lambda: nn.Conv2d(4, 6, 3, groups=2),
    "conv transposed": lambda: nn.ConvTranspose2d(4, 6, 3),
    "embedding": lambda: nn.Embedding(50, 8, padding_idx=3),
    "embedding bag": lambda: nn.EmbeddingBag(50, 8),
    "attention": lambda: nn.MultiheadAttention(16, 4, add_bias_kv=True),
    "attention of other keys": lambda: nn.MultiheadAttention(16, 4, kdim=8, vdim=4),
    "lstm": lambda: nn.LSTM(8, 6, 2),
    "gru cell": lambda: nn.GRUCell(8, 6),
    "norms": lambda: nn.Sequential(
        *(nn.LayerNorm(8), nn.RMSNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8), nn.PReLU(3))
    ),
    "transformer": lambda: nn.Transformer(16, 2, 1, 1, 32),
    "ours": lambda: isobit.torch.LayerNormMLP(16, 32),
    "our linear": lambda: isobit.torch.Linear(16, 32),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_begin_as_pytorchs_do(name):
    """Of each parameter, the least and the largest number and the spread are theirs, about."""
    torch.manual_seed(1)
    theirs, ours = MODULES[name](), MODULES[name]()
    with torch.no_grad():
        for each in ours.parameters():
            each.fill_(100)
    assert init.reset_parameters_(ours, 5) is ours
    for (path, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert one.abs().max() < 6 and one.requires_grad, path
        if other.unique().numel() < 3:
            assert torch.equal(one, other), path
            continue
        few = other.numel() < 30
        assert one.abs().max() < (20 if few else 3) * other.abs().max(), path
        assert few or abs(one.std() / other.std() - 1) < 0.5, path
        assert not torch.equal(one, other)
    again = init.reset_parameters_(MODULES[name](), 5)
    for one, other in zip(ours.parameters(), again.parameters(), strict=True):
        assert same(one, other)


def test_a_parameters_numbers_depend_on_its_name_and_the_seed_alone():
    def model(*more):
        layers = {"first": nn.Linear(4, 4), **dict(more), "last": nn.Linear(4, 4)}
        return nn.ModuleDict(layers)

    short = init.reset_parameters_(model(), 3)
    long = init.reset_parameters_(model(("between", nn.Linear(4, 4))), 3)
    assert same(short["last"].weight, long["last"].weight)
    assert not same(short["first"].weight, short["last"].weight)
    assert not same(init.reset_parameters_(model(), 4)["last"].weight, short["last"].weight)
    expected = nn.init.zeros_(torch.empty(50, 8))[3]
    table = init.reset_parameters_(nn.Embedding(50, 8, padding_idx=3), 1)
    assert same(table.weight[3], expected)


def test_shared_weights_are_those_of_one_name():
    model = nn.ModuleDict({"table": nn.Embedding(20, 8), "head": nn.Linear(8, 20, bias=False)})
    model["head"].weight = model["table"].weight
    alone = nn.ModuleDict({"table": nn.Embedding(20, 8)})
    init.reset_parameters_(model, 3)
    assert same(model["head"].weight, init.reset_parameters_(alone, 3)["table"].weight)


def test_modules_that_draw_otherwise_are_refused():
    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.full((3,), 7.0))

    model = nn.Sequential(nn.Linear(2, 2), Held())
    with pytest.raises(ValueError, match=r"how to begin 1.token of Held; keep_unknown=True"):
        init.reset_parameters_(model, 1)
    init.reset_parameters_(model, 1, keep_unknown=True)
    assert model[1].token.tolist() == [7, 7, 7]

    class Drawn(Held):
        def reset_parameters(self):
            self.how(self)

    drawn = Drawn()
    ways = {
        r"calls aten\.randn.*depend on the machine": lambda m: m.token.copy_(torch.randn(3)),
        r"calls aten\.erfinv_": lambda m: m.token.zero_().erfinv_(),
        r"calls aten\.linalg_qr": lambda m: nn.init.orthogonal_(m.token.view(1, 3)),
        "a generator of PyTorch's": lambda m: m.token.normal_(generator=torch.Generator()),
    }
    for words, how in ways.items():
        drawn.how = how
        with pytest.raises(NotImplementedError, match=words):
            init.reset_parameters_(drawn, 1)
    drawn.how = lambda m: init.trunc_normal_(m.token, generator=Generator(1))
    init.reset_parameters_(drawn, 1)
    assert drawn.token.abs().max() <= 2

    def beside(module):
        module.token.copy_(torch.empty(3).uniform_())

    drawn.how = beside
    first = init.reset_parameters_(drawn, 1).token.clone()
    assert same(init.reset_parameters_(drawn, 1).token, first)
    assert not same(init.reset_parameters_(drawn, 2).token, first)
    with pytest.raises(ValueError, match="weight is on the meta device"):
        init.reset_parameters_(nn.Linear(2, 2, device="meta"), 1)
