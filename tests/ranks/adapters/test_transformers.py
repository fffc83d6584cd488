"""transformers models under their own plans: right ones pass, one with a hole does not."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import tpcheck
from tpcheck import Case, Check
from tpcheck.adapters import pretrained, tiny, transformers
from tpcheck.adapters.tiny_sizes import VOCAB
from tpcheck.engines.engine import Engine
from tpcheck.evidence import WrongShape
from tpcheck.report import as_json
from tpcheck.runner.runner import Runner
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Kind

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

OPTIONS = Options(examples=2, dtypes=("float64", "float32"), corpus=None, shrink_cases=0)
CASE = Case(dims={"batch": 1, "seq": 2, "vocab": VOCAB}, mesh={"tp": 2})


@pytest.mark.parametrize(
    "name",
    ["llama", *(pytest.param(name, marks=pytest.mark.sweep) for name in ("mixtral", "gemma2"))],
)
def test_an_architecture_passes_under_its_plan(gloo: Engine, name: str) -> None:
    """llama, experts with packed weights, tied embeddings."""
    result = Search(transformers.architecture(name), gloo, OPTIONS).run()
    assert result.verdict is Verdict.PASS, as_json.check(result)
    assert result.tp_degrees == [2, 4]


def test_a_configuration_of_one_s_own_is_checked_in_a_line(gloo: Engine) -> None:
    config = tiny.model_of("llama")[1]
    result = Search(transformers.check(config), gloo, OPTIONS).run()
    assert result.verdict is Verdict.PASS, as_json.check(result)


def _without(rule: str) -> Any:
    def build(case: Case) -> Any:
        model = tiny.build("llama")
        plan = {k: v for k, v in model.tp_plan.items() if rule not in k}
        assert len(plan) < len(model.tp_plan)
        model._tp_plan = plan
        return model

    return build


@pytest.mark.parametrize("rule", ["o_proj", "down_proj"])
def test_a_plan_with_a_hole_fails(gloo: Engine, rule: str) -> None:
    right = transformers.architecture("llama")
    broken = Check(right.spec, transformers.candidate(_without(rule)))
    assert Runner(right, gloo).run(CASE).verdict is Verdict.PASS
    assert Runner(broken, gloo).run(CASE).verdict is Verdict.FAIL


@pytest.mark.sweep  # eight seconds; of other candidates it is in each run
def test_gradients_that_are_summed_in_each_microbatch_are_seen(gloo: Engine) -> None:
    """docs/findings/transformers-gradient-accumulation.md"""
    from dataclasses import replace

    runner = Runner(transformers.architecture("qwen3"), gloo)
    assert runner.run(CASE).verdict is Verdict.PASS
    twice = runner.run(replace(CASE, microbatches=2))
    assert {m.tensor.split(".")[-2] for m in twice.mismatches} == {"q_norm", "k_norm"}


def test_a_head_that_is_sharded_alone_passes_unless_one_says_what_stays_whole(
    gloo: Engine,
) -> None:
    from dataclasses import replace

    config = tiny.model_of("llama")[1]
    norms = ("*norm.weight",)
    assert Runner(transformers.check(config, whole=norms), gloo).run(CASE).verdict is Verdict.PASS

    def head_alone(case: Case) -> Any:
        model = tiny.build("llama")
        model.model._tp_plan = {}
        model._tp_plan = {"lm_head": "colwise_gather_output"}
        return model

    check = transformers.check(config)
    alone = replace(check, candidate=transformers.candidate(head_alone))
    assert Runner(alone, gloo).run(CASE).verdict is Verdict.PASS
    plan = tpcheck.Plan({"lm_head": "colwise_gather_output"}, whole=norms)
    found = Runner(replace(alone, plan=plan), gloo).run(CASE).mismatches
    assert {m.kind for m in found} == {"sharding"}
    assert any("self_attn.q_proj.weight" in str(m.detail) for m in found)


def test_a_rule_in_place_of_the_model_s_own_is_applied(gloo: Engine) -> None:
    """Without the gather each rank has its part of the vocabulary."""
    config = tiny.model_of("llama")[1]
    for adapter in (transformers, pretrained):
        check = adapter.check(config, plan={"lm_head": "colwise"}, whole=("*norm.weight",))
        result = Runner(check, gloo).run(CASE)
        assert result.verdict is Verdict.FAIL
        assert {type(m.detail) for m in result.mismatches if m.kind is Kind.OUTPUT} == {WrongShape}
