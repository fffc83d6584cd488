"""The figures of a campaign: quantiles, and the chance of an alarm that it rules out."""

from __future__ import annotations

import json

import pytest

from tpcheck.figures.alarms import Unit, summary


def test_the_chance_that_is_ruled_out() -> None:
    def rate(cases: int, alarms: int) -> float:
        ids = [f"{i}" for i in range(alarms)]
        return summary([Unit("c", 2, "float64", 0, [0.5] * (cases - alarms), ids)]).rate

    # 95 % upper limits of a Poisson mean: 2.996 of 0 seen, 4.744 of 1, 10.513 of 5
    assert rate(1000, 0) == pytest.approx(2.996e-3, rel=0.02)
    assert rate(1000, 1) == pytest.approx(4.744e-3, rel=0.01)
    assert rate(1000, 5) == pytest.approx(10.513e-3, rel=0.01)
    assert summary([]).rate == 1.0


def test_quantiles_are_of_the_cases_that_passed() -> None:
    units = [
        Unit("c", 2, "float64", 0, [i / 100 for i in range(100)]),
        Unit("c", 2, "float64", 1, [1.0], ["abc"]),
    ]
    line = summary(units).by_dtype["float64"]
    assert (line.cases, line.alarms, line.largest) == (102, 1, 1.0)
    assert line.median == pytest.approx(0.5) and line.p99 == pytest.approx(0.99)
    json.dumps(summary([Unit("c", 2, "float64", 0)]).to_dict(), allow_nan=False)
