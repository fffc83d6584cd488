"""A declaration of a known finding that can't hold is refused where it is written."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tpcheck import Case, KnownFinding
from tpcheck.errors import InvalidArgument
from tpcheck.evidence.known import Likeness
from tpcheck.known import beside, covering

VERSION = importlib.metadata.version("torch").partition("+")[0]
CASE = Case({"n": 1})
FINDING = KnownFinding("torch", f"=={VERSION}", "rank-crash", CASE, "docs/findings/x.md")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: replace(FINDING, releases="5.x"), "'5.x'. is not a version specifier"),
        (lambda: replace(FINDING, when=lambda case: False), "its own case .* is not among"),
        (
            lambda: replace(FINDING, code="rank-crsh"),
            "'rank-crsh'. is not a diagnosis code .did you mean 'rank-crash'",
        ),
        (lambda: replace(FINDING, code=("deadlock", "dedlock")), "'dedlock'. is not a diagnosis"),
    ],
)
def test_a_declaration_that_cannot_hold_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()


def test_a_finding_covers_its_own_sizes_in_its_own_releases() -> None:
    other = replace(FINDING, releases=f"!={VERSION}")
    absent = replace(FINDING, package="not-installed", releases=">=0")
    assert covering([FINDING, other, absent], replace(CASE, seed=5, dtype="bfloat16")) == [FINDING]
    assert covering([FINDING], Case({"n": 2})) == []
    assert covering([replace(FINDING, when=lambda case: case["n"] < 3)], Case({"n": 2}))


@pytest.mark.parametrize(
    ("case", "code", "how"),
    [
        (CASE, "rank-crash", Likeness.DECLARED),
        (CASE, "deadlock", Likeness.OTHER_DIAGNOSIS),
        (Case({"n": 2}), "rank-crash", Likeness.OTHER_CASE),
        (Case({"n": 2}), "deadlock", None),
    ],
)
def test_a_failure_beside_a_finding_is_said_to_be_so(
    case: Case, code: str, how: Likeness | None
) -> None:
    far = replace(FINDING, case=Case({"n": 9}), code="race", page="far.md")
    known = beside([far, FINDING], case, code)
    assert (known and known.how) == how
    assert known is None or (known.page, known.installed) == (FINDING.page, FINDING.installed())
    assert beside([replace(FINDING, releases=f"!={VERSION}")], case, code) is None


def test_of_several_the_one_that_fits_is_said() -> None:
    other = replace(FINDING, code="race", page="other.md")
    known = beside([other, FINDING], CASE, "rank-crash")
    assert known is not None and (known.page, known.how) == (FINDING.page, Likeness.DECLARED)
