"""A collective is told the module that it came from, in forward and in backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixtures.parallel import collectives
from tests.candidates import STACK, stack
from tpcheck import Case, Check, specs
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.report.text import describe
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict


def refusing(phase: str) -> Check:
    """One rank reduces something else in the second layer's `down`, in forward or backward."""

    def build(case: Case, mesh: Any) -> nn.Module:
        module = stack(case, mesh)
        down: Any = module.blocks[1].mlp.down

        def odd(x: Tensor) -> Tensor:
            wide = torch.cat([x, x]) if down.rank == 1 else x
            return collectives.all_reduce(wide, group=down.group)[: len(x)]

        steps = {"forward": collectives.identity, "backward": collectives.identity} | {phase: odd}
        down.sum_output = lambda partial: collectives.conjugate(partial, **steps)
        return module

    return Check(specs.stack(), build, name="stack")


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_refused_collective_names_its_module(gloo: Engine, phase: str) -> None:
    runner = Runner(refusing(phase), gloo)
    found = runner.run(Case(dims=STACK, mesh={"tp": 2}))
    assert found.verdict is Verdict.FAIL
    examined = examine_failure(runner, found)
    assert examined.first_divergence == f"blocks.1.mlp.down ({phase})"
    assert examined.diagnosis.code == "collective-mismatch"
    text = describe(examined.mismatches[0])
    assert text.count(f"in {phase} of blocks.1.mlp.down at ") == 4  # who enters what, each rank
