"""The faults of plans in words: a sentence for each class of `PlanCause`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.errors import counted
from tpcheck.figures import plan_causes as causes
from tpcheck.figures.plan import Finding, Source
from tpcheck.figures.plan_reasons import LeftOut
from tpcheck.report.names import brief
from tpcheck.report.placements import placed, reason
from tpcheck.tensors.names import Wrapper, generic

_WRAPPERS = {
    Wrapper.COMPILE: "torch.compile",
    Wrapper.CHECKPOINTING: "CheckpointWrapper (activation checkpointing)",
    Wrapper.FSDP: "FullyShardedDataParallel",
    "module": "DistributedDataParallel, or another wrapper with a child `module`",
}


def inapplicable(cause: causes.WrongModule | causes.StyleRaised) -> str:
    """Why a style can't be applied to a module."""
    if isinstance(cause, causes.WrongModule):
        return (
            f"{cause.style} can only be applied to nn.Linear and nn.Embedding, "
            f"not to {cause.module}"
        )
    return f"{cause.style} can't be applied to {cause.module}: {cause.said}"


@singledispatch
def said(cause: causes.PlanCause, finding: Finding) -> str:
    """The sentence of a finding with this cause."""
    raise TypeError(f"{type(cause).__name__} has no sentence")


# ---- what a key matched


@said.register
def _(cause: causes.UnmatchedKey, finding: Finding) -> str:
    where = cause.reached or "the model's root"
    behind = ""
    if cause.wrapper:
        behind = f" (it is behind {_WRAPPERS[cause.wrapper]}; apply the plan first)"
    return f"{finding.entry!r} matches no module: {where} has no {cause.part!r}{behind}" + _near(
        finding
    )


@said.register
def _(cause: causes.IgnoredKey, finding: Finding) -> str:
    return (
        f"{finding.entry!r} matches no module: parallelize_module skips it, since nothing is "
        f"called {cause.part!r} where it looks{_near(finding)}"
    )


@said.register
def _(cause: causes.MatchedInPart, finding: Finding) -> str:
    return (
        f"{finding.entry!r} matches {cause.matched} of {cause.expected}: {brief(finding.names)} "
        f"has no {cause.part!r}{_near(finding)}"
    )


@said.register
def _(cause: causes.UnmatchedDeclaration, finding: Finding) -> str:
    return f"{cause.field}={finding.entry!r} is declared, and matches no parameter"


def _near(finding: Finding) -> str:
    return f"; there is {', '.join(finding.suggestions)}" if finding.suggestions else ""


# ---- a style on its module


@said.register
def _(cause: causes.StyledTwice, finding: Finding) -> str:
    return (
        f"{finding.entry!r} puts {cause.style} on {finding.names[0]}, which is the same module as "
        f"{cause.other}, and that has a style: hooks would run twice; name the module once"
    )


@said.register
def _(cause: causes.NothingToShard, finding: Finding) -> str:
    return (
        f"{finding.entry!r} puts {cause.style} on {finding.names[0]} ({cause.module}), which has "
        "no parameters of its own"
    )


@said.register(causes.WrongModule)
@said.register(causes.StyleRaised)
def _(cause: causes.WrongModule | causes.StyleRaised, finding: Finding) -> str:
    at = f" at {finding.names[0]}" if finding.names[0] else ""
    return f"{finding.entry!r}{at}: {inapplicable(cause)}"


@said.register
def _(cause: causes.Contradicted, finding: Finding) -> str:
    return (
        f"{finding.names[0]}: {cause.other!r} says {placed(cause.other_place)}, "
        f"{finding.entry!r} says {placed(cause.place)}"
    )


# ---- what must stay together


@said.register
def _(cause: causes.HeadsCut, finding: Finding) -> str:
    return (
        f"{brief(finding.names)}: tp={cause.tp} does not divide {cause.counted}={cause.heads}: "
        f"{cause.size} = {counted(cause.heads, 'head')} of {cause.head_dim}, split into pieces of "
        f"{-(-cause.size // cause.tp)}, which cuts heads"
    )


@said.register
def _(cause: causes.GateUpAsOne, finding: Finding) -> str:
    return (
        f"{brief(finding.names)}: fused [gate | up] of {counted(cause.rows, 'row')}, split as one: "
        "the first ranks get gate, the others up; unfuse it, or pack it (packed_colwise)"
    )


@said.register
def _(cause: causes.QkvAsOne, finding: Finding) -> str:
    return (
        f"{brief(finding.names)}: fused [q | k | v] of {cause.q} + {cause.kv} + "
        f"{counted(cause.kv, 'row')}, split as one: ranks get other parts than their heads'; "
        "unfuse it into q_proj, k_proj, v_proj"
    )


