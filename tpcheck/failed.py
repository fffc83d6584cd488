"""What `tpcheck.verify` raises: the report as the message, and the results."""

from __future__ import annotations

from tpcheck.errors import InvalidArgument
from tpcheck.verdict import CheckResult


class CheckFailed(AssertionError):
    """A check ended in FAIL or UNKNOWN; the message is the report, `.results` the data."""

    def __init__(self, report: str, results: list[CheckResult]) -> None:
        super().__init__(report)
        self.results = results


class CheckTroubled(CheckFailed, InvalidArgument):
    """No check FAILs, and one can't run: the user's to fix, as every `InvalidArgument` is."""
