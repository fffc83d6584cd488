"""A search without ranks."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck import Case
from tpcheck.search import search as room
from tpcheck.search.search import Search

SAVED = SimpleNamespace(id="abc", case=Case(seed=1))


@pytest.mark.parametrize("by_this_run", [False, True])
def test_only_what_an_earlier_run_saved_is_said_to_be_saved_by_one(
    monkeypatch: pytest.MonkeyPatch, by_this_run: bool
) -> None:
    """Where a case left something behind the search begins anew, on fresh ranks."""

    def to_replay(*_: Any) -> Iterator[Any]:
        yield SAVED

    monkeypatch.setattr(room, "to_replay", to_replay)
    search: Any = object.__new__(Search)
    search.keeper = SimpleNamespace(has=lambda case: by_this_run and case == SAVED.case)
    search.trials = SimpleNamespace(run=lambda case: case, fails=lambda result: True)
    search.options = SimpleNamespace(corpus=SimpleNamespace())
    search.check = search._aside = None
    search.engine = SimpleNamespace(ranks=4)
    assert search._replay() == SAVED.case
    assert search._saved is not by_this_run
