# SPDX-License-Identifier: Apache-2.0
"""Puts Isobit's norms, linear layers, attention, convolutions and embeddings into models that were
written with others, and takes them out again."""

import copyreg
import re
import sys
import weakref
from abc import ABCMeta
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import nn
from torch.nn.utils import parametrize

from isobit.torch import (
    attention_patching,
    causal_patching,
    channel_norm_patching,
    convolution_patching,
    counterparts,
    deferral,
    embedding_patching,
    linear_patching,
    other_patching,
    product_functions,
    rotary_patching,
    shared_functions,
    transformers_attention,
)
from isobit.torch.attention_modules import MultiheadAttention
from isobit.torch.deferral import DeferredLayerNorm, DeferredRecipe, DeferredRMSNorm
from isobit.torch.embedding_modules import Embedding
from isobit.torch.modules import LayerNorm, RMSNorm
from isobit.torch.probing import DEVICES, DTYPES, Unsuited, class_name, probed
from isobit.torch.product_modules import Linear

_SWAPS = {nn.LayerNorm: LayerNorm, nn.RMSNorm: RMSNorm}
_OURS = (
    *(Embedding, LayerNorm, RMSNorm, Linear, MultiheadAttention),
    *convolution_patching.SWAPS.values(),
    *channel_norm_patching.SWAPS.values(),
    *counterparts.MODULES.values(),
)
# Their subclasses keep what is their own.
_EXACTLY = (
    *(*convolution_patching.SWAPS, *channel_norm_patching.SWAPS),
    *(nn.Embedding, *counterparts.MODULES),
)
_DEFERRED = {LayerNorm: DeferredLayerNorm, RMSNorm: DeferredRMSNorm}

_OTHER_NORMS = (
    (nn.modules.batchnorm._BatchNorm, "BatchNorm normalises over the batch"),
    (nn.modules.instancenorm._InstanceNorm, "InstanceNorm normalises a channel over its positions"),
    (nn.GroupNorm, "GroupNorm normalises groups of channels over their positions"),
    ((nn.LocalResponseNorm, nn.CrossMapLRN2d), "a response norm looks at neighbouring channels"),
)


class Undoable:
    """What `with` undoes at its end, unless restore() did."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()


class Patched(type):
    """The type of classes that patch makes, which pickle cannot find under a name."""


class AbstractPatched(Patched, ABCMeta):
    """The same of classes that are abstract, or derived from some."""


@cache
def patched_class(original, recipe):
    """original, computed by the recipe, or by the class of Isobit's whose place it is."""

    def forward(self, *args, **kwargs):
        (input,) = (*args, *kwargs.values())  # whatever original calls it
        return recipe.forward(self, input)

    members = {
        "__doc__": f"{original.__name__}, computed by Isobit.",
        "__module__": __name__,
        "_isobit": (original, recipe),
    }
    name = "Isobit" + original.__name__
    if hasattr(recipe, "members"):
        named = {} if recipe.renames else {"__module__": original.__module__}
        name = name if recipe.renames else original.__name__
        kind = AbstractPatched if isinstance(original, ABCMeta) else Patched
        return kind(name, (original,), members | named | recipe.members(original))
    if isinstance(recipe, type):
        return Patched(name, (recipe, original), members)
    return Patched(name, (original,), members | {"forward": forward})


for _kind_of_class in (Patched, AbstractPatched):
    copyreg.pickle(_kind_of_class, lambda made: (patched_class, made._isobit))


def _exchanged(module, old, new):
    """module's class with `new` in the place of `old`, or nothing if it has gone. PyTorch derives a
    class for each module with parametrizations."""
    actual = type(module)
    if actual is old:
        return new
    if not parametrize.is_parametrized(module) or actual.__bases__ != (old,):
        return None
    return type(actual.__name__, (new,), dict(vars(actual)))


