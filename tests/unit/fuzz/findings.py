"""A finding, for tests to vary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tpcheck import Case
from tpcheck.figures.hunted import Finding

FINDING = Finding(
    check="a.py::a",
    title="a",
    code="race",
    place="kernel:7",
    id="abc123",
    case=Case(dims={"n": 4}, mesh={"tp": 1}).to_dict(),
    signatures=("race kernel:7",),
    found_after=3,
    shrunk=False,
    page="FAIL  a",
    counterexample={"id": "abc123"},
)


def finding(**changes: Any) -> Finding:
    return replace(FINDING, **changes)
