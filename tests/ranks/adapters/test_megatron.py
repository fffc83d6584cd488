"""Megatron-core through the adapter: every layer passes, every edit is found, nothing is left
behind on ranks."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests import ROOT
from tests.candidates import linear_dims
from tests.kills import killed
from tpcheck import Case, Check
from tpcheck.adapters import megatron
from tpcheck.engines.engine import Engine
from tpcheck.report import as_json
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.search.collect import collect
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

from fixtures.frameworks import megatron_layers as layers
from fixtures.mutants.megatron_core import MUTANTS

CHECKS = {
    check.title: check
    for name in ("megatron_core", "megatron_norm")
    for check in collect([str(ROOT / "properties" / "_frameworks" / f"{name}.py")])
}
LINEAR = Case(dims=linear_dims(2, 4, bias=True), mesh={"tp": 2})


#: The longest of those of which another of the kind is in each run.
LONG = {"megatron_cross_entropy_smoothed", "megatron_gpt_sp_norm", "megatron_sink_norm"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.sweep if name in LONG else ()) for name in CHECKS],
)
def test_the_layer_passes_but_for_what_is_declared(
    engine: Engine, corpus: Corpus, name: str
) -> None:
    options = Options(examples=2, seed=7, corpus=corpus)  # one at each degree
    result = Search(CHECKS[name], engine, options).run()
    assert result.verdict is Verdict.PASS, as_json.check(result)
    assert result.tp_degrees == [2, 4]
    assert all(row.state == "known" for row in result.findings)
    wrong = ("megatron_cross_entropy_smoothed", "megatron_sink_norm")
    assert result.only_known == (name in wrong)


#: The two that take longest.
SLOW = ("megatron_gated_weight_without_stride", "megatron_query_groups_reversed")


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, marks=pytest.mark.sweep if m.name in SLOW else ()) for m in MUTANTS],
    ids=lambda m: m.name,
)
def test_the_mutant_is_killed_and_named(engine: Engine, mutant: Any) -> None:
    killed(mutant, engine)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_layout_is_read_from_the_partition_attributes(engine: Engine, stride: int) -> None:
    """The columns of a weight that says `partition_stride` 2 are dealt out in two blocks."""

    def build(case: Case, tp: int) -> Any:
        column = layers.column(case, tp)
        for parameter in column.parameters():
            parameter.partition_stride = stride  # type: ignore[attr-defined]
        return column

    from tpcheck import Layout, Replicate, Shard
    from tpcheck.placement import Blocks

    halves = Blocks(2, ((2, Shard(2)), (2, Shard(2)))) if stride == 2 else Shard(2)
    layout = Layout(inputs={"x": Replicate()}, outputs={"output": halves})
    check = Check(
        layers.column_spec(False),
        megatron.candidate(build),
        overrides={"layout": lambda case: layout},
    )
    assert Runner(check, engine).run(LINEAR).verdict is Verdict.PASS
    other = Check(layers.column_spec(False), megatron.candidate(build))  # outputs: Shard(2)
    assert (Runner(other, engine).run(LINEAR).verdict is Verdict.PASS) == (stride == 1)


def look(case: Case, mesh: Any) -> Any:
    """A candidate that has nothing to do with Megatron: raises where its state is still there."""
    from megatron.core import parallel_state

    assert not parallel_state.is_initialized()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.current_device()
    return torch.nn.Linear(2, 2, bias=False)


@pytest.mark.parametrize("raises", [False, True])
def test_nothing_is_left_behind_on_warm_ranks(engine: Engine, raises: bool) -> None:
    def build(case: Case, tp: int) -> Any:
        from megatron.core import parallel_state

        assert parallel_state.get_tensor_model_parallel_world_size() == tp
        assert parallel_state.get_tensor_model_parallel_rank() == dist.get_rank() % tp
        if raises:
            raise ValueError("deliberate")
        return layers.column(case, tp)

    spec = layers.column_spec(False)
    result = Runner(Check(spec, megatron.candidate(build)), engine).run(LINEAR)
    assert (result.verdict is Verdict.FAIL) == raises
    after = Runner(Check(spec, look), engine).run(LINEAR)
    assert not [m for m in after.mismatches if m.kind == "exception"], after.mismatches


def test_ranks_that_share_a_process_are_refused(threads: Engine) -> None:
    result = Runner(CHECKS["megatron_column"], threads).run(LINEAR)
    assert any("use --engine gloo" in str(detail(m).get("reason")) for m in result.mismatches)