@dataclass(repr=False)
class Report(Undoable):
    """What patch did. replaced: names and classes. skipped: names and reasons. rotary: Python's
    modules whose rotary function was exchanged. linear: the names of the linear layers among those
    replaced, None if they were not asked for; attention, convolutions, embedding, channel_norms,
    others: those of attentions, of convolutions, of embeddings, of norms of channels and of what
    else was asked for, alike. models: the names of transformers' models whose attention is Isobit's
    now. causal: the functions by which state-space models convolve, and Isobit's in their place.
    arithmetic: that of linear layers and of attention. fused: of each norm that was to be fused,
    what has taken its result so far."""

    replaced: dict[str, type] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    rotary: list[str] = field(default_factory=list)
    linear: list[str] | None = None
    attention: list[str] | None = None
    models: list[str] = field(default_factory=list)
    convolutions: list[str] | None = None
    embedding: list[str] | None = None
    channel_norms: list[str] | None = None
    others: list[str] | None = None
    causal: dict[str, str] = field(default_factory=dict)
    arithmetic: str = "canonical"
    _deferred: dict = field(default_factory=dict, init=False)
    _changes: list = field(default_factory=list, init=False)
    _functions: list = field(default_factory=list, init=False)
    _configurations: list = field(default_factory=list, init=False)
    _encoders: list = field(default_factory=list, init=False)

    @property
    def fused(self):
        """{norm: ("a linear layer", ...)}, of the calls with gradients that there were; another
        name is that of a function for which the norm had to be computed."""
        return {
            name: tuple(deferral.TAKEN.get(module, ()))
            for name, reference in self._deferred.items()
            if (module := reference()) is not None
        }

    def restore(self):
        """Gives the modules their classes back, whatever else was patched or restored since."""
        while self._changes:
            reference, original, ours = self._changes.pop()
            module = reference()
            if module is not None and (back := _exchanged(module, ours, original)):
                module.__class__ = back
        shared_functions.restore(self._functions)
        transformers_attention.restore(self._configurations)
        attention_patching.restore(self._encoders)
        _forget_compiled()

    def _counts(self):
        asked = (self.linear, self.attention, self.convolutions, self.embedding)
        asked += (self.channel_norms, self.others)
        yield _counted(len(self.replaced) - sum(len(names or ()) for names in asked), "norm")
        if self.linear is not None:
            yield _counted(len(self.linear), "linear layer")
        if self.attention is not None and (self.attention or not self.models):
            yield _counted(len(self.attention), "attention")
        if self.models:
            yield f"the attention of {_counted(len(self.models), 'model')}"
        if self.convolutions is not None:
            yield _counted(len(self.convolutions), "convolution")
        if self.embedding is not None:
            yield _counted(len(self.embedding), "embedding")
        if self.channel_norms is not None:
            yield _counted(len(self.channel_norms), "norm of channels", "norms of channels")
        if self.others is not None:
            yield _counted(len(self.others), "other module")

    def __repr__(self):
        counted = _in_words(self._counts())
        lines = [f"Isobit computes {counted}"]
        fused = self.fused
        lines += _listed(
            {
                name: made.__name__ + (_taken(fused[name]) if name in fused else "")
                for name, made in self.replaced.items()
            }
        )
        lines += [f"  {name}.{rotary_patching.NAME}: apply_rotary" for name in self.rotary]
        name = transformers_attention.NAMES[self.arithmetic]
        implementation = f"attn_implementation is {name!r}"
        lines += _listed(dict.fromkeys(self.models, implementation))
        lines += [f"  {name}: {ours}" for name, ours in self.causal.items()]
        if self.skipped:
            lines += ["and leaves alone", *_listed(self.skipped)]
        return "\n".join(lines)


def _counted(count, what, several=None):
    return f"{count} {what if count == 1 else several or what + 's'}"


def _in_words(parts):
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _taken(takers):
    """What the report says of a norm that was to be fused."""
    if not takers:
        return ", not called with gradients yet"
    others = ", ".join(each for each in takers if each != deferral.A_LINEAR_LAYER)
    fused = f", fused with {deferral.A_LINEAR_LAYER}" if deferral.A_LINEAR_LAYER in takers else ""
    return fused + (f", computed for {others}" if others else "")


def _listed(entries):
    """A line for all names that differ in the numbers of their layers."""
    alike = {}
    for name, what in entries.items():
        alike.setdefault((re.sub(r"\b\d+\b", "*", name), what), []).append(name)
    for (pattern, what), names in alike.items():
        several = f"{pattern} ({len(names)})"
        yield f"  {several if len(names) > 1 else names[0] or '(the model)'}: {what}"


