"""What is known of a failing case: the numbers that a diagnosis is tested against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.causes.where import Subject
from tpcheck.diagnosis.own_norm import OwnGradients
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import ReplicasDiffer
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import holds, summed, take
from tpcheck.protocol.problem import Problem, Target
from tpcheck.spec import Spec
from tpcheck.tensors.names import InPass, Key, Pass
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind

Dumps = Mapping[int, Mapping[Key, Tensor]]  # rank → every tensor that it held


@dataclass
class Facts:
    """All that is known of a failing case.

    Args:
        posed: the case with its expected values.
        result: what is to be explained.
        again: the same case run once more, with `dumps` kept.
        rerun: runs another case of the same check; None where it can't be.
        spec: the check's spec, where more of the reference is to be asked.
        inside: the tensor at the boundary of the module where it starts, where that is known, and
            then the one before it, where that is a sum that is still to be taken.
        execute: runs the candidate on a case that was posed otherwise, or in another way
            (`Runner.execute`).
        keep: does so, and keeps every rank's tensors.
        fresh: does so on ranks on which nothing has run, where it may keep something between calls,
            as a kernel may.
        resumes: whether ranks went on with training that others had saved.
        alone: what the case came to on one rank of its tp axis, where that was asked.
        plain: whether that run was as the first: not one whose boundaries were watched, which may
            round otherwise.
        asked: what was answered, of questions that several tensors or hypotheses share.
    """

    posed: Posed
    result: CaseResult
    again: CaseResult
    dumps: Dumps
    rerun: Callable[[Case], CaseResult | None]
    spec: Spec | None = None
    inside: Sequence[Local] = ()
    execute: Callable[..., CaseResult] | None = None
    keep: Callable[[Posed], tuple[CaseResult, Dumps]] | None = None
    fresh: Callable[[Posed], CaseResult] | None = None
    resumes: bool = False
    alone: CaseResult | None = None
    plain: bool = True
    asked: dict[Any, Any] = field(default_factory=dict, init=False)  # `replace` begins anew

    @property
    def case(self) -> Case:
        return self.posed.case

    def target(self, mismatch: Mismatch) -> Target | None:
        """What is expected of the tensor, with the data of the rank that saw it."""
        problem = self.posed.problems[self.data_of(mismatch)]
        key = (mismatch.kind, mismatch.tensor)
        return next((t for t in problem.targets if (t.kind, t.name) == key), None)

    def as_placed(self, target: Target) -> Target:
        """What is expected of a tensor, placed as the ranks had it."""
        placed = self.again.placed.get((target.kind, target.name))
        return target if placed is None else replace(target, entry=placed)

    def gradients(self, ranks: list[int], step: int, order: float) -> OwnGradients:
        """Those of a step, as the norm of them counts those that ranks of one dp coordinate
        have."""
        problem = self.posed.problems[self.case.dp_coordinate(ranks[0])]
        shared = self.posed.shared
        return OwnGradients(
            self.case, problem, self.dumps, ranks, step, order, shared, self.as_placed
        )

    def problem_of(self, local: Local) -> Problem:
        """What the ranks that hold the tensor were given."""
        return self.posed.problems[self.case.dp_coordinate(local.ranks[0])]

    def right_over_dp(self, local: Local) -> Mismatch | None:
        """Of what a step leaves, which is the same whatever data a rank has: the evidence that
        ranks with other data hold another value of the same part, where theirs is right."""
        own = set(local.ranks)
        if local.kind.is_reduced or not self.seen_wrong(local) <= own:
            return None
        for m in self.result.mismatches:
            of = m.detail if isinstance(m.detail, ReplicasDiffer) else None
            if of and Key(of.of, m.tensor) == local.key and not own.issuperset(of.ranks):
                return m
        return None

    def seen_wrong(self, local: Local) -> set[int]:
        """The ranks, of any data, that saw the tensor outside of its bound; `Local.wrong` asks
        for twice that."""
        return {m.rank for m in self.result.mismatches if Key(m.kind, m.tensor) == local.key}

    def data_of(self, mismatch: Mismatch) -> int:
        """The dp coordinate of the rank that saw it."""
        return self.case.dp_coordinate(mismatch.rank)


@dataclass
class Local:
    """One failing tensor on the ranks of one TP group: actual and expected slices, float64.

    Args:
        inside: what it is, for a tensor at a boundary of a module inside.
        cut: how that is laid out, as its shapes say: full tensor and rank → the rank's part.
        around: of what a module inside returns, what the module around that returns.
    """

    target: Target
    case: Case
    ranks: list[int]
    actual: dict[int, Tensor]
    expected: dict[int, Tensor]
    sigma: dict[int, Tensor]
    inside: Subject | None = None
    cut: Callable[[Tensor, int], Tensor] | None = None
    around: Local | None = None

    @property
    def kind(self) -> Kind:
        return self.target.kind

    @property
    def key(self) -> Key:
        return Key(self.target.kind, self.target.name)

    @property
    def counts(self) -> bool:
        """Whether it is a number that an optimizer keeps, as its count of steps or the scale of a
        loss: a multiple of it by chance, of what no collective makes."""
        return self.kind is Kind.OPTIMIZER_STATE and not self.target.value.dim()

    @property
    def at(self) -> Pass:
        """The pass in which it is wrong."""
        return InPass.parse(self.target.name).at

    @property
    def subject(self) -> Subject:
        """What a cause is said to be about."""
        return self.inside or Subject(self.kind, self.target.name)

    def fits(self, value: Tensor, rank: int, *, expected: Tensor | None = None) -> bool:
        """Whether `value` is what the reference expects of `rank`, within (doubled) bounds."""
        want = self.expected[rank] if expected is None else expected
        if value.shape != want.shape:
            return False
        value, want = value.double(), want.double()  # of bools there is no difference
        own = self.sigma[rank]
        slack = self._limit(want.numel()) * own if expected is None else self.slack(want.numel())
        near = (value - want).abs() <= slack + 1e-13 * largest(want.abs())
        same = (value == want) | (value.isnan() & want.isnan())
        if (right := self.expected[rank]).shape == want.shape:  # what made it so says nothing else
            same &= want.isfinite() | ~right.isfinite()
        near |= same
        if own.shape == want.shape:
            near |= ~own.isfinite()  # nothing is expected there
        return bool(near.all())

    def slack(self, numel: int) -> float:
        """How far any of so many elements may be off another value than the reference's."""
        return self._limit(numel) * largest(self.target.spread.sigma)

    def _limit(self, numel: int) -> float:
        """In σ: doubled bounds."""
        return 2 * self.target.spread.elementwise_limit(numel)

    def wrong(self) -> list[int]:
        """The ranks that do not hold what the reference expects of them."""
        return [r for r in self.ranks if not self.fits(self.actual[r], r)]

    def alike(self) -> bool:
        """Whether there are several ranks, and each is to hold the same part."""
        first = self.expected[self.ranks[0]]
        return len(self.ranks) > 1 and all(torch.equal(t, first) for t in self.expected.values())

    def part_of(self, full: Tensor, rank: int) -> Tensor:
        """The slice of `full` that the layout gives to `rank`."""
        if self.cut is not None and full.shape == self.target.value.shape:
            return self.cut(full, rank)
        return take(full, self.target.entry, case=self.case, rank=rank)

    def holds(self, full: Tensor, rank: int) -> bool:
        """Whether `rank` has what it would have if `full` were the reference's value."""
        return self.fits(self.actual[rank], rank, expected=self.part_of(full, rank))

    def is_that(self, full: Tensor) -> bool:
        """Whether every wrong rank has what it would have if `full` were the reference's value, and
        that is another one there: of one that is about the same anything small would fit."""
        wrong = self.wrong()
        other = not any(self.fits(self.part_of(full, rank), rank) for rank in wrong)
        return other and all(self.holds(full, rank) for rank in wrong)


