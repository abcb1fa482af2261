# SPDX-License-Identifier: Apache-2.0
"""Optimisers whose weights have the same bits on every machine: torch.optim's, with their arguments
and their state_dicts, and Lion. A step is one call for all parameters of a group on a device."""

import torch
from torch.autograd.graph import increment_version
from torch.library import register_fake
from torch.optim import SGD as TorchSGD
from torch.optim import Adam as TorchAdam
from torch.optim import AdamW as TorchAdamW
from torch.optim import Optimizer

from isobit.torch.records import NARROW

__all__ = ["SGD", "Adam", "AdamW", "Lion"]

for _name in ("adam_", "sgd_", "lion_"):
    register_fake(f"isobit::{_name}", lambda *_arguments, **_more: None)

MASTER = "master_param"  # a parameter's own value in float32, of which it is the rounding


class _Parameters:
    """What one call is about: parameters of a group on one device, all with masters or none."""

    def __init__(self):
        self.params, self.grads, self.states, self.masters = [], [], [], []
        self.likes = []  # of each what new states are like

    def of(self, name):
        return [_local(state[name]) for state in self.states]


class Stepping(Optimizer):
    """What our optimisers add to PyTorch's."""

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("master_weights", self.defaults.get("master_weights", False))

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        try:
            self._check_group(self.param_groups[-1])
        except Exception:
            self.param_groups.pop()
            raise

    def _keep_masters(self, master_weights):
        self.defaults["master_weights"] = master_weights
        for group in self.param_groups:
            group.setdefault("master_weights", master_weights)
        # Then a GradScaler itself divides by its scale and leaves steps out, before ours.
        self._step_supports_amp_scaling = False

    def _check_group(self, group):
        name = type(self).__name__
        for option in ("capturable", "differentiable"):
            if group.get(option):
                raise NotImplementedError(
                    f"isobit.torch.optim.{name} has no {option}=True; torch.optim has"
                )
        for p in group["params"]:
            if p.is_complex():
                raise NotImplementedError(
                    f"isobit.torch.optim.{name} has no complex parameters; torch.optim has"
                )

    def load_state_dict(self, state_dict):
        """PyTorch's, which would round what belongs to masters to the type of the parameter."""
        super().load_state_dict(state_dict)
        saved_groups, saved_states = state_dict["param_groups"], state_dict["state"]
        for group, saved_group in zip(self.param_groups, saved_groups, strict=True):
            for p, saved_id in zip(group["params"], saved_group["params"], strict=True):
                if p not in self.state:
                    continue
                state, saved = self.state[p], saved_states.get(saved_id, {})
                if torch.is_tensor(state.get("step")):  # fused ones of PyTorch keep it elsewhere
                    state["step"] = state["step"].cpu()
                if MASTER not in saved:
                    continue
                for name, value in saved.items():
                    if name != "step" and torch.is_tensor(value):
                        state[name] = value.to(device=p.device, dtype=torch.float32)

    def _calls(self, group):
        """The parameters that have a gradient, by device and by whether they have masters."""
        self._check_group(group)
        found = {}
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if grad.layout != torch.strided:
                raise NotImplementedError(
                    f"isobit.torch.optim.{type(self).__name__} has no sparse gradients"
                )
            state = self.state[p]
            keeps = group["master_weights"] and p.dtype in NARROW
            if keeps and MASTER not in state:
                for name, value in state.items():
                    if name != "step" and torch.is_tensor(value):
                        state[name] = value.float()
                state[MASTER] = p.detach().to(torch.float32, memory_format=torch.preserve_format)
            master = state[MASTER] if keeps else None
            self._start(group, state, p if master is None else master)
            call = found.setdefault((p.device, keeps), _Parameters())
            call.params.append(_local(p))
            call.grads.append(_local(grad))
            call.likes.append(p if master is None else master)
            call.states.append(state)
            if keeps:
                call.masters.append(_local(master))
        return found.values()

    def _start(self, group, state, like):
        """Fills in what a state lacks."""
        raise NotImplementedError

    def _move(self, group, call):
        """One call of an operator."""
        raise NotImplementedError

    @torch._disable_dynamo
    @torch.no_grad()
    def step(self, closure=None):
        """One step of every parameter that has a gradient; closure computes the loss anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for call in self._calls(group):
                self._move(group, call)
                increment_version(call.params)
        return loss


def _local(tensor):
    """What this rank has of a DTensor; a step of elements needs no other."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _zeros(state, name, like):
    if name not in state:
        state[name] = torch.zeros_like(like, memory_format=torch.preserve_format)


