"""What keeps a check from running, in one line."""

from __future__ import annotations

from tpcheck.comms import frames
from tpcheck.diagnosis import released
from tpcheck.errors import InvalidArgument
from tpcheck.report import known_as, reasons


def why(error: BaseException) -> str:
    """What is wrong, where, and what to do."""
    if isinstance(error, InvalidArgument):
        cause = error.__cause__
        text = " ".join(str(error).split())
        return text + reasons.remedy(frames.through(cause) if cause is not None else ())
    said = reasons.raised(frames.in_a_line(error), frames.through(error))
    known = released.raised(error)
    return said if known is None else f"{said}; known finding: {known_as.sentence(known)}"
