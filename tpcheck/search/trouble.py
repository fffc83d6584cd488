"""What keeps a check from running, in one line."""

from __future__ import annotations

from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument
from tpcheck.report import reasons


def why(error: BaseException) -> str:
    """What is wrong, where, and what to do."""
    if isinstance(error, InvalidArgument):
        text, cause = " ".join(str(error).split()), error.__cause__
    else:
        text, cause = reasons.raised(frames.in_a_line(error), frames.through(error)), error
    return text if cause is None else text + reasons.remedy(cause, frames.through(cause))
