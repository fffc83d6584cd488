"""Broken plans: what torch says of each, beside what the audit and the check say."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from fixtures.mutants import plan_splits, plans
from fixtures.mutants.broken import BrokenPlan
from tests import ROOT
from tests.candidates import PLANNED
from tests.kills import killed
from tpcheck import Case, audit
from tpcheck.engines.engine import Engine
from tpcheck.plan import Audit
from tpcheck.plan.unknown_style import fake_mesh, quiet
from tpcheck.report.as_json import detail

BROKEN = (*plans.BROKEN, *plan_splits.BROKEN)
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
    return Case(dims=PLANNED | NEEDS.get(broken.name, {}), mesh={"tp": 2}, seed=3)


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


def table() -> dict[str, list[str]]:
    """The rows of the page: first cell → the others."""
    rows = {}
    for line in (ROOT / "docs" / "plans.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[cells[0]] = cells[1:]
    return rows


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
    # and the page says so
    torch_says = f"{len(said)} warnings" if len(said) > 1 else "1 warning" if said else "nothing"
    values = "right" if broken.name in RIGHT_IN_EVERY_VALUE else "wrong"
    measured = [torch_says, values, f"`{broken.code}`", broken.mechanism]
    assert table()[f"`{broken.name}`"] == measured


#: Of each code those whose values are right, and wrong, first.
FIRST = {(b.code, b.name in RIGHT_IN_EVERY_VALUE): b.name for b in reversed(BROKEN)}.values()


@pytest.mark.parametrize(
    "broken",
    [b if b.name in FIRST else pytest.param(b, marks=pytest.mark.sweep) for b in BROKEN],
    ids=lambda broken: broken.name,
)
def test_the_check_has_the_same_name_on_real_ranks(gloo: Engine, broken: BrokenPlan) -> None:
    found = killed(broken.mutant, gloo)
    first = found.mismatches[0]
    assert (first.kind, detail(first)["code"]) == ("sharding", broken.code)
    said = [n for m in found.mismatches for n in detail(m).get("names", ())]
    assert all(any(part in name for name in said) for part in broken.names)
    kinds = {mismatch.kind for mismatch in found.mismatches}
    assert (kinds == {"sharding"}) == (broken.name in RIGHT_IN_EVERY_VALUE)
