"""What tpcheck raises.

`InvalidArgument` and its kin are the user's to fix: one line each, shown without a traceback,
exit code 2. `verdict.CheckFailed` carries a report. Everything else that escapes is a fault of
tpcheck.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable
from typing import Any


class TpcheckError(Exception):
    """Base of all that tpcheck raises on purpose."""


class InvalidArgument(TpcheckError, ValueError):
    """Something given to tpcheck can't be used: what was given, what is allowed, what to do."""


class LayoutError(InvalidArgument):
    """A layout names a tensor that does not exist, or splits one that can't be split so."""


class CaseError(InvalidArgument):
    """A case is malformed: an unknown field, a wrong type, a corrupt file."""


class EngineUnavailable(InvalidArgument):
    """An engine can't run here, or is too small for what it is asked."""


class NoRoom(EngineUnavailable):
    """No disk has room for a run's files: nothing was decided. Exit code 3."""


class Untrusted(TpcheckError):
    """The canary was not found on an engine: no verdict of it counts, now or later. Exit code 3."""


class CollectiveMismatch(TpcheckError):
    """Two ranks entered different collectives as the same step of one group; `.refused` says
    which (`evidence.Refused`)."""

    def __init__(self, refused: Any) -> None:
        super().__init__(refused)
        self.refused = refused


#: Exit codes: of what the user must fix (bad input, and a check that can't run), and of a run that
#: decides nothing. They stand here since commands need them before anything else is loaded.
TROUBLE, UNDECIDED = 2, 3

#: The signals that end a run: Ctrl-C, `timeout` and CI runners, a closed terminal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """One of them ends the run."""


def let_through(error: BaseException) -> None:
    """Raises what a signal has raised again, as far as can be told: while Python's own handler of
    Ctrl-C is set, every `KeyboardInterrupt` may be of that. Any other is code's own. It may have
    come up on the way of another error: Hypothesis' engine asserts what an interrupt leaves undone.
    """
    unknown = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen: BaseException | None = error
    for _ in range(LONGEST):
        if isinstance(seen, Interrupted) or (isinstance(seen, KeyboardInterrupt) and unknown):
            raise seen
        seen = None if seen is None else seen.__context__


#: Errors, at most, each of which came up while the one before it was handled. An interrupt is among
#: the last of them; such chains may be circles.
LONGEST = 50


#: Characters of a value that are shown. More, and a value from a file fills the terminal.
SHOWN = 80


def shown(value: object) -> str:
    """`repr` of what was given, cut short: a list of a million, an integer of 5000 digits."""
    try:
        text = repr(value)
    except Exception:  # an object's own, or an integer that is too long to print
        return f"a {type(value).__name__} that can't be shown"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def counted(number: float, noun: str, plural: str = "", *, width: int = 0) -> str:
    """`1 case`, `2 cases`; a plural that is made otherwise is given: `3 microbatches`.

    Args:
        width: of the number, in a column.
    """
    return f"{number:>{width}} {noun if number == 1 else plural or f'{noun}s'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'a', 'b'?)`, or the names there are when nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f" (did you mean {', '.join(map(repr, near))}?)"
    return f" (there are: {listed(names)})" if names else " (there are none)"


#: Characters of a list of names that are shown: all codes of diagnoses would fill the terminal.
LISTED = 400


def listed(names: Iterable[str]) -> str:
    """The names, as many as fit."""
    text = ", ".join(names)
    return text if len(text) <= LISTED else text[:LISTED].rpartition(", ")[0] + ", …"