def largest(numbers: Tensor) -> float:
    """Of those that are finite; 0 where none is."""
    finite = numbers[numbers.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def of_another(facts: Facts, case: Case, spec: Spec | None = None) -> Facts | None:
    """What another case comes to, with every rank's tensors; None where it can't be.

    Args:
        spec: in the place of the check's own.
    """
    spec = spec or facts.spec
    if spec is None or facts.keep is None:
        return None
    try:
        posed = pose(spec, case, None)
    except InvalidArgument:
        return None
    again, dumps = facts.keep(posed)
    return replace(facts, posed=posed, result=again, again=again, dumps=dumps)


def gather(facts: Facts, mismatch: Mismatch) -> Local | None:
    """The failing tensor on the ranks that are to have it, of the same data as the rank that saw
    it."""
    target = facts.target(mismatch)
    return None if target is None else local_of(facts, target, facts.data_of(mismatch))


def local_of(facts: Facts, target: Target, d: int) -> Local | None:
    """A tensor on the ranks that are to have it, of dp coordinate `d`; None where one lacks it, or
    has another shape."""
    case, key = facts.case, Key(target.kind, target.name)
    ranks = [
        r
        for r in range(case.world_size)
        if case.dp_coordinate(r) == d and holds(target.entry, case=case, rank=r)
    ]
    if not all(key in facts.dumps.get(r, {}) for r in ranks):
        return None
    if target.kind is Kind.GRAD_NORM and facts.spec is not None and facts.spec.norm is not None:
        step = InPass.parse(target.name).at.step
        target = facts.gradients(ranks, step, facts.spec.norm.order).as_judged(target)
    target = facts.as_placed(target)
    entry = summed(target.entry)
    expected = {r: take(target.value, entry, case=case, rank=r) for r in ranks}
    sigma = {r: take(target.spread.sigma, entry, case=case, rank=r) for r in ranks}
    actual = {r: facts.dumps[r][key].double() for r in ranks}
    if any(actual[r].shape != expected[r].shape for r in ranks):
        return None
    return Local(target, case, ranks, actual, expected, sigma)


def values(result: CaseResult) -> list[Mismatch]:
    """What was computed wrongly, in the order of computation."""
    return sorted((m for m in result.mismatches if m.kind.is_value), key=lambda m: m.computed)


def subject_of(mismatch: Mismatch) -> Subject:
    return Subject(mismatch.kind, mismatch.tensor)


def on_all_data(facts: Facts, local: Local) -> list[Local]:
    """The tensor on the ranks of each dp coordinate where these share gradients, the given one
    first: what is said of one may not be so on the others. Those that lack it are left out."""
    own, found = facts.case.dp_coordinate(local.ranks[0]), [local]
    for d, problem in enumerate(facts.posed.problems if facts.posed.shared else ()):
        same = (t for t in problem.targets if Key(t.kind, t.name) == local.key)
        other = next((local_of(facts, t, d) for t in same), None) if d != own else None
        found += [other] if other is not None else []
    return found


def wrong_on_all_data(facts: Facts, local: Local) -> list[tuple[Local, int]]:
    """The ranks on which it is wrong, of all of these."""
    return [(one, rank) for one in on_all_data(facts, local) for rank in one.wrong()]
