"""What is known of a failing case: the numbers that a diagnosis is tested against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Partial, Replicate, by_axis, holds, take
from tpcheck.protocol.problem import Target
from tpcheck.spec import Spec
from tpcheck.verdict import CaseResult, Mismatch

if TYPE_CHECKING:
    from tpcheck.diagnosis.localise import Place

ORDER = ("output", "loss", "input_grad", "param_grad", "param", "grad_norm", "replica")


@dataclass
class Facts:
    """All that is known of a failing case.

    Args:
        posed: the case with its expected values.
        found: the result that is to be explained.
        again: the same case run once more, with `dumps` kept: rank → `kind/name` → tensor.
        rerun: runs another case of the same check.
        spec: the check's spec, where more of the reference is to be asked.
        place: the module where it starts, where that is known.
        inside: the tensor at that module's border.
        execute: runs the candidate on a case that was posed otherwise.
    """

    posed: Posed
    found: CaseResult
    again: CaseResult
    dumps: dict[int, dict[str, Tensor]]
    rerun: Callable[[Case], CaseResult | None]
    spec: Spec | None = None
    place: Place | None = None
    inside: Local | None = None
    execute: Callable[[Posed], CaseResult] | None = None

    @property
    def case(self) -> Case:
        return self.posed.case

    def target(self, mismatch: Mismatch, d: int = 0) -> Target | None:
        for target in self.posed.problems[d].targets:
            if (target.kind, target.name) == (mismatch.kind, mismatch.tensor):
                return target
        return None


@dataclass
class Local:
    """One failing tensor on the ranks of one TP group: actual and expected slices, float64."""

    target: Target
    case: Case
    ranks: list[int]
    actual: dict[int, Tensor]
    expected: dict[int, Tensor]
    sigma: dict[int, Tensor]

    def fits(self, value: Tensor, rank: int, *, expected: Tensor | None = None) -> bool:
        """Whether `value` is what the reference expects of `rank`, within (doubled) bounds."""
        want = self.expected[rank] if expected is None else expected
        if value.shape != want.shape:
            return False
        slack = 2 * self.target.spread.elementwise_limit(want.numel())
        sigma = self.sigma[rank] if expected is None else self.target.spread.sigma.max()
        scale = want.abs().max() if want.numel() else torch.tensor(0.0)
        return bool(((value - want).abs() <= slack * sigma + 1e-13 * scale).all())

    def wrong(self) -> list[int]:
        return [r for r in self.ranks if not self.fits(self.actual[r], r)]

    def alike(self) -> bool:
        """Whether there are several ranks, and each is to hold the same part."""
        first = self.expected[self.ranks[0]]
        return len(self.ranks) > 1 and all(torch.equal(t, first) for t in self.expected.values())


def pass_of(mismatch: Mismatch) -> int:
    """The microbatch of a tensor's name; 1000 for what comes after the step."""
    suffix = mismatch.tensor.partition("@")[2]
    return 1000 if suffix == "step" else int(suffix or 0)


def gather(facts: Facts, mismatch: Mismatch) -> Local | None:
    """The failing tensor on the ranks that are to have it, of the same data as the rank that saw
    it."""
    d = facts.case.coordinates(mismatch.rank).get("dp", 0)
    target = facts.target(mismatch, d)
    return None if target is None else local_of(facts, target, d)


def local_of(facts: Facts, target: Target, d: int) -> Local | None:
    """A tensor on the ranks that are to have it, of dp coordinate `d`; None where one lacks it, or
    has another shape."""
    case, key = facts.case, f"{target.kind}/{target.name}"
    ranks = [
        r
        for r in range(case.world_size)
        if case.coordinates(r).get("dp", 0) == d and holds(target.entry, case=case, rank=r)
    ]
    if not all(key in facts.dumps.get(r, {}) for r in ranks):
        return None
    entry = {
        axis: Replicate() if isinstance(own, Partial) else own
        for axis, own in by_axis(target.entry).items()
    }
    cut = {r: take(target.value, entry, case=case, rank=r) for r in ranks}
    noise = {r: take(target.spread.sigma, entry, case=case, rank=r) for r in ranks}
    actual = {r: facts.dumps[r][key].double() for r in ranks}
    if any(actual[r].shape != cut[r].shape for r in ranks):
        return None
    return Local(target, case, ranks, actual, cut, noise)


def order_of(mismatch: Mismatch) -> tuple[int, int]:
    """What is computed earlier sorts first."""
    return pass_of(mismatch), ORDER.index(mismatch.kind)


def name_of(local: Local) -> str:
    return f"{local.target.kind} {local.target.name}"