@said.register
def _(cause: causes.TiedApart, finding: Finding) -> str:
    anew = " (parallelize_module registers a new parameter for each)" if cause.together else ""
    return f"{_places(cause)}; they are one tensor, and would be {len(cause.places)}{anew}"


def _places(cause: causes.TiedApart | causes.TieLost) -> str:
    return ", ".join(f"{name}: {placed(place)}" for name, place in cause.places)


# ---- what one module gives the next


@said.register
def _(cause: causes.Unconsumed, finding: Finding) -> str:
    return (
        f"{brief(finding.names)}: sharded features (Shard(-1)) that no row split consumes; the "
        "projection after it must be RowwiseParallel, or its output gathered"
    )


@said.register
def _(cause: causes.Unfed, finding: Finding) -> str:
    return (
        f"{brief(finding.names)}: takes sharded features (Shard(-1)), and no column split gives "
        "them; the projection before it is replicated"
    )


@said.register
def _(cause: causes.UnevenInput, finding: Finding) -> str:
    return (
        f"{finding.names[0]}: tp={cause.tp} does not divide its in_features={cause.in_features}, "
        f"and {cause.style} takes plain tensors for equal parts; give the column splits before it "
        "use_local_output=False, or choose another size"
    )


@said.register
def _(cause: causes.GathersTokenIds, finding: Finding) -> str:
    return (
        f"{finding.names[0]}: {cause.style} takes the token ids for one rank's part and gathers "
        "them; give input_layouts=Replicate()"
    )


@said.register
def _(cause: causes.ShardsHiddenStates, finding: Finding) -> str:
    return (
        f"{finding.names[0]}: {cause.style} gives each rank a part of the hidden state; give "
        "output_layouts=Replicate()"
    )


@said.register
def _(cause: causes.WholeIntoSequence, finding: Finding) -> str:
    return (
        f"{brief(cause.norms)}: SequenceParallel takes the whole output of {brief(cause.rows)} for "
        "one rank's part of the sequence; give those output_layouts=Shard(1)"
    )


@said.register
def _(cause: causes.PartialOverFeatures, finding: Finding) -> str:
    return (
        f"{brief(finding.names)}: replicated, between splits by features: the gradient is that of "
        "this rank's features (its heads) only; sum it over the ranks "
        "(replicated_with_grad_allreduce, SequenceParallel over the heads' dim), or declare "
        f"{_reduced(finding)} where the framework does"
    )


@said.register
def _(cause: causes.PartialOverSequence, finding: Finding) -> str:
    return (
        f"{brief(finding.names)}: replicated, on activations sharded along the sequence: the "
        "gradient is that of this rank's tokens only; put SequenceParallel() on it, or declare "
        f"{_reduced(finding)} where the framework sums it"
    )


def _reduced(finding: Finding) -> str:
    """How a parameter is declared whose gradient the framework sums."""
    own = f'reduced=("{generic(finding.names[0])}",)'
    return own if finding.source is Source.PYTHON else f"it by a tpcheck.Plan(…, {own}) as --plan"


# ---- what is sharded, of the plan or of a parallelized model


@said.register
def _(cause: causes.NotSharded, finding: Finding) -> str:
    names, pattern = brief(finding.names), generic(finding.names[0])
    if len(finding.names) == 1 and isinstance(cause.why, LeftOut):
        (pattern,) = finding.names  # the others of the pattern are sharded, and are to stay so
    if finding.source is Source.FACTORY:
        return f"{names}: the factory leaves it whole; shard it there, or give --whole '{pattern}'"
    by = f'whole=("{pattern}",)' if finding.source is Source.PYTHON else f"--whole '{pattern}'"
    return f"{names}: {reason(cause.why)}; shard it, or declare it by {by}"


@said.register(causes.Misplaced)
@said.register(causes.Unreached)
def _(cause: causes.Misplaced | causes.Unreached, finding: Finding) -> str:
    text = (
        f"{brief(finding.names)}: {placed(cause.place)}, {finding.entry!r} promises "
        f"{placed(cause.promised)}"
    )
    if isinstance(cause, causes.Misplaced):
        return text
    behind = f" (behind {_WRAPPERS[cause.wrapper]}: apply the plan first)" if cause.wrapper else ""
    return f"{text}, which matches nothing{behind}"


@said.register
def _(cause: causes.TieLost, finding: Finding) -> str:
    return f"{_places(cause)}; they are one tensor before, and {len(cause.places)} after"
