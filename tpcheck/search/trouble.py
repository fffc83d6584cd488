"""What keeps a check from running, in one line."""

from __future__ import annotations

import traceback

from tpcheck.comms import frames
from tpcheck.diagnosis import released
from tpcheck.errors import InvalidArgument, TpcheckError
from tpcheck.report import known_as, reasons


def why(error: BaseException) -> str:
    """What is wrong, where, and what to do, or which known finding it is."""
    raised = error.__cause__ if isinstance(error, InvalidArgument) else error
    known = None if raised is None else released.raised(raised)
    if known is not None:
        said = " ".join(str(error).split()) if raised is not error else frames.in_a_line(error)
        return f"{said}; known finding: {known_as.sentence(known)}"
    if isinstance(error, InvalidArgument):
        text, cause = " ".join(str(error).split()), error.__cause__
    else:
        text, cause = reasons.raised(frames.in_a_line(error), frames.through(error)), error
    return text if cause is None else text + reasons.remedy(cause, frames.through(cause))


def fault(error: BaseException) -> str | None:
    """The traceback of what is a fault of tpcheck's own; None of what the user's code raised."""
    if isinstance(error, TpcheckError) or released.raised(error) is not None:
        return None
    if reasons.called(frames.through(error)) is not None:
        return None
    return "".join(traceback.format_exception(error))
