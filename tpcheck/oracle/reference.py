"""The reference of a case: built, its state, inputs and cotangents drawn from the case's seed.

Letters: d = dp coordinate, m = microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.bounds import integers
from tpcheck.case import Case
from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.oracle.forms import check_form
from tpcheck.oracle.limit import TimeUp, one_process
from tpcheck.oracle.own_buffers import as_built, remember
from tpcheck.protocol.conventions import differentiable
from tpcheck.protocol.problem import Problem
from tpcheck.spec import Spec
from tpcheck.tensors import case_mode, leaves
from tpcheck.tensors import draw as drawing
from tpcheck.tensors.draw import Draw, torch_dtype
from tpcheck.tensors.families import of_family
from tpcheck.tensors.names import computed_buffers, parameters_of, tensors_of
from tpcheck.tensors.strides import format_of, repeat_first_row


def ask(spec: Spec, what: str, call: Callable[..., Any], *given: Any) -> Any:
    """Calls one of the spec's callables; what it raises the spec's author must fix: one line."""
    try:
        with one_process():
            return call(*given)
    except (InvalidArgument, TimeUp):
        raise
    except BaseException as error:  # also one that exits
        let_through(error)
        said = frames.in_a_line(error)
        raise InvalidArgument(f"spec {spec.name!r}: {what} {said}") from error


@dataclass(frozen=True)
class References:
    """What is run in place of the candidate.

    Args:
        exact: the reference, in float64.
        formula: what rounding is studied on, in float64: the spec's `rounding`, or the reference.
        low: the formula in the case's dtype.
        narrow: makes it in float32.
    """

    exact: Any
    formula: Any
    low: Any
    narrow: Callable[[], Any]


def references(spec: Spec, case: Case) -> References:
    """All of a case."""
    exact = build_reference(spec, case)
    formula = exact if spec.rounding is None else _built(spec, case, "rounding")
    lower = partial(_lower, spec, case, (exact, formula))
    low = formula if case.dtype == "float64" else lower(torch_dtype(case))
    return References(exact, formula, low, partial(lower, torch.float32))


def _lower(spec: Spec, case: Case, others: Sequence[Any], dtype: torch.dtype) -> Any:
    """The formula in a lower dtype, built anew: a module that holds process groups can't be copied.
    Each run copies the state in.

    Args:
        others: those in float64, which it may share nothing with.
    """
    what = "reference" if spec.rounding is None else "rounding"
    module = _built(spec, case, what)
    if not isinstance(module, nn.Module):
        return module
    theirs = {id(p) for one in others if isinstance(one, nn.Module) for p in one.parameters()}
    for name, parameter in module.named_parameters():
        if id(parameter) in theirs and parameter.is_floating_point():
            raise InvalidArgument(
                f"spec {spec.name!r}: {what}(case) returned the parameter {name!r} twice; each "
                "call must make a new module, since one stays in float64 and one is cast"
            )
    return _in(dtype, module)


def build_reference(spec: Spec, case: Case) -> Any:
    """The reference of this case, a module in float64 (a function is returned as it is)."""
    return _built(spec, case, "reference")


def _built(spec: Spec, case: Case, what: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        # not `torch.manual_seed`: it formats a stack for each lazy device, a fifth of a small case
        torch.default_generator.manual_seed(case.seed)
        module = ask(spec, what, getattr(spec, what), case)
    if module is None:  # a return that was forgotten, mostly
        raise InvalidArgument(
            f"spec {spec.name!r}: {what}(case) returned None; return a module, or a function of "
            "the inputs"
        )
    if not isinstance(module, nn.Module):
        return module
    for name, tensor in tensors_of(module).items():  # before `to`, which drops imaginary parts
        check_form(spec, "parameter or buffer", name, tensor)
    case_mode.enter(case, module)
    return _in(torch.float64, module)


def _in(dtype: torch.dtype, module: nn.Module) -> nn.Module:
    module = module.to(dtype)
    remember(module)
    return module


def draw_state(spec: Spec, case: Case, module: Any) -> dict[str, Tensor]:
    """Every parameter and buffer, full, away from its default, in the case's dtype; tied ones
    once. Buffers that no checkpoint holds are as the module has computed them."""
    if not isinstance(module, nn.Module):
        return {}
    trained = parameters_of(module)
    computed = computed_buffers(module)
    drawn: dict[int, Tensor] = {}
    state = {}
    for name, tensor in tensors_of(module).items():
        if id(tensor) not in drawn:
            own = name in computed and not case.integers  # which no computed number need be
            drawn[id(tensor)] = (
                _in_dtype_of(case, tensor.detach().clone())
                if own
                else _draw_state_of(spec, case, name, tensor, buffer=name not in trained)
            )
        state[name] = drawn[id(tensor)]
    return state


def _draw_state_of(spec: Spec, case: Case, name: str, tensor: Tensor, *, buffer: bool) -> Tensor:
    """The spec's own draw, where it has one; the harness's otherwise."""
    draw = Draw(case, "state")
    given = (name, tuple(tensor.shape), draw)
    drawn = ask(spec, "init", spec.init, *given) if spec.init else None
    if drawn is not None and (not isinstance(drawn, Tensor) or drawn.shape != tensor.shape):
        is_one = isinstance(drawn, Tensor)
        has = f"shape {[*drawn.shape]}" if is_one else f"a {type(drawn).__name__}"
        raise InvalidArgument(
            f"spec {spec.name!r}: init({name!r}, …) returned {has}; return a tensor of shape "
            f"{[*tensor.shape]}, or None for the harness's own draw"
        )
    if case.integers and tensor.is_floating_point():
        drawn = integers.integers(draw, name, tensor)
    if drawn is None:
        drawn = drawing.state(draw, name, tensor, buffer=buffer)
    return _in_dtype_of(case, drawn)


def _in_dtype_of(case: Case, tensor: Tensor) -> Tensor:
    return tensor.to(torch_dtype(case)) if tensor.is_floating_point() else tensor


def draw_inputs(spec: Spec, case: Case, d: int, m: int) -> dict[str, Tensor]:
    """The full inputs of one microbatch, floats in the case's dtype."""
    draw = Draw(case, "input", d, m)
    given = ask(spec, "inputs", spec.inputs, case, draw)
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"spec {spec.name!r}: inputs(case, draw) returned a {type(given).__name__}; return a "
            "dict of name → tensor"
        )
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise InvalidArgument(f"inputs()[{name!r}] is a {type(tensor).__name__}, not a tensor")
        check_form(spec, "input", name, tensor)
    drawn = {
        name: _in_dtype_of(case, tensor)
        if name in spec.constants
        else _as_drawn(case, draw, name, tensor)
        for name, tensor in given.items()
    }
    return leaves.aliased(case, drawn)


