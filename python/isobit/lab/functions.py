# SPDX-License-Identifier: Apache-2.0
"""How functions of isobit.numpy and isobit.torch are called for a case of the lab."""

DTYPES = {
    **{"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"},
    **{"i32": "int32", "i64": "int64", "bool": "bool", "u8": "uint8"},
}
NORMS = {"layernorm": "layer_norm", "rmsnorm": "rms_norm"}
LINEAR = {f"{op}_linear": f"{name}_linear" for op, name in NORMS.items()}


class Unavailable(Exception):
    """Why a caller cannot compute a case."""


def _of_its_name(call, library, _dtype_named):
    function = getattr(library, call.case.get("kind", call.case["op"]))
    return lambda **inputs: {"y": function(**inputs)}


def _norm(call, library, dtype_named):
    cols, options = call.case["cols"], call.options | call.cast("out_dtype", dtype_named)
    if not call.adds:
        function = getattr(library, call.norm)
        return lambda x, **weights: {"y": function(x, cols, **weights, **options)}
    function = getattr(library, f"dropout_add_{call.norm}")
    options |= {"p": call.dropout, "seed": int(call.case["dropout_seed"])}

    def sum_and_norm(x, residual=None, **weights):
        y, total = function(x, residual, cols, **weights, **options)
        return {"y": y, "sum": total}

    return sum_and_norm


def _transpose(call, library, dtype_named):
    options = call.cast("dtype", dtype_named)
    return lambda x: {"y": library.transpose(x, -2, -1, **options)}


def _matmul(call, library, dtype_named):
    case = call.case
    for name in ("c", "residual", "pre"):
        if name in call.inputs or name in call.outputs:
            raise Unavailable(f"{library.__name__}.matmul has no {name}")
    if case["alpha"] != 1:
        raise Unavailable(f"{library.__name__}.matmul has no alpha")
    activation = None if case["activation"] == "none" else case["activation"]
    options = {"activation": activation, "arithmetic": case["arithmetic"]}
    options |= call.cast("out_dtype", dtype_named)
    return lambda a, b, bias=None: {"y": library.matmul(a, b, bias=bias, **options)}


def _norm_linear(call, library, _dtype_named):
    case = call.case
    missing = {"x_residual", "sum", "y", "pre", "grad_sum", "grad_x_residual", "mean", "rstd"}
    for name in (*call.inputs, *call.outputs):
        if name in missing:
            raise Unavailable(f"{library.__name__}.{LINEAR[case['op']]} has no {name}")
    if call.dropout > 0:
        raise Unavailable(f"{library.__name__}.{LINEAR[case['op']]} has no dropout")
    options = {"eps": case["eps"], "zero_centered": case["zero_centered"] == "yes"}
    options["activation"] = None if case["activation"] == "none" else case["activation"]
    options["arithmetic"] = case["arithmetic"]
    function = getattr(library, LINEAR[case["op"]])

    def linear(x, weight, norm_weight=None, norm_bias=None, **more):
        norm = (norm_weight, norm_bias) if case["op"] == "layernorm_linear" else (norm_weight,)
        return {"z": function(x, (case["cols"],), *norm, weight, **more, **options)}

    return linear


def _convolution(call, library, dtype_named):
    case, function = call.case, getattr(library, call.case["op"])
    in_torch = library.__name__.endswith("torch")
    for name in ("residual", "pre"):
        if name in call.inputs or name in call.outputs:
            raise Unavailable(f"{library.__name__}.{case['op']} has no {name}")
    sides = ("",) if case["op"] == "conv1d" else ("_h", "_w")

    def numbers(name):
        return tuple(case[name + side] for side in sides)

    if any(numbers("extra_padding")):
        raise Unavailable(f"{library.__name__}.{case['op']} has no extra padding")
    options = {name: numbers(name) for name in ("stride", "padding", "dilation")}
    options["groups"] = case["groups"]
    activation = None if case.get("activation", "none") == "none" else case["activation"]
    if not in_torch:
        options |= {"padding_mode": case["padding_mode"], "activation": activation}
        options |= call.cast("out_dtype", dtype_named)
    elif activation or case["padding_mode"] != "zeros" or call.cast("out_dtype", dtype_named):
        raise Unavailable(f"{library.__name__}.{case['op']} is a convolution and no more")
    return lambda x, weight, bias=None: {"y": function(x, weight, bias, **options)}


