"""What a page draws of failures on ranks."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from fixtures.parallel.linear import RowLinear
from tests import candidates
from tpcheck import Case, Check, specs
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.evidence.pictures import Fate, Pictures
from tpcheck.runner.runner import Runner


class NotReduced(RowLinear):
    def sum_output(self, partial: Tensor) -> Tensor:
        return partial


def wrong_norm(case: Case, mesh: Any) -> nn.Module:
    module = candidates.stack(case, mesh)
    module.blocks[1].mlp.norm.eps = 1e-3
    return module


def pictures(check: Check, case: Case, engine: Engine) -> Pictures:
    runner = Runner(check, engine)
    found = examine_failure(runner, runner.run(case)).pictures
    assert found is not None
    return found


def test_a_sum_that_nobody_takes(gloo: Engine) -> None:
    """Two copies that differ, no collective in forward, and the line of the class."""
    found = pictures(candidates.check(NotReduced), candidates.CASE, gloo)
    output = found.maps[0]
    assert output.kind == "output" and [panel.ranks for panel in output.panels] == [(0,), (1,)]
    assert all(cell is not None and cell > 1 for cell in output.panels[0].cells[0])
    assert found.collectives is not None and found.collectives.ranks == {0: (), 1: ()}
    line = inspect.getsourcelines(NotReduced.sum_output)[1]
    said = f"NotReduced of {__name__}, methods from test_pictures.py:{line}, forward at linear.py:"
    assert found.code[""].startswith(said)
    assert found.code["candidate()"].startswith("candidates.py:")


def test_the_boundary_where_it_is_seen_first(gloo: Engine) -> None:
    case = Case(dims=candidates.STACK, mesh={"tp": 2})
    crossed = pictures(Check(specs.stack(), wrong_norm), case, gloo).boundaries
    assert crossed is not None and crossed.first is not None
    first = crossed.rows[crossed.first]
    assert (first.module, first.fate) == ("blocks.1.mlp.norm", Fate.DIFFERS)
    assert first.error is not None and first.error > 1
    assert {row.fate for row in crossed.rows[: crossed.first]} <= {Fate.AGREES, Fate.SUM}
    assert {row.phase for row in crossed.rows} == {"forward", "backward"}
