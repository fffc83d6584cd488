"""Where two ranks enter a collective at different places of the code."""

from __future__ import annotations

import inspect

import torch
import torch.distributed as dist

from tpcheck import Case, Check, Layout, Replicate, Spec
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Stuck
from tpcheck.runner.runner import Runner


class SkipsTheFirst(torch.nn.Linear):
    """Rank 1 leaves out the first of two collectives that are alike."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if dist.get_rank() == 0:
            dist.all_reduce(y.detach().clone())
        dist.all_reduce(y.detach().clone())
        return y


def test_a_collective_that_is_left_out_is_named_and_not_the_one_that_waits(gloo: Engine) -> None:
    spec = Spec(
        name="two",
        cases=[Case(mesh={"tp": 2})],
        reference=lambda case: torch.nn.Linear(4, 4),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(params={"*": Replicate()}),
    )
    check = Check(spec, lambda case, mesh: SkipsTheFirst(4, 4))
    result = Runner(check, gloo).run(Case(mesh={"tp": 2}))
    (hang,) = (m for m in result.mismatches if m.kind == "hang")
    assert isinstance(hang.detail, Stuck) and hang.detail.parted is not None
    first = inspect.getsourcelines(SkipsTheFirst)[1]
    lines = [entered.where for entered in hang.detail.parted]
    assert lines == [f"test_parted.py:{first + 6}", f"test_parted.py:{first + 7}"]
