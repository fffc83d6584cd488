"""Budgets: their members are checked, and they add up."""

from __future__ import annotations

from typing import Any

import pytest

from tpcheck.budget import Budget
from tpcheck.errors import InvalidArgument


@pytest.mark.parametrize(
    ("members", "words"),
    [({"forward": 3}, r"Budget\(forward=3\) is a int; give a mapping"),
     ({"at_least": None}, r"Budget\(at_least=None\) is a NoneType; give a mapping"),
     ({"at_least": {("fwd", "send"): 1}}, r"Budget\(at_least=…\) names the phase 'fwd'; give"),
     ({"dtypes": {"all_reduce": "float32"}}, r"Budget\(dtypes=…\) has the key 'all_reduce'; give"),
     ({"forward": {"allreduce": 3}}, r"Budget\(forward=…\) names 'allreduce', which is not a "
      r"collective \(did you mean 'all_reduce'"),
     ({"dtypes": {("forward", "gather_all"): "float32"}}, "names 'gather_all', which is not"),
     ({"dtypes": {("forward", "all_reduce"): "f32"}}, r"names 'f32', which is not a dtype \(did "
      "you mean 'float32'"),
     ({"dtypes": {("forward", "all_reduce"): ["float32"]}}, "which is not a dtype"),
     ({"saved": "much"}, r"Budget\(saved='much'\) is not a number of elements, nor None")],
)  # fmt: skip
def test_a_budget_s_members_are_checked(members: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Budget(**members)


def test_what_must_run_is_known_by_name() -> None:
    twice = Budget(at_least={("forward", "a"): 1}) + Budget(at_least={("backward", "b"): 1})
    assert twice.witnesses == {"a", "b"}


def test_budgets_add_up_and_repeat() -> None:
    one = Budget({"all_reduce": 3}, {"all_gather": 2}, saved=5)
    both = (one + one) * 2
    assert (both.forward, both.backward, both.saved) == ({"all_reduce": 12}, {"all_gather": 8}, 20)
    assert both.allowed("forward", 2) == 12 and both.allowed("backward", 2) == 4
