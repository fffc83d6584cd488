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
        """That many steps of the case under CLOSER or CONFIRM."""
        known = self._posed
        if known is None or (known.case, self._steps) != (posed.case, steps):
            short = first_steps(self.spec, steps)
            self._posed, ones = None, posed.problems[0].ones
            watch = Pass(0, steps - 1)
            known = pose(short, posed.case, effort, watch=watch, ones=ones, limit=limit)
            self._posed, self._steps = known, steps
        if known.effort not in (effort, CONFIRM):
            assert known.closely is not None, "posed by `pose`"
            self._posed = known = known.closely(effort)
        return known

    def watched(self, spec: Spec, case: Case, effort: Effort, watch: Pass | None) -> Posed:
        """A case of `spec`, which may end sooner, with the tensors at module boundaries of a pass:
        as it was posed to decide it, where that will do."""
        steps = spec.training.steps if spec.training is not None else 0
        known = self._posed
        if known is not None and not known.problems[0].ones:
            has = known.case, known.effort, Pass(0, steps - 1), self._steps
            if has == (case, effort, watch, steps):
                return known
        return pose(spec, case, effort, watch=watch)


def first_steps(spec: Spec, steps: int) -> Spec:
    """The same of so many steps of training."""
    assert spec.training is not None, "it has several steps"
    return replace(spec, training=replace(spec.training, steps=steps))
