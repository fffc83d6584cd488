"""Known findings: faults of released packages that a check finds, declared beside it and held to.

A finding that is declared is neither skipped nor drawn around. Where it says that it shows, each
case must fail, with its diagnosis; a case that passes there makes the verdict UNKNOWN, one that
fails otherwise is a FAIL like any other. Outside the releases that it names it does not count.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument, did_you_mean, let_through, shown
from tpcheck.evidence.known import KnownAs, Likeness
from tpcheck.given import A_NAME, demand, demand_callables, is_name
from tpcheck.vocabulary import Code

_CODES = tuple(code.value for code in Code)


@dataclass(frozen=True, eq=False)
class KnownFinding:
    """A fault of some releases of a package, which the check finds.

    Args:
        package: the distribution's name, as pip knows it.
        releases: which of its releases have the fault, as in `==5.23.*` (PEP 440).
        code: the diagnosis that each of its cases must get, or those of which it must get one.
        case: the smallest case that shows it. It is run each time, so that a fix is noticed.
        when: case → whether the fault shows there; by default in `case` alone (whatever its
            seed, dtype and memory format).
        page: where it is written up.

    Raises:
        InvalidArgument: `releases` is not a specifier, `code` is not a diagnosis, or `when` does
            not hold for `case`.
    """

    package: str
    releases: str
    code: str | tuple[str, ...]
    case: Case
    page: str
    when: Callable[[Case], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("package", "releases", "page"):
            demand(self, name, is_name(getattr(self, name)), A_NAME)
        codes = isinstance(self.code, str) or (isinstance(self.code, tuple) and self.code)
        demand(self, "code", bool(codes), "a diagnosis code, or a tuple of them")
        demand(self, "case", isinstance(self.case, Case), "a Case")
        demand_callables(self, "when", optional=True)
        try:
            SpecifierSet(self.releases)
        except InvalidSpecifier:
            raise InvalidArgument(
                f"KnownFinding(releases={self.releases!r}) is not a version specifier, "
                "such as ==5.23.*"
            ) from None
        for code in self.codes:
            if code not in _CODES:
                hint = did_you_mean(str(code), _CODES)
                raise InvalidArgument(
                    f"KnownFinding(code={shown(code)}) is not a diagnosis code{hint}"
                )
        try:
            covered = self.covers(self.case)
        except BaseException as error:
            let_through(error)
            raise InvalidArgument(
                f"KnownFinding({self.page}): `when` raised {type(error).__name__} of its own case"
            ) from error
        if not covered:
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
        return release_of(self.package)

    def applies(self) -> bool:
        """Whether the installed release is one that it is declared for."""
        return is_among(self.package, self.releases)


def release_of(package: str) -> str | None:
    """The release of a distribution that is installed here, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def is_among(package: str, releases: str) -> bool:
    """Whether that release is one of these (PEP 440)."""
    version = release_of(package)
    return version is not None and SpecifierSet(releases).contains(version, prereleases=True)


def beside(findings: Iterable[KnownFinding], case: Case, code: str) -> KnownAs | None:
    """The finding of these that a failure with this diagnosis is, or is near: declared for this
    case, or with this diagnosis."""
    near: dict[Likeness, KnownAs] = {}
    for finding in findings:
        if not finding.applies():
            continue
        covers, same = finding.covers(case), code in finding.codes
        if covers or same:
            other = Likeness.OTHER_DIAGNOSIS if covers else Likeness.OTHER_CASE
            how = Likeness.DECLARED if covers and same else other
            installed = finding.installed() or ""
            about = finding.page, finding.package, finding.releases, installed, how
            near.setdefault(how, KnownAs(*about))
    return next((near[how] for how in Likeness if how in near), None)


def covering(findings: Iterable[KnownFinding], case: Case) -> list[KnownFinding]:
    """Those of `findings` that are declared for what is installed and should show in this case."""
    return [finding for finding in findings if finding.applies() and finding.covers(case)]