def _rope(call, library, _dtype_named):
    case = call.case
    style, offset = case["style"], case["offset_positions"]

    def turned(q, k=None, cos=None, sin=None, positions=None):
        if cos is None and library.__name__.endswith("torch"):  # whose function wants tables
            length = offset + case["seq"]
            dtype = DTYPES["f64" if case["dtype"] == "f64" else "f32"]
            dim = case["rotary_dim"] or case["head_dim"] // 2 * 2
            cos, sin = library.rotary_tables(
                length, dim, base=case["base"], dtype=_dtype_named(dtype)
            )
        options = {"cos": cos, "sin": sin, "position_ids": positions}
        options |= {"style": style, "offset": offset}
        if not library.__name__.endswith("torch"):
            options |= {"base": case["base"], "rotary_dim": case["rotary_dim"] or None}
            options["backward"] = case["pass"] == "bwd"
        found = library.apply_rotary(q, k, **options)
        return {"y_q": found} if k is None else dict(zip(("y_q", "y_k"), found, strict=True))

    return turned


def _rope_tables(call, library, dtype_named):
    case = call.case
    options = {"base": case["base"], "offset": case["offset_positions"]}
    options["dtype"] = dtype_named(DTYPES[case["dtype"]])

    def tables(**given):
        found = library.rotary_tables(case["length"], 2 * case["pairs"], **given, **options)
        return dict(zip(("cos", "sin"), found, strict=True))

    return tables


def _pointwise_loss(call, library, _dtype_named):
    case = call.case
    if case["dtype"] in ("f16", "bf16"):
        raise Unavailable(f"{library.__name__} rounds losses to the type of x")
    kind = case["function"]
    name = {"bce_with_logits": "binary_cross_entropy_with_logits"}.get(kind, f"{kind}_loss")
    bends = {"smooth_l1": {"beta": case["beta"]}, "huber": {"delta": case["beta"]}}
    options = {"reduction": "none"} | bends.get(kind, {})
    if kind == "smooth_l1" and "weight" in call.inputs:
        raise Unavailable(f"{library.__name__}.smooth_l1_loss has no weight")
    function = getattr(library, name)
    return lambda x, target, **weights: {"loss": function(x, target, **weights, **options)}


def _dropout(call, library, _dtype_named):
    options = {"p": call.case["p"], "seed": int(call.case["dropout_seed"])}
    return lambda x: {"y": library.dropout(x, **options)}


def _random(call, library, dtype_named):
    case = call.case
    shape, dtype = (case["rows"], case["cols"]), dtype_named(DTYPES[case["dtype"]])
    kind, seed, offset = case["distribution"], int(case["random_seed"]), int(case["random_offset"])
    names = {"normal": ("mean", "std"), "bernoulli": ("p",), "uniform": ("low", "high")}
    numbers = {name: case[name] for name in names.get(kind, ("mean", "std", "low", "high"))}
    if not library.__name__.endswith("torch"):
        function = getattr(library.random, kind)
        return lambda: {"y": function(shape, **numbers, seed=seed, offset=offset, dtype=dtype)}

    import torch

    def filled():
        function = getattr(library.init, {"truncated_normal": "trunc_normal"}.get(kind, kind) + "_")
        names = {"low": "a", "high": "b"}
        given = {names.get(name, name): value for name, value in numbers.items()}
        generator = library.Generator(seed, offset)
        return {"y": function(torch.empty(shape, dtype=dtype), **given, generator=generator)}

    return filled


