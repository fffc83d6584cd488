"""The hunt: time is shared among the degrees as cases are."""

from __future__ import annotations

import itertools
import types

import pytest

from tests.candidates import Row, check
from tpcheck.engines.engine import Engine
from tpcheck.search.options import Options
from tpcheck.search.search import Search


def test_each_degree_has_its_share_of_the_time(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()  # a clock of which each look takes half a second
    clock = types.SimpleNamespace(monotonic=lambda: next(looks) / 2)
    monkeypatch.setattr("tpcheck.search.hunt.time", clock)
    search = Search(check(Row), gloo, Options(examples=4000, corpus=None))
    result = search.run(deadline=20.0)
    assert result.tp_degrees == [2, 4] and result.examples <= 40
