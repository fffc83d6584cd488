"""Known findings: faults of released packages that a check finds, declared beside it and held to.

A finding that is declared is neither skipped nor drawn around. Where it says that it shows, each
case must fail, with its diagnosis; a case that passes there makes the verdict UNKNOWN, one that
fails otherwise is a FAIL like any other. Outside the releases that it names it does not count.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument, did_you_mean
from tpcheck.verdict import CaseResult, FindingResult, Verdict


@dataclass(frozen=True, eq=False)
class KnownFinding:
    """A fault of some releases of a package, which the check finds.

    Args:
        package: the distribution's name, as pip knows it.
        releases: which of its releases have the fault, as in `==5.23.*` (PEP 440).
        code: the diagnosis that each of its cases must get, or those of which it must get one.
        case: the smallest case that shows it. It is run each time, so that a mend is noticed.
        when: case → whether the fault shows there; by default in `case` alone (whatever its
            seed, dtype and memory format).
        page: where it is written up.

    Raises:
        InvalidArgument: `releases` is no specifier, or `when` does not hold for `case`.
    """

    package: str
    releases: str
    code: str | tuple[str, ...]
    case: Case
    page: str
    when: Callable[[Case], bool] | None = None

    def __post_init__(self) -> None:
        try:
            SpecifierSet(self.releases)
        except InvalidSpecifier:
            raise InvalidArgument(
                f"KnownFinding(releases={self.releases!r}) is not a version specifier, "
                "such as ==5.23.*"
            ) from None
        if not self.covers(self.case):
            raise InvalidArgument(
                f"KnownFinding({self.page}): its own case ({self.case.describe()}) is not among "
                "those that `when` names"
            )

    @property
    def codes(self) -> tuple[str, ...]:
        """The diagnoses of which each of its cases must get one."""
        return (self.code,) if isinstance(self.code, str) else self.code

    def covers(self, case: Case) -> bool:
        """Whether the fault should show in this case."""
        if self.when is not None:
            return bool(self.when(case))
        return (case.dims, case.mesh) == (self.case.dims, self.case.mesh)

    def installed(self) -> str | None:
        """The release that is installed here, or None."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None

    def applies(self) -> bool:
        """Whether the installed release is one that it is declared for."""
        version = self.installed()
        return version is not None and SpecifierSet(self.releases).contains(
            version, prereleases=True
        )


@dataclass
class Ledger:
    """What one search saw of a check's known findings.

    Args:
        findings: as the check declares them.
        code_of: names the cause of a failing case, or None where it does not hold up.

    Raises:
        InvalidArgument: a finding's code is no diagnosis.
    """

    findings: Sequence[KnownFinding]
    code_of: Callable[[CaseResult], str | None]
    failed: dict[KnownFinding, list[CaseResult]] = field(default_factory=dict)
    passed: dict[KnownFinding, list[CaseResult]] = field(default_factory=dict)
    otherwise: dict[KnownFinding, str] = field(default_factory=dict)
    _settled: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from tpcheck.diagnosis.diagnose import CODES

        for finding in self.findings:
            for code in finding.codes:
                if code not in CODES:
                    hint = did_you_mean(code, CODES)
                    raise InvalidArgument(f"KnownFinding(code={code!r}) is no diagnosis{hint}")

    def active(self) -> Iterator[KnownFinding]:
        """Those that are declared for what is installed."""
        return (finding for finding in self.findings if finding.applies())

    def settles(self, result: CaseResult) -> bool:
        """Whether a finding accounts for this result, which is then no failure of the check."""
        key = result.case.canonical()
        if key not in self._settled:
            self._settled[key] = self._judge(result)
        return self._settled[key]

    def _judge(self, result: CaseResult) -> bool:
        here = [finding for finding in self.active() if finding.covers(result.case)]
        if result.verdict is Verdict.PASS:
            for finding in here:
                self.passed.setdefault(finding, []).append(result)
        if not here or result.verdict is not Verdict.FAIL:
            return False
        code = self.code_of(result)
        for finding in here:
            if code in finding.codes:
                self.failed.setdefault(finding, []).append(result)
                return True
            if code is not None:
                self.otherwise.setdefault(finding, code)
        return False

    def stale(self) -> str | None:
        """Why the run can't be a PASS: a finding that should show somewhere and does not."""
        for finding, results in self.passed.items():
            release = f"{finding.package} {finding.installed()}"
            return (
                f"the known finding {finding.page} is declared for {finding.package} "
                f"{finding.releases} and does not show with {release}: "
                f"{results[0].case.describe()} passes; correct its declaration or take it out"
            )
        return None

    def report(self) -> list[FindingResult]:
        """Each finding with what became of it; counterexamples are for the search to add."""
        return [
            FindingResult(
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
            for finding in self.findings
        ]