def _scan(call, library, dtype_named):
    kind = call.case["kind"]
    name = {"sum": "cumsum", "prod": "cumprod", "logsumexp": "logcumsumexp"}.get(kind, f"cum{kind}")
    if not hasattr(library, name):
        raise Unavailable(f"{library.__name__} has no scans")
    if "reset" in call.inputs:
        raise Unavailable(f"{library.__name__} has no segments")
    options = {each: call.case[each] == "yes" for each in ("exclusive", "reverse")}
    if kind in ("sum", "prod"):
        options["dtype"] = dtype_named(DTYPES[call.case["y_dtype"]])

    def scan(x, **init):
        found = getattr(library, name)(x, -2, **options, **init)
        outputs = (
            dict(zip(("y", "index"), found, strict=True))
            if kind in ("max", "min")
            else {"y": found}
        )
        return {name: outputs[name] for name in call.outputs}

    return scan


def _attention(call, library, _dtype_named):
    case = call.case
    in_torch = library.__name__.endswith("torch")
    if "bias" in call.inputs and "mask" in call.inputs:
        raise Unavailable("a function takes a bias or a mask")
    if "bias" in call.inputs and "slopes" in call.inputs:
        raise Unavailable("a function takes a bias or slopes")
    options = {name: case[name] for name in ("causal", "window", "softcap", "arithmetic")}
    options |= {"scale": case["scale"] or None, "return_lse": True, "dropout_p": case["dropout"]}
    options["seed"] = int(case["dropout_seed"])
    if in_torch:
        options["enable_gqa"] = True
    if in_torch and {"query_starts", "blocks"} & set(call.inputs):
        return _attention_of_sequences(call, library, options)

    def attend(q, k, v, bias=None, mask=None, slopes=None, **more):
        attn_mask = mask if bias is None else bias
        names = {"query_starts": "cu_seqlens_q", "key_starts": "cu_seqlens_k"}
        names["blocks"] = "block_table"
        given = options | {names.get(name, name): each for name, each in more.items()}
        found = library.scaled_dot_product_attention(
            q, k, v, attn_mask, alibi_slopes=slopes, **given
        )
        return dict(zip(("y", "lse"), found, strict=True))

    return attend


def _attention_of_sequences(call, library, options):
    """By isobit.torch, which has functions of their own for packed sequences and for keys in
    blocks."""
    function = "paged_attention" if "blocks" in call.inputs else "varlen_attention"
    for name in ("slopes", "key_begin"):
        if name in call.inputs:
            raise Unavailable(f"isobit.torch.{function} has no {name}")
    is_packed = "query_starts" in call.inputs

    def attend(q, k, v, query_starts=None, key_starts=None, key_end=None, blocks=None):
        rows = q[0].transpose(0, 1) if is_packed else q
        if blocks is None:
            keys = (each[0].transpose(0, 1) for each in (k, v))
            found = library.varlen_attention(rows, *keys, query_starts, key_starts, **options)
        else:
            keys = (each.transpose(1, 2) for each in (k, v))
            found = library.paged_attention(
                rows, *keys, blocks, key_end, cu_seqlens_q=query_starts, **options
            )
        y, lse = found
        return (
            {"y": y.transpose(0, 1)[None], "lse": lse[None]} if is_packed else {"y": y, "lse": lse}
        )

    return attend


def _softmax(call, library, dtype_named):
    case, in_torch = call.case, library.__name__.endswith("torch")
    function = getattr(library, "log_softmax" if case["log"] == "yes" else "softmax")
    options = {"scale": case["scale"]} | call.cast("dtype", dtype_named)
    if "dtype" in options and not in_torch:
        raise Unavailable("isobit.numpy.softmax has no dtype")
    return lambda x, mask=None: {"y": function(x, -1, mask=mask, **options)}


def pooling(case):
    """Its function, and the arguments of that."""
    sides = ("h", "w")
    adaptive = {case[f"window_{side}"] == 0 for side in sides}
    if len(adaptive) > 1 or (adaptive == {True} and case["reduction"] == "max"):
        raise Unavailable("no function has such windows")
    if adaptive == {True}:
        return "adaptive_avg_pool2d", {"output_size": [case[f"bins_{side}"] for side in sides]}
    options = {
        name: [case[f"{word}_{side}"] for side in sides]
        for name, word in (("kernel_size", "window"), ("stride", "stride"), ("padding", "padding"))
    }
    steps = zip(options["stride"], options["kernel_size"], strict=True)
    options |= {"stride": [s or k for s, k in steps], "ceil_mode": case["ceil_mode"] == "yes"}
    if case["reduction"] == "max":
        return "max_pool2d", options | {"dilation": [case[f"dilation_{side}"] for side in sides]}
    options["count_include_pad"] = case["count_include_pad"] == "yes"
    return "avg_pool2d", options | {"divisor_override": case["divisor"] or None}