def _as_drawn(case: Case, draw: Draw, name: str, tensor: Tensor) -> Tensor:
    """An input that the spec gave, of the case's size and dtype."""
    if not tensor.is_floating_point():
        return tensor
    if case.integers:
        tensor = integers.integers(draw, name, tensor)
    tensor = of_family(case.family, tensor, torch_dtype(case))
    return _in_format(case, name, tensor * 2.0**case.magnitude)


def draw_cotangents(
    case: Case, problem: Problem, m: int, outputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The full cotangents of one microbatch, shaped as the reference's `outputs` are."""
    draw = Draw(case, "cotangent", problem.d, m)
    cotangents = {}
    for name in leaves.asked(case, differentiable(outputs)):
        full = drawing.cotangent(draw, name, outputs[name])
        full = torch.ones_like(full) if problem.ones else full
        full = integers.integers(draw, name, full) if case.integers else full
        cotangents[name] = _in_format(case, name, full)
    return cotangents


def _in_format(case: Case, name: str, tensor: Tensor) -> Tensor:
    """In the case's dtype, and with equal rows where it is to be expanded."""
    tensor = repeat_first_row(tensor) if format_of(case, name) == "expanded" else tensor
    return tensor.to(torch_dtype(case))


def load(module: Any, params: Mapping[str, Tensor]) -> dict[str, nn.Parameter]:
    """Copies the drawn state into a module; returns its parameters by name, tied ones under each
    of theirs."""
    if not isinstance(module, nn.Module):
        return {}
    as_built(module)
    with torch.no_grad():
        for name, tensor in tensors_of(module).items():
            if name in params:
                tensor.copy_(params[name])
            tensor.grad = None
    return parameters_of(module)
