"""Any `nn.Module` under a plan of torch's `parallelize_module`, in a few lines:

mlp = dtensor.check(
    lambda case: MLP(case["hidden"], case["inner"]),
    {"up": ColwiseParallel(), "down": RowwiseParallel()},
    cases=cases,
    inputs=lambda case, draw: {"x": draw("x", case["tokens"], case["hidden"])},
)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.layout import Layout
from tpcheck.plan.plan import as_plan
from tpcheck.spec import Spec

Build = Callable[[Case], nn.Module]


def check(
    build: Build,
    plan: Any,
    *,
    cases: Any,
    inputs: Callable[[Case, Any], Mapping[str, Tensor]],
    layout: Callable[[Case], Layout] | None = None,
    name: str = "dtensor_plan",
    known: Any = (),
    **more: Any,
) -> Check:
    """The check of `build(case)` under `plan` against itself unsharded. The plan is audited too.

    Args:
        build: case → the unsharded module; it is the reference, and what the plan is applied to.
        plan: module names → styles, a `tpcheck.Plan` (which declares what is meant to stay
            whole), or case → one of these.
        cases: as in `Spec`.
        inputs: as in `Spec`.
        layout: where inputs are not replicated, or outputs are local tensors of a sharded result;
            parameters, and outputs that are DTensors, say themselves how they are placed.
        name: as in `Check`.
        known: as in `Check`.
        more: further fields of `Spec`.

    Raises:
        InvalidArgument: `plan` is none of these.
    """
    if not callable(plan):
        as_plan(plan)
    spec = Spec(
        name=name,
        cases=cases,
        reference=build,
        inputs=inputs,
        layout=layout or (lambda case: Layout()),
        **more,
    )
    return Check(spec, candidate(build, plan), plan=plan, known=known)


def candidate(build: Build, plan: Any) -> Callable[[Case, DeviceMesh], nn.Module]:
    """The candidate of a `Check`: `parallelize_module` on `mesh["tp"]`."""

    def on_rank(case: Case, mesh: DeviceMesh) -> nn.Module:
        from torch.distributed.tensor.parallel import parallelize_module

        entries = as_plan(plan(case) if callable(plan) else plan).entries
        return parallelize_module(build(case), mesh["tp"], dict(entries))

    return on_rank
