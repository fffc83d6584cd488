"""What a check's own functions compute in the driver takes one processor: the ranks need the
others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests import candidates
from tpcheck import Budget, Case, Check, specs
from tpcheck.oracle.pose import pose
from tpcheck.runner.asked import Asked

CASE = Case(
    mesh={"tp": 2},
    dims={"batch": 1, "seq": 2, "in_features": 4, "out_features": 4, "bias": False},
)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2, "the process's own setting comes back"
    torch.set_num_threads(before)


def test_a_reference_is_run_in_one_thread() -> None:
    seen: list[int] = []
    spec = specs.column_linear()

    def reference(case: Case) -> Any:
        seen.append(torch.get_num_threads())
        return spec.reference(case)

    closely = pose(replace(spec, reference=reference), CASE).closely
    assert closely is not None
    assert set(seen) == {1}


def test_a_budget_is_found_in_one_thread() -> None:
    """That of a spec may run a reference, to see what it saves."""
    seen: list[int] = []

    def budget(case: Case) -> Budget:
        seen.append(torch.get_num_threads())
        return Budget()

    spec = replace(specs.column_linear(), budget=budget)
    check = Check(spec, candidate=candidates.stack, communication=True)
    Asked(check).of(CASE, 10.0)
    assert seen == [1]


def test_the_setting_comes_back_from_a_function_that_raises() -> None:
    def budget(case: Case) -> Budget:
        raise ValueError("no")

    spec = replace(specs.column_linear(), budget=budget)
    check = Check(spec, candidate=candidates.stack, communication=True)
    with pytest.raises(Exception, match="no"):
        Asked(check).of(CASE, 10.0)
