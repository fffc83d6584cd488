"""The next case, posed while the ranks work at this one."""

from __future__ import annotations

from collections.abc import Callable

from tpcheck.case import Case
from tpcheck.oracle.pose import Posed
from tpcheck.process.aspects import Left


class Ahead:
    """Holds one case that was posed before its turn, or why it can't be posed.

    Args:
        pose: poses a case.
        restore: puts back what posing has changed of the process; returns what.
    """

    def __init__(self, pose: Callable[[Case], Posed], restore: Callable[[], list[Left]]) -> None:
        self._pose, self._restore = pose, restore
        self._case: Case | None = None
        self._posed: Posed | Exception | None = None
        self._left: list[Left] = []

    def prepare(self, case: Case) -> None:
        """Poses the case, unless that is done. What goes wrong is raised when its turn comes."""
        if case == self._case:
            return
        self._case = None
        try:
            self._posed = self._pose(case)
        except Exception as error:
            self._posed = error
        self._case, self._left = case, self._restore()

    def take(self, case: Case) -> tuple[Posed, list[Left]]:
        """The case, posed now if it was not before, and what that has changed of the process.

        Raises:
            Exception: what posing it raised.
        """
        if case != self._case:
            return self._pose(case), self._restore()
        posed, left = self._posed, self._left
        self._case, self._posed, self._left = None, None, []
        if isinstance(posed, Exception):
            raise posed
        assert posed is not None, "a case that is named is posed"
        return posed, left