def patch(
    model,
    *,
    rotary=False,
    linear=False,
    attention=False,
    convolutions=False,
    embedding=False,
    channel_norms=False,
    others=False,
    fuse=False,
    arithmetic="canonical",
) -> Report:
    """Replaces the norms of a model by Isobit's where they are, and says which.

    Modules keep their identity, parameters, hooks and names in state_dict; their class changes, to
    isobit.torch.LayerNorm or RMSNorm or one derived from their own. A module of another class than
    PyTorch's is replaced if its forward, run on a few rows, gives Isobit's values and gradients.

    rotary: also the function by which transformers' models of Llama's family turn queries and keys,
    for every model of the same classes; the cosines and sines stay the model's.

    linear: also torch.nn.Linear, its subclasses that inherit its forward, and transformers' Conv1D,
    which become isobit.torch.Linear or a class derived from their own. Products that are no module,
    such as those inside of attention, stay PyTorch's.

    attention: also torch.nn.MultiheadAttention, and its subclasses that inherit its forward, with
    the products inside; and transformers' models compute attention by isobit.torch, as do all that
    share their configuration object.

    convolutions: also torch.nn.Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, and subclasses
    that inherit their forward, which become isobit.torch's, or a class derived from it and their
    own; and the functions by which transformers' state-space models convolve, for every model of
    the same classes.

    embedding: also torch.nn.Embedding, and its subclasses that inherit its forward, which become
    isobit.torch.Embedding or a class derived from it and their own.
    channel_norms: also torch.nn's BatchNorm, GroupNorm and InstanceNorm, and subclasses that
    inherit their forward, which become isobit.torch's, or a class derived from it and their own.

    others: also torch.nn's activations, softmax, pooling and upsampling of which isobit.torch has
    modules, and subclasses that inherit their forward; and modules whose class is called by the
    name of gelu, if that is what they compute.

    fuse: also the linear layers; and where gradients are recorded, a linear layer normalises what a
    norm would have given it while it multiplies, so that nothing is kept for backward but what was
    normalised. Whatever else takes a norm's result has it computed. The bits are the same; the
    report's `fused` has what took each norm's result in the calls so far.

    arithmetic: that of the linear layers and of attention, of those that are asked for, as
    isobit.torch.linear and scaled_dot_product_attention have it.

    with patch(model): ... restores the classes at its end, report.restore() at any time.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"patch: model must be a torch.nn.Module; it is {type(model).__name__}")
    product_functions.options("patch", None, arithmetic)
    linear = linear or fuse
    if arithmetic != "canonical" and not (linear or attention):
        raise ValueError(
            f"patch: arithmetic is {arithmetic!r}; needs linear=True or attention=True"
        )
    report = Report(
        linear=[] if linear else None,
        attention=[] if attention else None,
        convolutions=[] if convolutions else None,
        embedding=[] if embedding else None,
        channel_norms=[] if channel_norms else None,
        others=[] if others else None,
        arithmetic=arithmetic,
    )
    if attention:  # first of all, since it may refuse by raising
        made = transformers_attention.exchange(model, arithmetic)
        report.models, report.skipped, report._configurations = made
    uncalled = linear_patching.uncalled(model)
    names, multiplied = {}, set()  # the latter: linear layers whose weights our attention takes
    for name, module in model.named_modules(remove_duplicate=False):
        kind = _kind(module, linear, attention, convolutions, embedding, channel_norms, others)
        if attention_patching.is_ours(module):
            multiplied.add(module.out_proj)
        if module in multiplied or not kind or ".parametrizations." in f".{name}":
            continue
        if module in names:
            report.skipped[name] = f"is {names[module]}"
            continue
        names[module] = name
        try:
            if kind == "linear" and module in uncalled:
                raise Unsuited(uncalled[module])
            made = _replacement(module, kind, arithmetic, fuse)
        except Unsuited as reason:
            report.skipped[name] = str(reason)
            continue
        original = parametrize.type_before_parametrizations(module)
        module.__class__ = _exchanged(module, original, made)
        report.replaced[name] = made
        if kind == "attention":
            multiplied.add(module.out_proj)
            report.attention.append(name)
        elif kind == "linear":
            report.linear.append(name)
        elif kind == "convolution":
            report.convolutions.append(name)
        elif kind == "embedding":
            report.embedding.append(name)
        elif kind == "channel norm":
            report.channel_norms.append(name)
        elif kind == "other":
            report.others.append(name)
        elif fuse:
            report._deferred[name] = weakref.ref(module)
        report._changes.append((weakref.ref(module), original, made))
    if attention:
        known = {*names.values()}
        for name, reason in attention_patching.others(model).items():
            if name not in known:
                report.skipped[name] = reason
        report._encoders = attention_patching.keep_padded(model)
    if rotary:
        report.rotary, refused, made = rotary_patching.exchange(model)
        report.skipped |= refused
        report._functions += made
    if convolutions:
        report.causal, refused, made = causal_patching.exchange(model)
        report.skipped |= refused
        report._functions += made
    _forget_compiled()
    _note_fast_paths(model, report)
    return report


def _forget_compiled():
    """Dynamo of PyTorch 2.11 does not see that a module's class has changed, that of 2.13 does."""
    if "torch._dynamo" in sys.modules and torch.__version__ < "2.13":
        torch.compiler.reset()


