# SPDX-License-Identifier: Apache-2.0
"""What the lab asks of Triton: by the lab itself, and by questions that it has no reason to ask.

Triton decides at its import whether it interprets, so it is imported in processes of their own.
"""

import json
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from triton_verified import LAB, verified  # noqa: E402

from isobit.lab import gpu_timing  # noqa: E402
from isobit.lab import triton as triton_lab  # noqa: E402

VARIANTS = {"fwd": {"row_per_program", "streamed"}, "bwd": {"one_pass", "two_pass"}}

GIVEN = "--statistics given --offset 3"
ATTENTION = (
    "attention --batch 1 --heads 2 --kv-heads 1 --seq-q 3 --seq-k 9 --head-dim 5 --value-dim 4"
)


@pytest.mark.parametrize(
    "call",
    [
        "layernorm,rmsnorm --rows 0,2 --cols 70 --input huge1e20",
        "layernorm,rmsnorm --rows 2 --cols 530 --dtype bf16 --weight-dtype f32 --y-dtype f16",
        f"layernorm,rmsnorm --rows 3 --cols 9 {GIVEN} --eps 0 --input constant",
    ],
)
def test_every_variant_of_a_norm_has_the_bits_of_the_library(call):
    lines = verified(call)
    assert {line["op"] for line in lines} == set(call.split()[0].split(","))
    for direction, variants in VARIANTS.items():
        assert {line["variant"] for line in lines if line["pass"] == direction} == variants
    assert all(line["canonical"] for line in lines)


def test_every_variant_of_elementwise_has_the_bits_of_the_library():
    lines = verified("elementwise --rows 3 --cols 70 --dtype f32,f16,bf16,f64,i32 --kind increment")
    assert {line["variant"] for line in lines} == {"vec16", "unrolled4", "naive"}
    assert all(line["canonical"] for line in lines)


def test_every_variant_of_activation_has_the_bits_of_the_library():
    functions = "log,gelu"  # test_triton.py calls all of them
    call = f"activation --function {functions} --with none,gate --rows 3 --cols 70"
    lines = verified(f"{call} --pass fwd,bwd --dtype f32,f16,bf16 --input denormal")
    assert {line["variant"] for line in lines} == {"vec16", "naive"}
    assert {line["pass"] for line in lines} == {"fwd", "bwd"}
    assert all(line["canonical"] for line in lines)


