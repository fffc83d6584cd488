"""Where an example's time goes: every part is measured, and they make up the whole."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest

from tests import candidates
from tests.candidates import CASE, Row
from tpcheck.bench import measure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner


def test_the_parts_of_an_example_make_up_the_whole(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(candidates.check(Row), gloo)
    runner.run(replace(CASE, seed=1))  # the ranks know the candidate then
    looks: list[float] = []

    def clock() -> float:
        looks.append(float(len(looks)))  # each look takes a second
        return looks[-1]

    monkeypatch.setattr(measure, "time", types.SimpleNamespace(perf_counter=clock))
    parts = measure._one(runner, CASE)
    assert set(parts) == {
        measure.REFERENCE, measure.NOISE, measure.OWN, measure.POSE, measure.SAVE, measure.RANK,
        measure.WIRE, measure.STATE, measure.REST,
    }  # fmt: skip
    assert sum(parts.values()) == pytest.approx(len(looks) - 1)
    assert parts[measure.SAVE] == 1.0 and parts[measure.STATE] > 0.0
