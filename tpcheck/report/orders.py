"""What a wrong order of parallelisms did to a model, in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from tpcheck.figures import order_causes as causes
from tpcheck.report.names import brief


def sentence(cause: causes.OrderCause, names: Sequence[str]) -> str:
    """`Float8 after FSDP: layers.0.mlp.up.weight: FSDP gathers into …`."""
    return f"{cause.row}: {said(cause, names)}"


@singledispatch
def said(cause: causes.OrderCause, names: Sequence[str]) -> str:
    """What was done to the model's `names`."""
    raise TypeError(f"{type(cause).__name__} has no sentence")


@said.register
def _(cause: causes.NamesChanged, names: Sequence[str]) -> str:
    return (
        f"{brief(names)}: replicated along tp; '{cause.wrapper}' stands in the name, and in no key"
    )


@said.register
def _(cause: causes.Converted, names: Sequence[str]) -> str:
    return (
        f"{brief(names)}: FSDP gathers into the module that Float8Linear replaced, and not in "
        "float8; the new one has the shard alone"
    )


@said.register
def _(cause: causes.Replaced, names: Sequence[str]) -> str:
    return (
        f"{brief(names)}: FSDP gathers into the module that was there before; the new one has the "
        "shard alone"
    )


@said.register
def _(cause: causes.Removed, names: Sequence[str]) -> str:
    return f"FSDP still shards and gathers {brief(names)}, which the model no longer has"


@said.register
def _(cause: causes.UnitInWrapper, names: Sequence[str]) -> str:
    return (
        f"{brief(names)}: the wrapper is around the FSDP unit, so that backward recomputes through "
        "FSDP's own hooks"
    )


@said.register
def _(cause: causes.HooksLost, names: Sequence[str]) -> str:
    return (
        f"{brief(names)}: the module that replaced the linear has its sharded weight and not the "
        "hooks by which TP converts inputs and outputs"
    )


@said.register
def _(cause: causes.Float8AllGather, names: Sequence[str]) -> str:
    return f"{brief(names)}: the float8 weight's operators have no sharding rule for DTensor"


@said.register
def _(cause: causes.ExpertsInABlock, names: Sequence[str]) -> str:
    return (
        f"one FSDP unit, {cause.unit or 'the model'}, holds {brief(cause.experts)} and "
        f"{brief(cause.others)}: its reduce-scatter meets the all-to-alls of EP in backward"
    )


@said.register
def _(cause: causes.RoutedInStages, names: Sequence[str]) -> str:
    return f"{brief(names)}: tokens are routed by their data, stages are cut once for all"