def _pool2d(call, library, _dtype_named):
    name, options = pooling(call.case)
    function = getattr(library, name)
    if "index" not in call.outputs:
        return lambda x: {"y": function(x, **options)}
    return lambda x: dict(
        zip(("y", "index"), function(x, **options, return_indices=True), strict=True)
    )


def _interpolate(call, library, _dtype_named):
    case = call.case
    names = {"nearest_exact": "nearest-exact", "linear": "bilinear", "cubic": "bicubic"}
    mode = names.get(case["mode"], case["mode"])
    options = {"mode": mode}
    if mode.startswith("bi"):
        options["align_corners"] = case["align_corners"] == "yes"
    size = [case["out_height"], case["out_width"]]
    sides, scales = [case["height"], case["width"]], [case["scale_h"], case["scale_w"]]
    if not any(scales):
        options["size"] = size
    elif size == [int(side * scale) for side, scale in zip(sides, scales, strict=True)]:
        options["scale_factor"] = scales
    else:
        raise Unavailable("no function has a scale beside another size")
    return lambda x: {"y": library.interpolate(x, **options)}


def _cross_entropy(call, library, _dtype_named):
    op = call.case["op"]
    options = {name: call.case[name] for name in ("ignore_index", "label_smoothing", "z_loss")}
    options["ignore_index"] = int(options["ignore_index"])
    if library.__name__.endswith("torch"):  # whose function rounds to the type of x
        import torch

        operator = getattr(torch.ops.isobit, op)
        names = ("loss", "largest", "sum", "total", "count")
        absent = {"bias": None} if op.startswith("linear") else {}

        def losses(**inputs):
            totals = "total" in call.outputs
            found = operator(**absent | inputs, **options, totals=totals)
            return {n: each for n, each in zip(names, found, strict=True) if n in call.outputs}
    else:
        function = getattr(library, op)
        layer = {"weight": "linear_weight", "bias": "linear_bias", "class_weight": "weight"}
        named = {"x": "input"} | (layer if op.startswith("linear") else {})

        def losses(**inputs):
            inputs = {named.get(name, name): each for name, each in inputs.items()}
            return {"loss": function(**inputs, reduction="none", **options)}

    return losses


def _embedding(call, library, _dtype_named):
    options = {}
    if call.case["pass"] == "bwd":
        padding = int(call.case["padding_idx"])
        options["padding_idx"] = None if padding < 0 else padding
        options["scale_grad_by_freq"] = call.case["scale_grad_by_freq"] == "yes"
    return lambda weight, index: {"y": library.embedding(index, weight, **options)}


def _channel_norm(call, library, _dtype_named):
    """batch_norm moves running statistics in place, of which it gets copies."""
    case = call.case
    if case["op"] == "group_norm":
        more = (int(case["groups"]),)
        return lambda x, weight=None, bias=None: {
            "y": library.group_norm(x, *more, weight, bias, case["eps"])
        }
    options = {"training": case["training"] == "yes", "eps": case["eps"]}
    if "momentum" in case:
        options["momentum"] = case["momentum"]

    def copy(array):
        if array is None:
            return None
        return array.clone() if hasattr(array, "clone") else array.copy()

    def norm(x, weight=None, bias=None, running_mean=None, running_var=None):
        kept = [copy(each) for each in (running_mean, running_var)]
        y = library.batch_norm(x, *kept, weight, bias, **options)
        return {"y": y, "next_mean": kept[0], "next_var": kept[1]}

    return norm


