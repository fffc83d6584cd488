"""What is held to be the same on two hosts, and what is wrong there. The hosts need root."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.catalogue.hosts import killed, wrong
from tests.catalogue.hosts.__main__ import SAME, _said
from tpcheck import Check

CHECK: dict[str, Any] = {key: key for key in SAME} | {
    "seconds": 1.0,
    "counterexample": {"id": "a1", "case": {"seed": 1}, "diagnosis": {"code": "race"}},
}


@pytest.mark.parametrize("key", SAME)
def test_what_is_other_of_a_check_is_seen(key: str) -> None:
    assert _said(CHECK | {"seconds": 2.0}) == _said(CHECK) != _said(CHECK | {key: None})


@pytest.mark.parametrize("key", ["id", "case", "diagnosis"])
def test_what_is_other_of_a_counterexample_is_seen(key: str) -> None:
    other = copy.deepcopy(CHECK)
    other["counterexample"][key] = {"code": "other"}
    assert _said(other) != _said(CHECK) != _said(CHECK | {"counterexample": None})


def test_the_checks_are_there() -> None:
    found = [value for value in vars(wrong).values() if isinstance(value, Check)]
    assert len(found) >= 12
    assert [v for v in vars(killed).values() if isinstance(v, Check)] == [killed.killed]