def _kind(module, linear, attention, convolutions, embedding, channel_norms, others):
    """What patch takes it for: "norm", "linear", "attention", "convolution", "embedding",
    "channel norm", "other" or nothing."""
    if attention_patching.is_attention(module):
        return "attention" if attention else ""
    if linear and linear_patching.is_linear(module):
        return "linear"
    if convolutions and convolution_patching.is_convolution(module):
        return "convolution"
    if embedding and embedding_patching.is_embedding(module):
        return "embedding"
    if channel_norms and channel_norm_patching.is_channel_norm(module):
        return "channel norm"
    if others and (other_patching.is_other(module) or other_patching.called_gelu(module)):
        return "other"
    if _is_norm(module):
        return "norm"
    if linear and linear_patching.called_linear(module):
        return "linear"
    return "convolution" if convolutions and convolution_patching.called_so(module) else ""


def _is_norm(module):
    """By its class or its name; a module made of others only contains norms."""
    called_so = "norm" in class_name(module).lower() or isinstance(module, tuple(_SWAPS))
    return called_so and {child for child, _ in module.named_children()} <= {"parametrizations"}


def _note_fast_paths(model, report):
    for name, module in model.named_modules():
        if not isinstance(module, nn.TransformerEncoderLayer):
            continue
        if attention_patching.is_ours(module.self_attn):
            continue  # it has PyTorch call the layer's modules
        whose = [
            f"{what}s'"
            for what, called in (("norm", "norm"), ("linear layer", "linear"))
            if {f"{name}.{called}{i}".lstrip(".") for i in (1, 2)} & report.replaced.keys()
        ]
        if whose:
            report.skipped[name] = (
                "in evaluation without gradients, PyTorch computes the whole layer without its "
                f"{' and '.join(whose)} forward; torch.backends.mha.set_fastpath_enabled(False) "
                "prevents it"
            )


def _replacement(module, kind, arithmetic, fuse):
    """The class that computes what module computes. arithmetic: of linear layers and attention.
    fuse: with a norm that leaves its rows to them."""
    for kinds, reason in _OTHER_NORMS:
        if kind != "channel norm" and isinstance(module, kinds):
            raise Unsuited(reason)
    if isinstance(module, torch.jit.ScriptModule):
        raise Unsuited("is scripted")
    is_ours = isinstance(module, _OURS) or isinstance(type(module), Patched)
    if is_ours and not (fuse and type(module) in _DEFERRED):
        raise Unsuited("is Isobit's already")
    if "forward" in vars(module):
        raise Unsuited("has a forward of its own, set on the module")
    recipe, weights = None, dict(module.named_parameters())
    if kind == "linear":
        recipe = linear_patching.replacement(module, arithmetic)
        weights |= linear_patching.held(module)
    elif kind == "attention":
        recipe = attention_patching.replacement(module, arithmetic)
    elif kind == "convolution":
        recipe = convolution_patching.replacement(module)
        weights |= linear_patching.held(module)
    elif kind == "embedding":
        recipe = embedding_patching.replacement(module)
    elif kind == "channel norm":
        recipe = channel_norm_patching.replacement(module)
    elif kind == "other":
        recipe = other_patching.replacement(module)
    for name, weight in weights.items():
        _check_weight(name, weight)
    original = parametrize.type_before_parametrizations(module)
    made = _SWAPS.get(original, original if is_ours else None) if recipe is None else recipe
    derived = ("convolution", "embedding", "channel norm", "other")
    if isinstance(made, type) and (kind not in derived or original in _EXACTLY):
        return _DEFERRED.get(made, made) if fuse else made
    if made is None and parametrize.is_parametrized(module):
        raise Unsuited("has parametrizations; they can be registered after patch")
    if type(original) is not type:
        raise Unsuited(f"its class is of the type {type(original).__name__}")
    if made is None:
        made = DeferredRecipe(probed(module)) if fuse else probed(module)
    return patched_class(original, made)


def _check_weight(name, weight):
    if type(weight) not in (nn.Parameter, torch.Tensor):
        raise Unsuited(f"{name} is of the type {type(weight).__name__}")
    if weight.layout != torch.strided:
        raise Unsuited(f"{name} has layout {weight.layout}")
    if weight.dtype not in DTYPES:
        raise Unsuited(f"{name} is of {weight.dtype}")
    if weight.device.type not in DEVICES:
        raise Unsuited(f"{name} is on {weight.device}, where Isobit has no kernels")
