"""The ledger: what one search saw of the known findings that its check declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import let_through
from tpcheck.evidence.known import KnownAs
from tpcheck.known import KnownFinding, beside, covering
from tpcheck.report import reasons
from tpcheck.verdict import CaseResult, FindingResult, Verdict


def near(check: Check, case: Case, code: str) -> KnownAs | None:
    """The known finding that a failure of the check is, or stands beside."""
    try:
        return beside(check.known, case, code)
    except BaseException as error:  # `when` is the user's
        let_through(error)
        return None


@dataclass
class Ledger:
    """The known findings of a check, and the cases in which each failed, or should have.

    Args:
        findings: as the check declares them.
        failed, passed: of each finding, the cases that failed as it says, and those that passed.
        otherwise: finding → the diagnosis of a case of it that failed in another way.
    """

    findings: Sequence[KnownFinding]
    failed: dict[KnownFinding, list[CaseResult]] = field(default_factory=dict)
    passed: dict[KnownFinding, list[CaseResult]] = field(default_factory=dict)
    otherwise: dict[KnownFinding, str] = field(default_factory=dict)
    _explained: set[str] = field(default_factory=set)

    def active(self) -> Iterator[KnownFinding]:
        """Those that are declared for what is installed."""
        return (finding for finding in self.findings if finding.applies())

    def asks_why(self, result: CaseResult) -> bool:
        """Whether it depends on the diagnosis of this case if a finding accounts for it."""
        return result.verdict is Verdict.FAIL and bool(covering(self.findings, result.case))

    def enter(self, result: CaseResult, code: str | None = None) -> None:
        """Notes a case that ran, once.

        Args:
            code: the diagnosis, where `asks_why`; None where the failure does not hold up.
        """
        for finding in covering(self.findings, result.case):
            if result.verdict is Verdict.PASS:
                self.passed.setdefault(finding, []).append(result)
            elif result.verdict is Verdict.FAIL and code in finding.codes:
                self.failed.setdefault(finding, []).append(result)
                self._explained.add(result.case.canonical())
                return
            elif result.verdict is Verdict.FAIL and code is not None:
                self.otherwise.setdefault(finding, code)

    def explains(self, result: CaseResult) -> bool:
        """Whether a finding accounts for this case, which is then not a failure of the check."""
        return result.case.canonical() in self._explained

    def stale(self) -> str | None:
        """Why the run can't be a PASS: a finding that should show somewhere and does not."""
        for finding, results in self.passed.items():
            return reasons.does_not_show(finding, results[0].case)
        return None

    def report(self) -> list[FindingResult]:
        """Each finding with what became of it; counterexamples are for the search to add."""
        return [self._row(finding) for finding in self.findings]

    def _row(self, finding: KnownFinding) -> FindingResult:
        return FindingResult(
            package=finding.package,
            releases=finding.releases,
            installed=finding.installed(),
            code=" or ".join(finding.codes),
            page=finding.page,
            applies=finding.applies(),
            failed=len(self.failed.get(finding, [])),
            passed=len(self.passed.get(finding, [])),
            otherwise=self.otherwise.get(finding),
        )
