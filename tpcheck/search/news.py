"""What is said of a search while it goes on: plain data, which workers send to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tpcheck.case import Case

if TYPE_CHECKING:
    from tpcheck.search.schedule import Job


class Begun(NamedTuple):
    """Nothing has run yet, or what ran does not count: it begins anew, on fresh ranks."""


class Ran(NamedTuple):
    """A case ran, at this degree."""

    tp: int


class Met(NamedTuple):
    """A case failed, the first one; from here on cases are for making it smaller.

    Args:
        case: as it was drawn.
        tensor: the first thing of it that is wrong.
        number: how many cases had run, with it.
    """

    case: Case
    tensor: str
    number: int


class Explains(NamedTuple):
    """The failure is as small as it gets, and is diagnosed."""


News = Begun | Ran | Met | Explains


class Follower:
    """Who follows a run of checks; this one does not listen.

    Args:
        every: seconds after which it wants to be asked again, where nothing happens; None where it
            need not be.
    """

    every: float | None = None

    def begun(self, job: Job) -> None:
        """Work at a check begins."""

    def told(self, job: Job, news: News) -> None:
        """Something happened in it."""

    def ended(self, job: Job) -> None:
        """It ends; what it came to is told elsewhere."""

    def moment(self) -> None:
        """Time goes by."""