class Adam(Stepping, TorchAdam):
    """torch.optim.Adam by an operator of Isobit's. With master_weights, 16-bit parameters have
    states and a value of their own in float32, which moves, and which they are the rounding of.

    `foreach` and `fused` are taken and change nothing: a step is one pass over all parameters of a
    group.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
        master_weights=False,
    ):
        TorchAdam.__init__(
            self,
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=decoupled_weight_decay,
        )
        self._keep_masters(master_weights)

    def _start(self, group, state, like):
        if "step" not in state:
            kind = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
            state["step"] = torch.zeros((), dtype=kind, device="cpu")
        _zeros(state, "exp_avg", like)
        _zeros(state, "exp_avg_sq", like)
        if group["amsgrad"]:
            _zeros(state, "max_exp_avg_sq", like)

    def _move(self, group, call):
        beta1, beta2 = group["betas"]
        torch.ops.isobit.adam_(
            call.params,
            call.grads,
            call.of("exp_avg"),
            call.of("exp_avg_sq"),
            call.of("max_exp_avg_sq") if group["amsgrad"] else [],
            call.masters,
            call.of("step"),
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["eps"]),
            float(group["weight_decay"]),
            group["decoupled_weight_decay"],
            group["maximize"],
        )


class AdamW(Adam, TorchAdamW):
    """torch.optim.AdamW by an operator of Isobit's, as isobit.torch.optim.Adam is."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
        master_weights=False,
    ):
        Adam.__init__(
            self,
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
            master_weights=master_weights,
        )


class SGD(Stepping, TorchSGD):
    """torch.optim.SGD by an operator of Isobit's, as isobit.torch.optim.Adam is."""

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
        master_weights=False,
    ):
        TorchSGD.__init__(
            self,
            params,
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
            foreach=foreach,
            differentiable=differentiable,
            fused=fused,
        )
        self._keep_masters(master_weights)

    def _start(self, group, state, like):
        pass  # the first step makes the buffer

    def _move(self, group, call):
        if group["momentum"] == 0:
            self._call(group, call, [], False)
            return
        started = [state.get("momentum_buffer") is not None for state in call.states]
        for first in (False, True):
            some = _Parameters()
            for i, is_started in enumerate(started):
                if is_started == first:
                    continue
                state, like = call.states[i], call.likes[i]
                if first:
                    state["momentum_buffer"] = torch.empty_like(
                        like, memory_format=torch.preserve_format, requires_grad=False
                    )
                some.params.append(call.params[i])
                some.grads.append(call.grads[i])
                some.states.append(state)
                some.masters.extend(call.masters[i : i + 1])
            if some.params:
                self._call(group, some, some.of("momentum_buffer"), first)

    @staticmethod
    def _call(group, call, buffers, first):
        torch.ops.isobit.sgd_(
            call.params,
            call.grads,
            buffers,
            call.masters,
            float(group["lr"]),
            float(group["momentum"]),
            float(group["dampening"]),
            float(group["weight_decay"]),
            group["nesterov"],
            group["maximize"],
            first,
        )


class Lion(Stepping):
    """Lion (Chen et al., 2023): the parameter moves by lr against the sign of
    beta1 exp_avg + (1 - beta1) grad, and then exp_avg becomes beta2 exp_avg + (1 - beta2) grad.
    Weight decay is AdamW's. foreach and master_weights as in isobit.torch.optim.Adam."""

    def __init__(
        self,
        params,
        lr=1e-4,
        betas=(0.9, 0.99),
        weight_decay=0.0,
        *,
        maximize=False,
        foreach=None,
        master_weights=False,
    ):
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)
        self._keep_masters(master_weights)

    def _start(self, group, state, like):
        _zeros(state, "exp_avg", like)

    def _move(self, group, call):
        beta1, beta2 = group["betas"]
        torch.ops.isobit.lion_(
            call.params,
            call.grads,
            call.of("exp_avg"),
            call.masters,
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["weight_decay"]),
            group["maximize"],
        )
