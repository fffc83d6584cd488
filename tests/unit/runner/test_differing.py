"""The step after which replicas differ is known before anything is looked at closer."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tpcheck import Case, Replicate, specs
from tpcheck.oracle.pose import Posed, pose
from tpcheck.protocol.messages import RankReport
from tpcheck.runner import judge, runner
from tpcheck.runner.judge import differing
from tpcheck.tensors.names import InPass, Pass
from tpcheck.training import Training
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

STEPS = 3
DIMS: dict[str, Any] = {"batch": 1, "seq": 2, "hidden": 4, "intermediate": 4, "bias": True}
CASE = Case(
    dims=DIMS | {"activation": "gelu", "norm": "none", "residual": False},
    mesh={"tp": 2},
    dtype="float32",
)


@pytest.fixture(scope="module")
def posed() -> Posed:
    training = Training(lambda named: torch.optim.SGD(named.values(), lr=0.1), steps=STEPS)
    return pose(replace(specs.mlp(), training=training), CASE)


def reports(posed: Posed, *, step: int | None) -> list[RankReport]:
    """Of two ranks that agree, but on a parameter that both have, from a step on."""
    names = {t.name: t for t in posed.problems[0].targets if t.kind is Kind.PARAM}
    odd = {
        name
        for name, target in names.items()
        if target.entry == Replicate() and step is not None and InPass.parse(name).at.step >= step
    }
    assert bool(odd) is (step is not None)
    found = [RankReport(rank) for rank in (0, 1)]
    for report in found:
        for target in posed.problems[0].targets:
            digest = f"of {report.rank}" if target.name in odd else "of both"
            report.digests[target.kind, target.name] = digest
    return found


@pytest.mark.parametrize("step", [0, 2, None])
def test_it_is_the_first_of_them(posed: Posed, step: int | None) -> None:
    assert differing(posed, reports(posed, step=step)) == (math.inf if step is None else step)


def test_masks_that_are_not_coordinated_count_as_much(
    posed: Posed, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = Mismatch(str(InPass("mask0", Pass(0, 1))), Kind.MASK, 0)
    monkeypatch.setattr(judge, "uncoordinated", lambda posed, reports: [mask])
    assert differing(posed, reports(posed, step=None)) == 1
    assert differing(posed, reports(posed, step=2)) == 1
    assert differing(posed, reports(posed, step=0)) == 0


@pytest.mark.parametrize("trains", [True, False])
def test_a_runner_goes_by_it_where_there_are_steps(
    posed: Posed, trains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def doubtful(_: Posed, __: list[RankReport], until: float) -> bool:
        asked.append(until)
        return False

    monkeypatch.setattr(runner, "doubtful", doubtful)
    spec = SimpleNamespace(training=object() if trains else None)
    of: Any = SimpleNamespace(check=SimpleNamespace(spec=spec))
    found = runner._confirmed(of, posed, reports(posed, step=1), cast(Any, None))
    assert found is None and asked == [1 if trains else math.inf]
