"""Cases as a runner poses them: the next one while the ranks work, and none twice in a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tpcheck.case import Case
from tpcheck.errors import let_through
from tpcheck.oracle.effort import CONFIRM, Effort
from tpcheck.oracle.pose import Posed, pose
from tpcheck.process.aspects import Left
from tpcheck.spec import Spec
from tpcheck.tensors.names import Pass


@dataclass
class _Kept:
    """A case that was posed, or why it can't be, and what that has changed of the process."""

    case: Case
    posed: Posed | BaseException
    left: list[Left] = field(default_factory=list)


class Posing:
    """Keeps the case that was asked for last, which may run once more, and the one after it.

    Args:
        pose: poses a case.
        restore: puts back what posing has changed of the process; returns what.
    """

    def __init__(self, pose: Callable[[Case], Posed], restore: Callable[[], list[Left]]) -> None:
        self._pose, self._restore = pose, restore
        self._last: _Kept | None = None
        self._next: _Kept | None = None
        self._close: Posed | None = None  # the last one that was looked at closely

    def prepare(self, case: Case) -> None:
        """Poses a case before its turn. What goes wrong is raised when that comes."""
        if self._next is None or self._next.case != case:
            self._next = None  # two cases are kept, and not three
            self._next = self._new(case)

    def take(self, case: Case) -> tuple[Posed, list[Left]]:
        """The case, posed now if it was not before, and what that has changed of the process.

        Raises:
            BaseException: what posing it raised.
        """
        if self._next is not None and self._next.case == case:
            self._last, self._next = self._next, None
        elif self._last is None or self._last.case != case:
            self._last = None
            self._last = self._new(case)
        posed, left, self._last.left = self._last.posed, self._last.left, []
        if isinstance(posed, BaseException):
            self._last = None
            raise posed
        return posed, left

    def closely(self, posed: Posed, effort: Effort) -> Posed:
        """The case under CLOSER or CONFIRM: the one that was kept, if it was posed so closely."""
        kept = self._close
        if kept is None or kept.case != posed.case or kept.effort not in (effort, CONFIRM):
            assert posed.closely is not None, "posed by `pose`"
            self._close = None  # two are not kept at once
            self._close = kept = posed.closely(effort)
        return kept

    def _new(self, case: Case) -> _Kept:
        try:
            posed: Posed | BaseException = self._pose(case)
        except BaseException as error:
            let_through(error)
            posed = error
        return _Kept(case, posed, self._restore())


class FirstSteps:
    """The first steps of training, of the case that was looked at last. The first pass of the last
    one is watched: most failures are explained by it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._posed: Posed | None = None
        self._steps = 0

    def closely(self, posed: Posed, effort: Effort, steps: int, limit: float) -> Posed:
        """That many steps of the case under CLOSER or CONFIRM, or more of them, which are there."""
        known = self._posed
        if known is None or self._steps < steps or _numbers(known) != _numbers(posed):
            self._posed = None  # two are not kept at once
            known = self._posed = self._new(posed, effort, steps, limit)
            self._steps = steps
        if known.effort in (effort, CONFIRM):
            return known
        if not _fewer_runs(known, effort, self._steps, steps):
            return self._new(posed, effort, steps, limit)
        assert known.closely is not None, "posed by `pose`"
        self._posed = known.closely(effort)
        return self._posed

    def _new(self, posed: Posed, effort: Effort, steps: int, limit: float) -> Posed:
        short, ones = first_steps(self.spec, steps), posed.problems[0].ones
        return pose(short, posed.case, effort, watch=Pass(0, steps - 1), ones=ones, limit=limit)

    def watched(self, spec: Spec, case: Case, effort: Effort, watch: Pass | None) -> Posed:
        """A case of `spec`, which may end sooner, with the tensors at module boundaries of a pass:
        as it was posed to decide it, or more closely, where that will do."""
        steps = spec.training.steps if spec.training is not None else 0
        known = self._posed
        if known is None or self._steps != steps or watch not in (None, Pass(0, steps - 1)):
            return pose(spec, case, effort, watch=watch)
        if _numbers(known) != (case, False) or known.effort not in (effort, CONFIRM):
            return pose(spec, case, effort, watch=watch)
        return known


def _numbers(posed: Posed) -> tuple[Case, bool]:
    """What the numbers of a case come from."""
    return posed.case, posed.problems[0].ones


def _fewer_runs(known: Posed, effort: Effort, known_steps: int, steps: int) -> bool:
    """Whether the steps that are missing to `effort` of those that are known are fewer than all
    that a shorter training takes."""
    made, asked = (e.count(known.case.dtype) for e in (known.effort, effort))
    return (asked - made) * known_steps <= asked * steps


def first_steps(spec: Spec, steps: int) -> Spec:
    """The same of so many steps of training."""
    assert spec.training is not None, "it has several steps"
    return replace(spec, training=replace(spec.training, steps=steps))
