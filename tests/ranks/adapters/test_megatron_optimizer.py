"""Megatron-core's distributed optimizer: right as it is, and told where its parts are not summed,
or not sent."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

from tests import ROOT
from tpcheck.engines.engine import Engine
from tpcheck.report import as_json
from tpcheck.search.collect import collect
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import CheckResult, Verdict
from tpcheck.vocabulary import Kind

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

from fixtures.frameworks.megatron_optimizer import Distributed

FILE = ROOT / "properties" / "_frameworks" / "megatron_optimizer.py"
CHECKS = {check.title: check for check in collect([str(FILE)])}
#: What a step leaves.
LEFT = {Kind.PARAM, Kind.OPTIMIZER_STATE, Kind.REPLICA}
MLP = "megatron_mlp_distributed_optimizer"


class NotReduced(Distributed):
    """Each rank steps its part by the gradients of its own data."""

    def reduce(self) -> None:
        pass


class NotGathered(Distributed):
    """Each rank keeps what it has stepped, and the others' parts as they were."""

    def take_step(self) -> None:
        before = [parameter.detach().clone() for parameter in self.module.parameters()]
        super().take_step()
        if self.group is not None and self.group.rank():
            for parameter, old in zip(self.module.parameters(), before, strict=True):
                with torch.no_grad():
                    parameter.copy_(old)


def searched(engine: Engine, name: str, optimizer: type[Distributed]) -> CheckResult:
    check = replace(CHECKS[name], optimizer=optimizer, overrides={})
    options = Options(examples=2, seed=7, degrees=(1, 2), corpus=None)
    return Search(check, engine, options).run()


@pytest.mark.parametrize("name", CHECKS)
def test_it_passes(engine: Engine, name: str) -> None:
    result = searched(engine, name, Distributed)
    assert result.verdict is Verdict.PASS, as_json.check(result)
    assert result.tp_degrees == [1, 2]


@pytest.mark.parametrize("wrong", [NotReduced, pytest.param(NotGathered, marks=pytest.mark.sweep)])
def test_what_is_not_summed_or_not_sent_is_found(engine: Engine, wrong: type[Distributed]) -> None:
    found = searched(engine, MLP, wrong).counterexample
    assert found is not None
    assert {mismatch.name.at.step for mismatch in found.mismatches} == {0}, found.mismatches
    assert {mismatch.kind for mismatch in found.mismatches} <= LEFT
    assert found.diagnosis.code != "rank-crash"
