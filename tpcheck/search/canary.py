"""The canary: a row-parallel linear without its all-reduce, run in each `verify`.

A harness that calls it right sees nothing, so no verdict of that run can be trusted. A correct
twin runs beside it: it must pass, and its one all-reduce must be in the trace, since an auditor
that silently counts nothing is the worst kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.spec import Check
from tpcheck.specs.linear import row_linear
from tpcheck.verdict import Verdict

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

_CASE = Case(
    dims={"batch": 1, "seq": 2, "in_features": 4, "out_features": 3, "bias": False},
    mesh={"tp": 2},
)


def row(*, reduce: bool) -> Any:
    """A builder of the candidate: x [B, S, K/R] · wᵀ, then the sum over the ranks, or not."""

    def build(case: Case, mesh: Any) -> Any:
        import torch
        import torch.distributed as dist

        group = mesh["tp"].get_group()

        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                out = x.clone()
                dist.all_reduce(out, group=group)
                return out

            @staticmethod
            def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
                return grads[0]

        class Row(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                wide = case["in_features"] // case.tp
                self.weight = torch.nn.Parameter(torch.empty(case["out_features"], wide))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                partial = torch.nn.functional.linear(x, self.weight)
                return Sum.apply(partial) if reduce else partial

        return Row()

    return build


def sings(engine: Engine) -> str | None:
    """None when the canary is found and its correct twin is not; else why nothing can be
    trusted on this engine."""
    if engine.ranks < 2:
        return None  # one rank can't be wrong together with another
    spec = row_linear(even=True)
    try:
        wrong = Runner(Check(spec, row(reduce=False), name="canary"), engine).run(_CASE)
        right = Runner(Check(spec, row(reduce=True), name="canary"), engine).run(_CASE)
    except InvalidArgument as error:
        return f"the canary could not run: {error}"
    if wrong.verdict is not Verdict.FAIL or "output" not in {m.kind for m in wrong.mismatches}:
        return "the canary (a row linear without its all-reduce) was not found"
    if right.verdict is not Verdict.PASS:
        return f"a correct row linear was called wrong: {right.mismatches[0].to_dict()}"
    seen = [event["op"] for event in right.trace[0]]
    if seen != ["all_reduce"]:
        return f"the trace of one all-reduce shows {seen}"
    return None
