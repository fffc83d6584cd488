"""The canary: a row-parallel linear without its all-reduce, run in each `verify`.

A harness that calls it right sees nothing, so no verdict of that run can be trusted. A correct
twin runs beside it: it must pass, and its one all-reduce must be in the trace, since an auditor
that silently counts nothing is the worst kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.report import reasons
from tpcheck.runner.runner import Runner
from tpcheck.search.failures import decided
from tpcheck.specs.linear import row_linear
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Kind

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


def why_untrusted(engine: Engine) -> str | None:
    """Why nothing can be trusted on this engine; None where the canary is found and its correct
    twin is not. To be asked through a session, which remembers the answer."""
    if engine.ranks < 2:
        return None  # one rank can't be wrong together with another
    spec = row_linear(even=True)
    try:
        wrong, right = (
            _run(Check(spec, row(reduce=reduce), name="canary"), engine) for reduce in (False, True)
        )
    except InvalidArgument as error:
        return reasons.canary_refused(error)
    if Kind.OUTPUT not in {m.kind for m in wrong.mismatches}:
        return reasons.CANARY_SURVIVED
    if right.mismatches:
        return reasons.twin_refused(right.mismatches[0])
    engine.world.ran = 0  # both candidates are ours: they leave nothing behind
    ran = [event.op for event in right.trace[0]]
    return None if ran == ["all_reduce"] else reasons.trace_is_wrong(ran)


def _run(check: Check, engine: Engine) -> CaseResult:
    runner = Runner(check, engine)
    return decided(lambda: runner.run(_CASE))  # a busy machine must not cost the engine its trust
