"""The plan of a check: audited on the reference, before ranks hold their candidate to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.figures.plan import Finding
from tpcheck.oracle.reference import ask, build_reference
from tpcheck.plan.audit import findings_of
from tpcheck.plan.followed import follow
from tpcheck.plan.match import Tree
from tpcheck.plan.parallelized import Promised, promised
from tpcheck.plan.plan import as_plan
from tpcheck.spec import Spec


@dataclass(frozen=True)
class Planned:
    """What a plan comes to in one case: findings without ranks, and what ranks must hold."""

    findings: tuple[Finding, ...]
    promised: Promised


def planned(spec: Spec, plan: Any, case: Case) -> Planned | None:
    """Audits `plan` (or what `plan(case)` gives) on the spec's reference at the case's degree.

    None at degree 1, where a plan shards nothing.

    Raises:
        InvalidArgument: the reference is a function, which has no parameters.
    """
    if case.tp == 1:
        return None
    entries = as_plan(ask(spec, "plan", plan, case) if callable(plan) else plan)
    module = build_reference(spec, case)
    if not isinstance(module, nn.Module):
        raise InvalidArgument(
            f"spec {spec.name!r}: plan= needs a reference that is an nn.Module, and this one is a "
            f"{type(module).__name__}"
        )
    promise = follow(Tree(module), entries, case.tp)
    return Planned(tuple(findings_of(promise)), promised(promise))
