"""Hypotheses about a parameter of several names: an embedding that is the output head, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.causes.tied import TiedSplit, TiedSummedOverAxis, TiedUnsummed, UsesOfTied
from tpcheck.diagnosis.facts import Facts, Local, local_of
from tpcheck.diagnosis.hypotheses.reference import answers
from tpcheck.oracle.expected import evaluate
from tpcheck.placement import Replicate, by_axis
from tpcheck.spec import Spec
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: Names of one parameter whose uses are told apart: all choices of factors are tried.
MOST_NAMES = 3


def stages(facts: Facts, local: Local) -> Diagnosis | None:
    """On ranks of different stages: what they hold adds up to the reference, or to R times it."""
    same = _same_tensor(facts, local)
    if same is None:
        return None
    rank, name = local.ranks[0], local.target.name
    total = local.actual[rank] + sum(other.actual[other.ranks[0]] for other in same)
    names = (name, *(other.target.name for other in same))
    if local.fits(total, rank):
        return Diagnosis(Code.PARTIAL_NOT_REDUCED, TiedUnsummed(names))
    for axis, size in facts.case.mesh.items():
        alike = by_axis(local.target.entry).get(axis, Replicate()) == Replicate()
        if size > 1 and alike and local.fits(total / size, rank):
            return Diagnosis(Code.WRONG_GROUP, TiedSummedOverAxis(names, axis))
    return None


def _same_tensor(facts: Facts, local: Local) -> list[Local] | None:
    """The same parameter under its other names, on other ranks; None where it has none, or where
    one of them is on the same rank or is not known."""
    params, name = facts.posed.problems[0].params, local.target.name
    if local.kind not in (Kind.PARAM_GRAD, Kind.PARAM) or name not in params:
        return None
    rank = local.ranks[0]
    d = facts.case.dp_coordinate(rank)
    targets = {t.name: t for t in facts.posed.problems[d].targets if t.kind == local.kind}
    others = [n for n, tensor in params.items() if tensor is params[name] and n != name]
    held = [local_of(facts, targets[n], d) for n in others if n in targets]
    known = [other for other in held if other is not None and rank not in other.ranks]
    return known if known and len(known) == len(held) else None


def uses(facts: Facts, local: Local) -> Diagnosis | None:
    """The gradient has not every use of the parameter once: the reference is asked for the
    gradient of each, with parameters of their own in the place of the one."""
    if local.kind is not Kind.PARAM_GRAD or not answers(facts, local):
        return None
    names = _names(facts, local.target.name)
    if not 2 <= len(names) <= MOST_NAMES:
        return None
    of_use = _gradients(facts, names)
    held = [_held(facts, local, name) for name in names]
    if of_use is None or any(one is None for one in held):
        return None
    known = [one for one in held if one is not None]
    own = [_is_sum(one, of_use, _only(i, names)) for i, one in enumerate(known)]
    if all(own):
        return Diagnosis(Code.TIED_WEIGHTS_SPLIT, TiedSplit(tuple(names)))
    degree = float(local.case.tp)
    for factors in product((0.0, 1.0, 2.0, degree, 1 / degree), repeat=len(names)):
        alike = len(set(factors)) == 1  # a factor of all: another hypothesis
        if not alike and _is_sum(local, of_use, factors):
            times = dict(zip(names, factors, strict=True))
            return Diagnosis(_code(factors), UsesOfTied(local.subject, times))
    return None


def _code(factors: tuple[float, ...]) -> Code:
    if 0.0 in factors:
        return Code.GRADIENT_DROPPED
    return Code.SUMMED_TWICE if max(factors) > 1 else Code.AVERAGED_NOT_SUMMED


def _only(index: int, names: list[str]) -> tuple[float, ...]:
    return tuple(float(i == index) for i in range(len(names)))


def _names(facts: Facts, name: str) -> list[str]:
    """All names of a parameter in the reference."""
    params = facts.posed.problems[0].params
    return [n for n, tensor in params.items() if name in params and tensor is params[name]]


def _held(facts: Facts, local: Local, name: str) -> Local | None:
    """What the ranks have of it under one of its names."""
    targets = facts.posed.problems[0].targets
    target = next((t for t in targets if (t.kind, t.name) == (local.kind, name)), None)
    return None if target is None else local_of(facts, target, 0)


def _is_sum(local: Local, of_use: list[Tensor], factors: tuple[float, ...]) -> bool:
    """Whether every rank has the uses' gradients, each so many times."""
    full = sum((f * g for f, g in zip(factors, of_use, strict=True)), torch.zeros_like(of_use[0]))
    return all(local.holds(full, rank) for rank in local.ranks)


def _gradients(facts: Facts, names: list[str]) -> list[Tensor] | None:
    """The reference's gradient of each use; None where they are not what makes up the whole."""
    assert facts.spec is not None
    apart = replace(facts.spec, reference=_Untied(facts.spec), rounding=None)
    values = evaluate(apart, facts.case, facts.posed.problems[0])[0]
    found = [values.get((Kind.PARAM_GRAD, name)) for name in names]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


class _Untied:
    """The reference, whose parameters have one name each."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def __call__(self, case: Case) -> Any:
        assert self.spec.reference is not None, "a check's"
        module: Any = self.spec.reference(case)
        if not isinstance(module, nn.Module):
            return module
        seen: set[int] = set()
        named: Mapping[str, nn.Parameter] = dict(module.named_parameters(remove_duplicate=False))
        for name, parameter in named.items():
            if id(parameter) in seen:
                owner, _, variable = name.rpartition(".")
                own = nn.Parameter(parameter.detach().clone())
                setattr(module.get_submodule(owner), variable, own)
            seen.add(id(parameter))
        return module