def test_every_variant_of_softmax_has_the_bits_of_the_library():
    call = "softmax --pass fwd,bwd --log no,yes --rows 3 --cols 70 --with none,mask --scale -0.3"
    lines = verified(f"{call} --dtype bf16 --input mean1e6")
    found = {(line["pass"], line["variant"]) for line in lines}
    assert found == {(way, name) for way in VARIANTS for name in ("row_per_program", "streamed")}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "--pass fwd --reduction max --window-h 3 --window-w 2 --padding-h 1 --with none,index",
        "--pass fwd --reduction max --window-h 2 --window-w 3 --dilation-h 2 --layout reversed",
        "--pass fwd --reduction average --window-h 3 --window-w 3 --stride-w 2 --ceil-mode yes",
        "--pass fwd,bwd --reduction average --bins-h 2 --bins-w 3 --divisor 7",
        "--pass bwd --reduction average --window-h 3 --window-w 3 --stride-h 2 --padding-w 1",
        "--pass fwd,bwd --reduction average --window-h 23 --window-w 23 --stride-h 1 --stride-w 1"
        " --padding-h 1 --padding-w 1 --height 23 --width 24 --channels 1 --dtype f32",
        "--pass bwd --reduction max --window-h 3 --window-w 2 --stride-h 1 --layout spread",
        "--pass bwd --reduction max --bins-h 1 --bins-w 2",
    ],
)
def test_pool2d_has_the_bits_of_the_library(call):
    usual = (
        "" if "--dtype" in call else " --channels 3 --height 7 --width 6 --dtype f32,f16,bf16,f64"
    )
    lines = verified(f"pool2d {call}{usual}")
    assert {line["variant"] for line in lines} == {"gather"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "--pass fwd --rows 5 --tokens 7 --dtype f32,f16,bf16,f64 --input randn,denormal",
        "--pass bwd --rows 40 --tokens 3 --dtype f32,f16,bf16,f64 --padding-idx -1,2",
        "--pass bwd --rows 530 --tokens 2 --dtype f32 --scale-grad-by-freq yes",
        "--pass bwd --rows 0,3 --tokens 9 --dtype bf16 --scale-grad-by-freq yes --row-stride 75",
    ],
)
def test_embedding_has_the_bits_of_the_library(call):
    lines = verified(f"embedding --cols 70 {call}")
    assert {line["variant"] for line in lines} == {"row_per_program" if "fwd" in call else "sorted"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "--pass fwd,bwd --rows 5 --cols 70 --dtype f32,f16,bf16 --with weight --input mean1e6",
        "--pass fwd --rows 35 --cols 9 --with lse --z-loss 0.3 --ignore-index 2 --input huge1e20",
        "--pass fwd,bwd --rows 3 --cols 530 --label-smoothing 0.2 --z-loss 0.1 --with weight",
        "--pass fwd,bwd --rows 3 --cols 70 --label-smoothing 1 --dtype bf16",
        "--pass fwd,bwd --rows 0,2 --cols 1 --label-smoothing 0.5",
    ],
)
def test_cross_entropy_has_the_bits_of_the_library(call):
    lines = verified(f"cross_entropy {call}")
    assert {line["variant"] for line in lines} == {"row_per_program", "streamed"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "--pass fwd,bwd --with bias --dtype f32,bf16",
        "--pass fwd,bwd --with class_weight --label-smoothing 0.1 --z-loss 0.2",
    ],
)
def test_linear_cross_entropy_has_the_bits_of_the_library(call):
    lines = verified(f"linear_cross_entropy --rows 3 --cols 9 --classes 20 {call}")
    assert {line["variant"] for line in lines} == {"unfused"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "call",
    [
        "sgd --maximize yes --weight-decay 0.1",
        "sgd --momentum 0.9 --dampening 0.2",
        "sgd --momentum 0.9 --nesterov yes --with narrow",
        "lion --lr 0.01 --weight-decay 0.3 --with narrow",
        "lion --lr 0 --maximize yes --input denormal",
        "adam --step 1000 --decoupled yes --weight-decay 0.1 --with narrow",
        "adam --weight-decay 0.1 --maximize yes --with max_exp_avg_sq+new_max_exp_avg_sq",
        "adam --beta1 0 --eps 0 --input huge1e20,denormal",
    ],
)
def test_steps_of_optimisers_have_the_bits_of_the_library(call):
    lines = verified(f"{call} --rows 3 --cols 1100 --dtype f32,f16,bf16")
    assert {line["variant"] for line in lines} == {"vec16", "naive"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize("order", ["l2", "l1", "max"])
def test_vector_norm_has_the_bits_of_the_library(order):
    call = f"vector_norm --rows 3 --cols 0,70,5000 --order {order} --dtype f32,bf16"
    lines = verified(f"{call} --input huge1e20,denormal")
    assert {line["variant"] for line in lines} == {"row_per_program", "streamed"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize("op", ["group_norm --groups 2", "batch_norm --training no,yes"])
@pytest.mark.parametrize("call", ["--extent 70 --dtype f32,bf16", "--extent 1030 --dtype f32"])
def test_norms_of_channels_have_the_bits_of_the_library(op, call):
    if op.startswith("batch_norm") and "1030" in call:
        op = op.replace("no,yes", "yes")
    lines = verified(f"{op} --pass fwd,bwd --batch 3 --channels 4 {call} --input randn,mean1e6")
    assert {line["variant"] for line in lines} == {"row_per_program", "streamed"}
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    "types",
    [
        "--dtype f32,f64,f16,bf16,i32,i64,bool,u8",
        "--dtype f64,bf16,f32 --y-dtype f16,f64",
    ],
)
def test_every_variant_of_transpose_has_the_bits_of_the_library(types):
    lines = verified(f"transpose --batch 2 --rows 9 --cols 70 {types} --input randn,denormal")
    assert {line["variant"] for line in lines} == {"tiled", "naive"}
    assert all(line["canonical"] for line in lines)


SIGNAL = "--batch 2 --channels 4 --filters 2 --length 7 --kernel 3 --padding 1"
IMAGE = "--batch 1 --channels 2 --filters 3 --height 3 --width 7 --kernel-h 2 --kernel-w 3"
IMAGE += " --padding-h 1 --padding-w 1"


@pytest.mark.parametrize(
    ("call", "variants"),
    [
        ("rope --batch 2 --seq 2 --heads 2 --kv-heads 1 --head-dim 10 --dtype f32,bf16", 1),
        ("scan --outer 2 --length 530 --inner 1 --kind sum --with init --exclusive yes", 2),
        (ATTENTION + " --dtype f32,f16,bf16 --with bias+mask --causal bottom_right --softcap 3", 1),
        (
            ATTENTION
            + " --pass bwd --dtype f32,bf16 --with bias+mask+grad_lse+grad_bias --window 4",
            1,
        ),
        ("matmul --batch 2 --m 3 --n 5 --k 9 --dtype f32,f16 --layout reversed,spread", 1),
        ("matmul --m 3 --n 5 --k 9 --with bias+c+residual+pre --alpha 2 --beta -1", 1),
        ("matmul --pass bwd --batch 2 --m 3 --n 5 --k 9 --dtype f32,bf16 --layout tn", 1),
        ("layernorm_linear,rmsnorm_linear --pass fwd,bwd --rows 3 --cols 20 --features 7", 1),
        ("rmsnorm_linear --rows 2 --cols 9 --features 3 --with residual+pre+y+rstd", 1),
        ("matmul --pass bwd --m 3 --n 5 --k 9 --with pre+grad_bias+grad_c --activation gelu", 1),
        (f"conv1d {SIGNAL} --dtype f32,bf16 --with bias+residual+pre --padding-mode reflect", 2),
        (f"conv1d --pass bwd {SIGNAL} --padding-mode circular", 1),
        (f"conv2d --pass bwd {IMAGE} --stride-h 2 --extra-padding-w -1 --dtype bf16", 2),
    ],
)
def test_operators_whose_dims_are_no_rows_have_the_bits_of_the_library(call, variants):
    of_rope = call.startswith("rope")
    passes = " --pass fwd,bwd --with cos+sin+positions" if of_rope else ""
    if "--pass" not in call + passes:
        passes += " --pass fwd"
    lines = verified(call + passes)
    assert len({line["variant"] for line in lines}) == variants
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize(
    ("variant", "count"), [("one_pass", 5), pytest.param("two_pass", 5 * 4, marks=pytest.mark.full)]
)
def test_every_plan_has_the_bits_of_the_library(variant, count):
    lines = verified(f"layernorm --pass bwd --rows 1 --cols 5 --variant {variant} --plan all")
    assert len({json.dumps(line["plan"]) for line in lines}) == count
    assert all(line["canonical"] for line in lines)


@pytest.mark.parametrize("op", ["layernorm", pytest.param("rmsnorm", marks=pytest.mark.full)])
def test_parity_stands_the_variants_beside_the_others(op):
    call = f"{op} --pass fwd --rows 2 --cols 20 --device cpu,triton --isa scalar --threads 1"
    lab = subprocess.run([LAB, "parity", *call.split()], capture_output=True, text=True)
    assert lab.returncode == 0
    for line in (
        "row_per_program on triton warps=16 ",
        "streamed on triton within a larger batch ",
        "streamed on triton with gaps between rows: unavailable: elements must be adjacent; ",
    ):
        assert line in lab.stdout


def answers(*questions, before=""):
    """What isobit.lab.triton answers, with something done before it begins."""
    script = f"from isobit.lab import triton as triton_lab\n{before}\ntriton_lab.main()"
    asked = "".join(json.dumps(question) + "\n" for question in questions)
    ended = subprocess.run(
        [sys.executable, "-c", script], input=asked, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def ask():
    """Questions to one process, since to begin one takes seconds."""
    command = [sys.executable, "-m", "isobit.lab.triton"]
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as lab:

        def ask(*questions):
            found = []
            for question in questions:
                lab.stdin.write(json.dumps(question) + "\n")
                lab.stdin.flush()
                found.append(json.loads(lab.stdout.readline()))
            return found

        yield ask
        lab.stdin.close()
        assert lab.wait() == 0


def array(*shape, strides=None, dtype="f32"):
    dense = torch.empty(shape, device="meta").stride()
    return {"dtype": dtype, "shape": shape, "strides": strides or dense}


def support(op="layernorm", options=None, **arrays):
    case = {"op": op, "pass": "fwd"}
    arrays = {"x": array(3, 70), "y": array(3, 70)} | arrays
    return {"do": "support", "case": case, "options": options or {}, "arrays": arrays}


def test_what_a_variant_lacks_is_unavailable(ask):
    found = ask(
        support(options={"eps": 1e-5, "zero_centered": "no", "dropout": 0.0, "dropout_seed": 42.0}),
        support(options={"zero_centered": "yes"}),
        support(options={"dropout": 0.5}),
        support(residual=array(3, 70), sum=array(3, 70)),
        support(x=array(3, 70, strides=(80, 1))),
        support(x=array(3, 20000)),
        support(x=array(3, 70, dtype="f64")),
    )
    usual, *others = (answer["row_per_program"] for answer in found)
    assert usual == {"plan": {"warps": 1}}
    assert [other["unavailable"] for other in others] == [
        "it does not support zero_centered",
        "it does not support dropout",
        "it does not support residual, sum",
        "elements must be adjacent; x of shape [3, 70] has strides [80, 1]",
        "20000 columns; registers hold at most 16384",
        "it computes in float, not in f64",
    ]
    assert found[5]["streamed"]["plan"]["warps"] == 4


def test_layouts_that_are_not_read_are_unavailable_whatever_the_dimensions_are(ask):
    forms = {
        "usual": array(2, 3, 4),
        "turned": array(2, 3, 4, strides=(1, 2, 6)),
        "of one line": array(1, 1, 4, strides=(9, 7, 1)),
        "empty": array(0, 3, 4, strides=(1, 9, 1)),
    }
    found = ask(*(support("transpose", x=form) for form in forms.values()))
    reasons = [answer["tiled"].get("unavailable") for answer in found]
    turned = "elements must be adjacent; x of shape [2, 3, 4] has strides [1, 2, 6]"
    assert reasons == [None, turned, None, None]


def test_options_are_declined_and_any_strides_taken_where_a_variant_says_so(ask):
    arrays = {name: array(4, 4, strides=(1, 4), dtype="f64") for name in ("a", "b", "y")}
    case = {"op": "matmul", "pass": "fwd"}
    found = ask(
        {"do": "support", "case": case, "options": {"activation": "relu"}, "arrays": arrays},
        {"do": "support", "case": case, "options": {"activation": "silu"}, "arrays": arrays},
    )
    assert [answer["register_tiled"] for answer in found] == [
        {"plan": {"rows": 16, "cols": 16, "warps": 8}},
        {"unavailable": "it computes silu in float, not in f64"},
    ]


def test_a_kind_that_a_variant_lacks_is_unavailable():
    adds = SimpleNamespace(kinds=("add", "increment"), takes=frozenset())
    said = triton_lab._lacks(adds, {"pass": "fwd"}, {"kind": "multiply"}, {})
    assert said == "it computes only add and increment"


def test_operators_are_those_with_a_file():
    products = ["conv1d", "conv2d", "layernorm_linear", "matmul", "rmsnorm_linear"]
    others = ["activation", "attention", "elementwise", "layernorm", "rmsnorm", "rope", "scan"]
    others += ["batch_norm", "embedding", "group_norm", "pool2d", "softmax", "transpose"]
    others += ["cross_entropy", "linear_cross_entropy"]
    others += ["adam", "lion", "sgd", "vector_norm"]
    others += ["dropout", "interpolate", "pointwise_loss", "random", "reduce"]
    assert list(triton_lab.operators()) == sorted(products + others)


def test_a_question_that_cannot_be_answered_ends_nothing(ask):
    wrong = {"do": "run", "op": "layernorm", "variant": "none", "plan": {}, "options": {}}
    found = ask({"do": "dance"}, wrong | {"arrays": {}}, {"do": "list"})
    assert found[0] == {"error": "KeyError: 'dance'"}
    assert found[1] == {"error": "KeyError: 'none'"}
    assert found[2]["executor"] == "interpreter"


def test_what_others_print_is_no_answer():
    quick = "triton_lab.Lab = dict\ntriton_lab.answer = lambda *_: print('noise') or {'said': 1}"
    assert answers({"do": "list"}, before=quick) == [{"said": 1}]


def test_without_triton_the_first_answer_says_so():
    blocked = "import sys; sys.modules['triton'] = None"
    (answer,) = answers({"do": "list"}, before=blocked)
    assert "triton" in answer["error"]
    assert answer["error"].endswith("run `make build` to install it in .venv")


def test_every_configuration_is_timed_and_a_copy_last(tmp_path, ask):
    """On the processor, which shows that all but the graph works."""
    arrays = {}
    for name in ("x", "residual", "y"):
        (tmp_path / name).write_bytes(bytes(96))
        arrays[name] = {"file": str(tmp_path / name), "bytes": 96, "first": 32, "dtype": "f32"}
        arrays[name] |= {"shape": [2, 4], "strides": [4, 1]}
    configurations = [{"variant": name, "plan": {"warps": 1}} for name in ("vec16", "naive")]
    question = {
        "do": "bench",
        "op": "elementwise",
        "configurations": configurations,
        "options": {"kind": "add"},
    }
    question |= {"arrays": arrays, "copied_bytes": 96.0, "rounds": 3}
    (answer,) = ask(question)
    assert len(answer["times"]) == 3
    for times in answer["times"]:
        assert 0 < times["p20"] <= times["median"] <= times["p80"]


class FakeEvent:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return 3.0  # milliseconds


def fake_cuda(monkeypatch, failure=None):
    """A GPU of which only the names are there; how often graphs were replayed."""
    replays = []

    @contextmanager
    def capture(graph):
        if failure:
            raise failure
        yield

    fakes = {"synchronize": lambda: None, "graph": capture, "Event": FakeEvent}
    fakes["CUDAGraph"] = lambda: SimpleNamespace(replay=lambda: replays.append(1))
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return replays


def test_a_graph_of_all_sets_is_replayed(monkeypatch):
    replays, calls = fake_cuda(monkeypatch), []
    timer = gpu_timing.Timer(calls.append, ["one", "other"], "cuda")
    assert calls == ["one", "other"] * 2  # to compile, and to be captured
    assert timer() == 1.5e-3
    assert (timer.how, len(replays), len(calls)) == ("graph", 1, 4)


def test_what_cannot_be_captured_is_timed_as_it_is_called(monkeypatch, capsys):
    calls = []
    fake_cuda(monkeypatch, RuntimeError("it synchronises"))
    timer = gpu_timing.Timer(calls.append, ["one", "other"], "cuda")
    timer()
    assert (timer.how, len(calls)) == ("eager", 4)
    assert "not captured: it synchronises" in capsys.readouterr().err


def test_a_race_goes_there_and_back():
    turns = []

    def timer(name):
        return lambda: turns.append(name) or len(turns)

    seconds = gpu_timing.time_interleaved({"one": timer("one"), "other": timer("other")}, 3)
    assert turns == ["one", "other", "other", "one", "one", "other"]
    assert seconds == {"one": [1, 4, 5], "other": [2, 3, 6]}


def test_one_slow_round_leaves_quantiles_among_the_samples():
    found = gpu_timing.quantiles([1, 1, 40])
    assert 1 <= found["p20"] <= found["median"] <= found["p80"] <= 40
