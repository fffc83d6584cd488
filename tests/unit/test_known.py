"""A declaration of a known finding that can't hold is refused where it is written."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tpcheck import Case, KnownFinding
from tpcheck.errors import InvalidArgument
from tpcheck.known import covering

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
