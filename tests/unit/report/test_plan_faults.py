"""Every fault of a plan has a sentence with both sides in it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tpcheck.figures import plan_causes as causes
from tpcheck.figures.plan import Finding, Source
from tpcheck.figures.plan_causes import PlanCause
from tpcheck.figures.plan_reasons import LeftOut, Unnamed
from tpcheck.placement import Replicate, Shard
from tpcheck.report.plan import sentence
from tpcheck.report.plan_faults import said
from tpcheck.vocabulary import Code

UP, DOWN = "layers.0.up.weight", "layers.0.down.weight"
HALVES = (("embed.weight", None), ("head.weight", Shard(0)))
BOTH = (("embed.weight", Shard(0)), ("head.weight", Shard(0)))
NEAR: Any = {"suggestions": ("layers.*.up", "layers.*.gate")}


def say(cause: Any, *names: str, entry: str | None = "layers.*.up", **more: Any) -> str:
    return sentence(Finding(Code.WRONG_PLACEMENT, cause, names or (UP,), entry, **more))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            say(causes.UnmatchedKey("", "layers", None), **NEAR),
            "'layers.*.up' matches no module: the model's root has no 'layers'; there is "
            "layers.*.up, layers.*.gate",
        ),
        (
            say(causes.UnmatchedKey("layers.0", "up", "_orig_mod")),
            "'layers.*.up' matches no module: layers.0 has no 'up' (it is behind torch.compile; "
            "apply the plan first)",
        ),
        (
            say(causes.UnmatchedKey("", "up", "module")),
            "'layers.*.up' matches no module: the model's root has no 'up' (it is behind "
            "DistributedDataParallel, or another wrapper with a child `module`; apply the plan "
            "first)",
        ),
        (
            say(causes.MatchedInPart(2, 3, "up"), "layers.1", suggestions=("layers.1.m.up",)),
            "'layers.*.up' matches 2 of 3: layers.1 has no 'up'; there is layers.1.m.up",
        ),
        (
            say(causes.UnmatchedDeclaration("reduced"), "*norm", entry="*norm"),
            "reduced='*norm' is declared, and matches no parameter",
        ),
        (
            say(causes.StyledTwice("ColwiseParallel", "layers.0.up"), "layers.1.up"),
            "'layers.*.up' puts ColwiseParallel on layers.1.up, which is the same module as "
            "layers.0.up, and that has a style: hooks would run twice; name the module once",
        ),
        (
            say(causes.NothingToShard("colwise", "MLP"), "layers.0"),
            "'layers.*.up' puts colwise on layers.0 (MLP), which has no parameters of its own",
        ),
        (
            say(causes.WrongModule("ColwiseParallel", "LayerNorm"), "norm"),
            "'layers.*.up' at norm: ColwiseParallel can only be applied to nn.Linear and "
            "nn.Embedding, not to LayerNorm",
        ),
        (
            say(causes.StyleRaised("Own", "ReLU", "no weight"), "", entry=""),
            "'': Own can't be applied to ReLU: no weight",
        ),
        (
            say(causes.Contradicted("layers.0.up", Shard(0), Replicate())),
            f"{UP}: 'layers.0.up' says Shard(0), 'layers.*.up' says Replicate()",
        ),
        (
            say(causes.HeadsCut(2, "num_heads", heads=3, head_dim=8, size=24)),
            f"{UP}: tp=2 does not divide num_heads=3: 24 = 3 heads of 8, split into pieces of "
            "12, which cuts heads",
        ),
        (
            say(causes.GateUpAsOne(48)),
            f"{UP}: fused [gate | up] of 48 rows, split as one: the first ranks get gate, the "
            "others up; unfuse it, or pack it (packed_colwise)",
        ),
        (
            say(causes.QkvAsOne(32, 16)),
            f"{UP}: fused [q | k | v] of 32 + 16 + 16 rows, split as one: ranks get other parts "
            "than their heads'; unfuse it into q_proj, k_proj, v_proj",
        ),
        (
            say(causes.TiedApart(HALVES)),
            "embed.weight: whole, head.weight: Shard(0); they are one tensor, and would be 2",
        ),
        (
            say(causes.TiedApart(BOTH)),
            "embed.weight: Shard(0), head.weight: Shard(0); they are one tensor, and would be 2 "
            "(parallelize_module registers a new parameter for each)",
        ),
        (
            say(causes.Unconsumed()),
            f"{UP}: sharded features (Shard(-1)) that no row split consumes; the projection after "
            "it must be RowwiseParallel, or its output gathered",
        ),
        (
            say(causes.Unfed(), DOWN),
            f"{DOWN}: takes sharded features (Shard(-1)), and no column split gives them; the "
            "projection before it is replicated",
        ),
        (
            say(causes.UnevenInput(2, 33, "RowwiseParallel"), "down"),
            "down: tp=2 does not divide its in_features=33, and RowwiseParallel takes plain "
            "tensors for equal parts; give the column splits before it use_local_output=False, or "
            "choose another size",
        ),
        (
            say(causes.GathersTokenIds("RowwiseParallel"), "embed"),
            "embed: RowwiseParallel takes the token ids for one rank's part and gathers them; give "
            "input_layouts=Replicate()",
        ),
        (
            say(causes.ShardsHiddenStates("ColwiseParallel"), "embed"),
            "embed: ColwiseParallel gives each rank a part of the hidden state; give "
            "output_layouts=Replicate()",
        ),
        (
            say(causes.WholeIntoSequence(("norm",), ("down",)), "norm", "down"),
            "norm: SequenceParallel takes the whole output of down for one rank's part of the "
            "sequence; give those output_layouts=Shard(1)",
        ),
        (
            say(causes.PartialOverFeatures(), "q_norm.weight"),
            "q_norm.weight: replicated, between splits by features: the gradient is that of this "
            "rank's features (its heads) only; sum it over the ranks "
            "(replicated_with_grad_allreduce, SequenceParallel over the heads' dim), or declare "
            'reduced=("q_norm.weight",) where the framework does',
        ),
        (
            say(causes.PartialOverSequence(), "norm.weight"),
            "norm.weight: replicated, on activations sharded along the sequence: the gradient is "
            "that of this rank's tokens only; put SequenceParallel() on it, or declare "
            'reduced=("norm.weight",) where the framework sums it',
        ),
        (
            say(causes.NotSharded(Unnamed())),
            f'{UP}: no entry names it; shard it, or declare it by whole=("layers.*.up.weight",)',
        ),
        (
            say(causes.NotSharded(Unnamed()), source=Source.COMMAND),
            f"{UP}: no entry names it; shard it, or declare it by --whole 'layers.*.up.weight'",
        ),
        (
            say(causes.NotSharded(LeftOut((DOWN,)))),
            f"{UP}: left out, while {DOWN} of the same kind is sharded; shard it, or declare it by "
            f'whole=("{UP}",)',
        ),
        (
            say(causes.NotSharded(LeftOut((DOWN,))), UP, "layers.1.up.weight"),
            f"{UP}, layers.1.up.weight: left out, while {DOWN} of the same kind is sharded; shard "
            'it, or declare it by whole=("layers.*.up.weight",)',
        ),
        (
            say(causes.NotSharded(Unnamed()), source=Source.FACTORY),
            f"{UP}: the factory leaves it whole; shard it there, or give "
            "--whole 'layers.*.up.weight'",
        ),
        (
            say(causes.PartialOverSequence(), "norm.weight", source=Source.COMMAND),
            "norm.weight: replicated, on activations sharded along the sequence: the gradient is "
            "that of this rank's tokens only; put SequenceParallel() on it, or declare it by a "
            'tpcheck.Plan(…, reduced=("norm.weight",)) as --plan where the framework sums it',
        ),
        (
            say(causes.IgnoredKey("dwn"), entry="dwn", suggestions=("down",)),
            "'dwn' matches no module: parallelize_module skips it, since nothing is called 'dwn' "
            "where it looks; there is down",
        ),
        (
            say(causes.Misplaced(Shard(1), Shard(0))),
            f"{UP}: Shard(1), 'layers.*.up' promises Shard(0)",
        ),
        (
            say(causes.Unreached(None, Shard(0), None)),
            f"{UP}: whole, 'layers.*.up' promises Shard(0), which matches nothing",
        ),
        (
            say(causes.Unreached(None, Shard(0), "_checkpoint_wrapped_module")),
            f"{UP}: whole, 'layers.*.up' promises Shard(0), which matches nothing (behind "
            "CheckpointWrapper (activation checkpointing): apply the plan first)",
        ),
        (
            say(causes.TieLost(HALVES)),
            "embed.weight: whole, head.weight: Shard(0); they are one tensor before, and 2 after",
        ),
    ],
)
def test_what_is_said(text: str, words: str) -> None:
    assert text == words


def test_every_fault_has_a_sentence() -> None:
    assert set(said.registry) - {object} == set(get_args(PlanCause))


def test_a_fault_without_a_sentence_is_seen() -> None:
    with pytest.raises(TypeError, match="Unnamed has no sentence"):
        say(Unnamed())
