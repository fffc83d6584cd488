"""Ranks hold a candidate to the plan of its check."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from torch.distributed.tensor.parallel import parallelize_module

from fixtures.plans import qwen, subjects
from tests.candidates import PLANNED
from tpcheck import Case, Check, InvalidArgument, Plan, specs
from tpcheck.engines.engine import Engine
from tpcheck.report.as_json import detail
from tpcheck.runner.planned import planned
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

CASE = Case(dims=PLANNED | {"bias": True}, mesh={"tp": 2})
PLAN = Plan(qwen.full_plan(qwen.TOP_PLAN_GATHERED), qwen.PLAN.whole, qwen.PLAN.reduced)


def forgets_the_plan(case: Case, mesh: Any) -> nn.Module:
    return subjects.qwen_model(case)


def applies_another(case: Case, mesh: Any) -> nn.Module:
    given = subjects.qwen_model(case)
    entries = qwen.resolve(qwen.full_plan(qwen.TOP_PLAN_GATHERED))
    entries = {key: style for key, style in entries.items() if "mlp" not in key}
    parallelize_module(given, mesh["tp"], entries)
    qwen.sum_head_norm_gradients(given, mesh["tp"].get_group())
    return given


@pytest.mark.parametrize("candidate", [forgets_the_plan, applies_another])
def test_ranks_hold_the_candidate_to_its_plan(gloo: Engine, candidate: Any) -> None:
    """The plan is right, and no finding without ranks; what was built is not what it says."""
    check = Check(subjects.qwen_spec(), candidate, plan=PLAN)
    result = Runner(check, gloo).run(CASE)
    assert result.verdict is Verdict.FAIL
    found = [m for m in result.mismatches if detail(m).get("fault") == "plan"]
    assert {m.rank for m in found} == {0, 1}
    assert {detail(m)["code"] for m in found} == {"parameter-not-sharded"}
    assert "model.layers.0.mlp.up_proj.weight" in [n for m in found for n in detail(m)["names"]]
    assert not Runner(Check(check.spec, applies_another), gloo).run(CASE).mismatches


def test_at_degree_one_a_plan_shards_nothing(gloo: Engine) -> None:
    one = Case(dims=CASE.dims, mesh={"tp": 1})
    check = Check(subjects.qwen_spec(), forgets_the_plan, plan=PLAN)
    assert Runner(check, gloo).run(one).verdict is Verdict.PASS


def test_a_plan_that_raises_is_the_users_to_fix(gloo: Engine) -> None:
    check = Check(subjects.qwen_spec(), forgets_the_plan, plan=lambda case: 1 / 0)
    with pytest.raises(InvalidArgument, match="plan raised ZeroDivisionError"):
        Runner(check, gloo).run(CASE)
    function = Check(specs.causal_lm(lambda case: len, cases=[CASE]), forgets_the_plan, plan={})
    with pytest.raises(InvalidArgument, match=r"reference that is an nn\.Module"):
        planned(function.spec, function.plan, CASE)
    with pytest.raises(InvalidArgument, match="a plan is a mapping"):
        Runner(Check(check.spec, forgets_the_plan, plan="colwise"), gloo).run(CASE)
