"""The properties hold on real ranks, and both engines see the same."""

from __future__ import annotations

import pytest

from fixtures.mutants import MUTANTS
from tests import ROOT
from tpcheck.case import Case
from tpcheck.check import Check, dp_can_be
from tpcheck.engines.engine import Engine
from tpcheck.oracle.pose import pose
from tpcheck.report import as_json
from tpcheck.runner.runner import Runner
from tpcheck.search import drawing
from tpcheck.search.collect import collect
from tpcheck.search.corpus import Corpus
from tpcheck.search.of_spec import cases_of
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.space import Space
from tpcheck.verdict import CaseResult, Verdict

FRAMEWORKS = ROOT / "properties" / "_frameworks"
# Megatron-core's are in tests/ranks/adapters/test_megatron.py, on ranks that have loaded it
FILES = [
    ROOT / "properties",
    *(FRAMEWORKS / f"{n}.py" for n in ("compositions", "dtensor", "plans")),
]
CHECKS = {check.title: check for check in collect(map(str, FILES))}
COMPOSED = {check.title for check in collect([str(FRAMEWORKS / "compositions.py")])}


# Threads gather DTensors into one tensor, where processes gather a list: another shape is traced.
DTENSORS = {name for name, check in CHECKS.items() if check.plan is not None}
OWN = [name for name in CHECKS if name not in {"llama_tp_plan", *COMPOSED, *DTENSORS}]
REST = [name for name in CHECKS if name not in OWN]  # they are searched on processes alone
#: Of each, one that differs from it by little is in each run; `make verify-frameworks` has both.
BESIDE = {
    "llama_tp_plan": "qwen_plan",
    "transformer_sp_gelu_plan": "transformer_sp_plan",
    "transformer_local_sp_plan": "transformer_sp_plan",
    "qwen_plan_gathered": "qwen_plan",
    "dtensor_mlp_norm": "tp_fsdp2_norm",
    "tp_expert_parallel_norm": "tp_fsdp2_norm",
    "tp_pipeline": "tp_pipeline_tied",
    "tp_fsdp2_mixed_precision": "tp_fsdp2_norm",
    "tp_fsdp2": "tp_fsdp2_norm",
    "dtensor_mlp": "dtensor_mlp_saved",
    "dtensor_mlp_resumed": "dtensor_mlp_saved",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.sweep if n in BESIDE else ()) for n in REST],
)
def test_property(gloo: Engine, corpus: Corpus, name: str) -> None:
    options = Options(examples=2, seed=7, corpus=corpus)  # one at each degree
    result = Search(CHECKS[name], gloo, options).run()
    assert result.verdict is Verdict.PASS, as_json.check(result)
    # where every case has a second axis, that takes the other two of the four ranks
    wide = name in COMPOSED and name not in {"tp_checkpointing", "tp_ddp"}
    assert result.tp_degrees == ([2] if wide else [2, 4])


def test_what_stands_beside_another_has_one_in_each_run() -> None:
    assert {*BESIDE} <= {*REST} and {*BESIDE.values()} <= {*REST} - {*BESIDE}


def draw(check: Check, count: int) -> list[Case]:
    """`count` different random cases of a check."""
    cases: list[Case] = []
    drawing.each(cases_of(check.spec, Space()), count, "11", cases.append)
    return list({case.canonical(): case for case in cases}.values())


def evidence(result: CaseResult) -> list[dict[str, object]]:
    """What was seen, without the words. Above two ranks the engines add in different orders, and
    the last bit may choose another worst element: there, which tensors on which ranks."""
    kept = {"tensor", "kind", "rank"}
    if result.case.tp <= 2:
        kept |= {"index", "expected", "actual", "error", "bound"}
    return [{k: v for k, v in as_json.mismatch(m).items() if k in kept} for m in result.mismatches]


ON_BOTH = [name for name in OWN if not CHECKS[name].processes]


@pytest.mark.parametrize(
    ("name", "tp"),
    [
        pytest.param(name, tp, marks=() if at % 6 == 3 * (tp == 4) else pytest.mark.sweep)
        for at, name in enumerate(ON_BOTH)
        for tp in (2, 4)
    ],
)
def test_both_engines_see_the_same(gloo: Engine, threads: Engine, name: str, tp: int) -> None:
    can = [case for case in draw(CHECKS[name], 12) if case.dp == 1 or dp_can_be(CHECKS[name])]
    case = next(case for case in can if case.tp == tp)
    posed = pose(CHECKS[name].spec, case, None)
    results = [Runner(CHECKS[name], engine).execute(posed) for engine in (gloo, threads)]
    assert [r.verdict for r in results] == [Verdict.PASS] * 2, case.describe()
    traces = [
        [[(e.op, e.reduce_op, e.group, e.shape) for e in rank] for rank in r.trace] for r in results
    ]
    assert traces[0] == traces[1]


def test_both_engines_see_the_same_mismatch_to_the_last_bit(gloo: Engine, threads: Engine) -> None:
    names = (
        "row_linear_without_all_reduce",
        "bias_added_on_every_rank",
        "norm_weight_gradient_partial",
    )
    for mutant in (m for m in MUTANTS if m.name in names):
        seen = 0
        for case in draw(mutant.check, 3):
            posed = pose(mutant.spec, case)
            found = [Runner(mutant.check, e).execute(posed) for e in (gloo, threads)]
            assert evidence(found[0]) == evidence(found[1])
            seen += found[0].verdict is Verdict.FAIL
        assert seen, mutant.name
