"""Broken plans: what torch says of each, beside what the audit and the check say."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from fixtures.mutants import plan_splits, plans
from fixtures.mutants.broken import BrokenPlan
from tests import ROOT
from tpcheck import Case, audit
from tpcheck.engines.engine import Engine
from tpcheck.plan import Audit
from tpcheck.plan.unknown_style import fake_mesh, quiet
from tpcheck.runner.runner import Runner

BROKEN = (*plans.BROKEN, *plan_splits.BROKEN)
SIZES = {
    "batch": 1,
    "seq": 4,
    "vocab": 8,
    "layers": 2,
    "kv_heads": 2,
    "heads": 4,
    "head_dim": 4,
    "hidden": 8,
    "intermediate": 12,
    "bias": False,
}
NEEDS: dict[str, dict[str, int]] = {
    "wildcard_of_one_digit": {"layers": 11},
    "heads_cut_in_pieces": {"heads": 1, "kv_heads": 1},
}
# Nothing is wrong with their values: outputs, gradients and replicas are those of the reference.
RIGHT_IN_EVERY_VALUE = {
    "base_plan_without_its_prefix",
    "prefix_given_twice",
    "attention_under_another_name",
    "attention_left_out",
    "mlp_projections_misspelt",
    "mlp_left_out",
    "layers_counted_from_one",
    "plan_after_activation_checkpointing",
    "only_the_first_layer_listed",
    "wildcard_of_one_digit",
    "top_plan_forgotten",
    "embedding_left_out",
    "prepare_module_input_alone",
    "qkv_left_fused",
    "gate_up_left_fused",
}

each = pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)


def case_of(broken: BrokenPlan) -> Case:
    return Case(dims={**SIZES, **NEEDS.get(broken.name, {})}, mesh={"tp": 2}, seed=3)


def names(broken: BrokenPlan, findings: list[Any]) -> bool:
    """Whether findings of the broken plan's code name all that they should."""
    said = [n for f in findings if f.code == broken.code for n in f.names]
    return all(any(part in name for name in said) for part in broken.names)


def torch_alone(broken: BrokenPlan) -> list[str]:
    """What torch warns of while it applies the plan; it raises for none."""
    with fake_mesh(2) as mesh, quiet(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        broken.build(case_of(broken), {"tp": mesh})
    return [str(warning.message) for warning in caught]


def audited(broken: BrokenPlan) -> Audit:
    model = broken.before(case_of(broken))
    return audit(model, broken.plan(model), tp=2)


def test_there_are_at_least_fifteen_and_each_code_is_among_them() -> None:
    assert len(BROKEN) >= 15
    assert {broken.code for broken in BROKEN} == {
        "plan-entry-unmatched",
        "parameter-not-sharded",
        "wrong-placement",
        "tied-weights-split",
    }


def test_the_table_in_the_docs_is_what_is_measured() -> None:
    page = (ROOT / "docs" / "plans.md").read_text()
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[cells[0]] = cells[1:]
    for broken in BROKEN:
        said = torch_alone(broken)
        values = "right" if broken.name in RIGHT_IN_EVERY_VALUE else "wrong"
        torch_says = (
            f"{len(said)} warnings" if len(said) > 1 else "1 warning" if said else "nothing"
        )
        said_here = [torch_says, values, f"`{broken.code}`", broken.mechanism]
        assert rows[f"`{broken.name}`"] == said_here


@each
def test_torch_is_silent_or_only_warns_where_the_audit_has_a_name(broken: BrokenPlan) -> None:
    said = torch_alone(broken)
    found = audited(broken)
    if broken.code == "plan-entry-unmatched":
        assert said and all("could not be resolved" in message for message in said)
    else:
        assert said == []
    assert found.codes[0] == broken.code
    assert names(broken, found.findings), found.findings


@each
def test_the_check_has_the_same_name_on_real_ranks(gloo: Engine, broken: BrokenPlan) -> None:
    result = Runner(broken.mutant.check, gloo).run(case_of(broken))
    first = result.mismatches[0]
    assert (first.kind, first.detail["code"]) == ("sharding", broken.code)
    said = [n for m in result.mismatches for n in m.detail.get("names", ())]
    assert all(any(part in name for name in said) for part in broken.names)
    kinds = {mismatch.kind for mismatch in result.mismatches}
    assert (kinds == {"sharding"}) == (broken.name in RIGHT_IN_EVERY_VALUE)