def _optimizer(call, library, _dtype_named):
    """A function from arrays to new arrays, of PyTorch's which change what they are given too."""
    case, op = call.case, call.case["op"]
    betas = ("beta1", "beta2")
    names = {
        "adam": ("lr", *betas, "eps", "weight_decay", "decoupled", "maximize"),
        "lion": ("lr", *betas, "weight_decay", "maximize"),
        "sgd": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    }[op]
    states = {
        "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
        "lion": ("exp_avg",),
        "sgd": ("momentum_buffer",),
    }[op]
    options = {
        name: case[name] == "yes" if case[name] in ("yes", "no") else case[name] for name in names
    }

    def in_numpy(**inputs):
        given = dict(options)
        if op != "sgd":
            given["betas"] = (given.pop("beta1"), given.pop("beta2"))
        if op == "adam":
            given["step"] = int(case["step"])
        found = getattr(library, op)(**inputs, **given, narrow="narrow" in call.outputs)
        return dict(zip(call.outputs, found if isinstance(found, tuple) else (found,), strict=True))

    def in_torch(**inputs):
        import torch

        param, grad = inputs["param"], inputs["grad"]
        there = {name: inputs[name].clone() for name in states if name in inputs}
        first = "new_momentum_buffer" in call.outputs and not there
        if first:
            there["momentum_buffer"] = torch.empty_like(param)
        moved = param.clone()
        masters = []
        if "narrow" in call.outputs:
            masters, moved = [moved], grad.clone()
        lists = [[there[name]] if name in there else [] for name in states]
        given = dict(options)
        if op == "adam":
            step = torch.tensor(float(case["step"]) - 1, dtype=torch.float64)
            torch.ops.isobit.adam_([moved], [grad], *lists, masters, [step], **given)
        else:
            if op == "sgd":
                given["first"] = first
            operator = getattr(torch.ops.isobit, op + "_")
            operator([moved], [grad], *lists, masters, **given)
        found = {f"new_{name}": state for name, state in there.items()}
        found["new_param"] = masters[0] if masters else moved
        if masters:
            found["narrow"] = moved
        return {name: found[name] for name in call.outputs}

    return in_torch if library.__name__.endswith("torch") else in_numpy


def _vector_norm(call, library, _dtype_named):
    orders = {"l2": 2, "l1": 1, "max": float("inf")}
    if not library.__name__.endswith("torch"):
        return lambda x: {"norm": library.vector_norm(x, orders[call.case["order"]])}
    import torch

    code = list(orders).index(call.case["order"])
    return lambda x: {"norm": torch.ops.isobit.vector_norms(list(x.unbind(0)), code)}


def _reduce(call, library, dtype_named):
    kind = call.case["reduction"]
    orders = {"l2": 2, "l1": 1, "largest": float("inf"), "smallest": -float("inf"), "nonzero": 0}
    options = call.cast("dtype", dtype_named)
    if kind in orders:
        return lambda x: {"y": library.norm(x, orders[kind], -1, **options)}
    name = {"max": "amax", "min": "amin"}.get(kind, kind)
    if name in ("var", "std", "amax", "amin") and library.__name__.endswith("torch") and options:
        raise Unavailable(f"isobit.torch.{name} has no dtype")
    if name in ("var", "std"):
        options["correction"] = call.case["correction"]
    return lambda x: {"y": getattr(library, name)(x, -1, **options)}


# What Call.forward is of an operator; of all others it is the function of its name.
FORWARD = {
    "adam": _optimizer,
    "attention": _attention,
    "batch_norm": _channel_norm,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _cross_entropy,
    "embedding": _embedding,
    "group_norm": _channel_norm,
    "interpolate": _interpolate,
    "layernorm": _norm,
    "layernorm_linear": _norm_linear,
    "lion": _optimizer,
    "matmul": _matmul,
    "pool2d": _pool2d,
    "reduce": _reduce,
    "rmsnorm": _norm,
    "rmsnorm_linear": _norm_linear,
    "rope": _rope,
    "rope_tables": _rope_tables,
    "random": _random,
    "dropout": _dropout,
    "pointwise_loss": _pointwise_loss,
    "scan": _scan,
    "sgd": _optimizer,
    "softmax": _softmax,
    "transpose": _transpose,
    "vector_norm": _vector_norm,
}


def forward(call, library, dtype_named):
    """A function of the library from inputs to outputs, both by name."""
    return FORWARD.get(call.case["op"], _of_its_name)(call, library, dtype_named)
