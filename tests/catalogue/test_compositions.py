"""Compositions that `test_properties` does not run: what is slow, what is on other meshes."""

from __future__ import annotations

import pytest

from fixtures.compositions import pipeline
from properties._frameworks.compositions import tp_pipeline
from tests import ROOT
from tests.candidates import DECODER
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.search.collect import collect
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict

COMPILE = ROOT / "properties" / "_frameworks" / "compile.py"


@pytest.mark.sweep
def test_a_compiled_model_is_right_and_its_collectives_are_seen(gloo: Engine) -> None:
    (check,) = collect([str(COMPILE)])
    search = Search(check, gloo, Options(examples=2, degrees=(2,), corpus=None))
    assert search.run().verdict is Verdict.PASS
    for result in search.trials.results.values():
        phases = {event.phase for event in result.trace[0] if event.op == "all_reduce"}
        assert {"forward", "backward"} <= phases


DIMS = DECODER | {"layers": 4}


#: The plainest of the schedules: the other two are in each run.
GPIPE = pytest.param("gpipe", marks=pytest.mark.sweep)


@pytest.mark.parametrize("kind", [GPIPE, *(k for k in pipeline.SCHEDULES if k != "gpipe")])
@pytest.mark.parametrize(
    "mesh",
    [{"pp": 2, "tp": 2}, pytest.param({"pp": 2, "tp": 1}, marks=pytest.mark.sweep)],
    ids=str,
)
def test_a_pipeline_sends_each_microbatch_on_and_its_gradient_back(
    gloo: Engine, mesh: dict[str, int], kind: str
) -> None:
    case = Case(
        {**DIMS, "schedule": kind}, mesh=mesh, microbatches=3, step=True, memory="transposed"
    )
    result = Runner(tp_pipeline, gloo).run(case)
    assert not result.mismatches
    borders = 3 if kind == "interleaved" else 1  # between two stages
    first, last = result.trace[0], result.trace[-1]
    floats = [[e for e in rank if e.dtype == "float64" and e.peer is not None]
              for rank in (first, last)]  # fmt: skip
    for events in floats:  # one way and back for each of 3 microbatches, and once after the step
        assert len(events) == borders * (2 * 3 + 1)
        assert {tuple(e.shape) for e in events} == {(2, 3, 4)}
    sent = [(e.phase, e.op) for e in floats[0] if e.op == "send"]
    assert ("schedule", "send") in sent and ("step", "send") in sent
    reduced = {e.phase for e in first if e.op == "all_reduce"}
    assert reduced == ({"forward", "backward", "step"} if case.tp > 1 else set())


@pytest.mark.parametrize("kind", [GPIPE, "1f1b"])
def test_a_pipeline_of_one_stage_is_tensor_parallelism(gloo: Engine, kind: str) -> None:
    dims = {**DIMS, "schedule": kind}
    case = Case(dims, mesh={"pp": 1, "tp": 2}, microbatches=2, step=True)
    result = Runner(tp_pipeline, gloo).run(case)
    assert not result.mismatches
    assert not any(e.op in ("send", "recv") for rank in result.trace for e in rank)
