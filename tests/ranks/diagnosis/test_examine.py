"""Examining a failure on ranks: causes that another case refutes, and a diagnosis that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from fixtures.mutants import MUTANTS
from fixtures.mutants import attention as attention_mutants
from fixtures.parallel.attention import Attention
from fixtures.parallel.collectives import copy_to_tp, reduce_from_tp
from fixtures.parallel.linear import RowLinear
from tests import candidates
from tpcheck import Case, Check, Layout, Shard, Spec, specs
from tpcheck.causes.reruns import WrongOnOneRank
from tpcheck.causes.structure import DiagnosisFailed
from tpcheck.diagnosis.examine import Examined, examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Code

CASE = replace(candidates.CASE, microbatches=2)


def examined(check: Check, case: Case, engine: Engine) -> Examined:
    runner = Runner(check, engine)
    found = runner.run(case)
    assert found.verdict is Verdict.FAIL
    return examine_failure(runner, found)


class Doubled(RowLinear):
    def sum_output(self, partial: Tensor) -> Tensor:
        return 2 * super().sum_output(partial)


class ReducedTwice(RowLinear):
    def sum_output(self, partial: Tensor) -> Tensor:
        return super().sum_output(super().sum_output(partial))


class Bent(RowLinear):
    def sum_output(self, partial: Tensor) -> Tensor:
        return super().sum_output(partial).sin()


class Averaged(RowLinear):
    """The mean over all tokens stands in each token's place."""

    def sum_output(self, partial: Tensor) -> Tensor:
        return super().sum_output(partial).mean(1, keepdim=True).expand_as(partial)


@pytest.mark.parametrize("wrong", [Bent, Averaged])
def test_what_one_rank_gets_wrong_alone_is_no_matter_of_ranks(gloo: Engine, wrong: type) -> None:
    found = examined(candidates.check(wrong), CASE, gloo).diagnosis
    assert found.code == "unclassified" and "wrong at tp=1, too" in found.message


def test_a_factor_that_stays_with_one_rank_is_not_of_a_sum_over_ranks(gloo: Engine) -> None:
    found = examined(candidates.check(Doubled), CASE, gloo).diagnosis
    assert found.code == "unclassified" and "wrong at tp=1, too" in found.message
    assert isinstance(found.cause, WrongOnOneRank)
    assert (found.cause.refuted, found.cause.factor) == (Code.SUMMED_TWICE, 2.0)
    assert examined(candidates.check(ReducedTwice), CASE, gloo).diagnosis.code == "summed-twice"


class ScaledKeys(Attention):
    """Keys are divided by √(query heads / K/V heads), as if their copies added up."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k / (q.shape[1] / k.shape[1]) ** 0.5, v)


@pytest.mark.parametrize(
    ("wrong", "code"), [(ScaledKeys, "unclassified"), (attention_mutants.TiledHeads, "kv-head-map")]
)
def test_a_map_of_heads_is_right_where_all_are_equal(
    gloo: Engine, wrong: type[Attention], code: str
) -> None:
    dims = {"batch": 1, "seq": 2, "hidden": 4, "heads": 8, "kv_heads": 4, "head_dim": 2}
    options = {"norm": "none", "residual": False, "bias": False, "qk_norm": False}
    flags = {"rotary": False, "causal": False}
    case = Case(dims=dims | options | flags, mesh={"tp": 2})

    def build(case: Case, mesh: Any) -> nn.Module:
        named = {name: case[name] for name in (*options, *flags)}
        sizes = (case[name] for name in ("hidden", "heads", "kv_heads", "head_dim"))
        return wrong(*sizes, **named, group=mesh["tp"].get_group())

    found = examined(Check(specs.attention(), build, name="attention"), case, gloo)
    assert found.diagnosis.code == code, found.diagnosis


class Head(nn.Module):
    """Logits of a vocabulary, the mean of their log Σ exp less that of the labels."""

    def __init__(self, vocab: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(Tensor(vocab, hidden))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(x @ self.weight.T, labels)


class ShardedHead(Head):
    """A part of the vocabulary; what e is added to before its logarithm is wrong."""

    def __init__(self, vocab: int, hidden: int, group: dist.ProcessGroup) -> None:
        super().__init__(vocab // group.size(), hidden)
        self.group, self.first = group, group.rank() * (vocab // group.size())

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        logits = copy_to_tp(x, self.group) @ self.weight.T
        own = (labels >= self.first) & (labels < self.first + len(self.weight))
        index = (labels - self.first).masked_fill(~own, 0)
        label = logits.gather(1, index[:, None])[:, 0].masked_fill(~own, 0.0)
        total = reduce_from_tp(logits.exp().sum(1), self.group) + 1e-3
        return (total.log() - reduce_from_tp(label, self.group)).mean()


def head() -> Check:
    spec = Spec(
        name="head",
        cases=[Case(dims={"vocab": 4, "hidden": 2}, mesh={"tp": 2})],
        reference=lambda case: Head(case["vocab"], case["hidden"]),
        inputs=lambda case, draw: {
            "x": draw("x", 3, case["hidden"]),
            "labels": draw.integers("labels", 0, case["vocab"], 3),
        },
        layout=lambda case: Layout(params={"weight": Shard(0)}),
    )

    def build(case: Case, mesh: Any) -> nn.Module:
        return ShardedHead(case["vocab"], case["hidden"], mesh["tp"].get_group())

    return Check(spec, build, name="head")


def test_a_loss_is_no_row_of_a_table(gloo: Engine) -> None:
    check = head()
    found = examined(check, check.spec.cases[0], gloo).diagnosis  # type: ignore[index]
    assert found.code == "unclassified" and not isinstance(found.cause, DiagnosisFailed)


def test_a_diagnosis_that_fails_leaves_the_verdict(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a view of another size")

    monkeypatch.setattr("tpcheck.diagnosis.diagnose.by_values", broken)
    found = examined(candidates.check(ReducedTwice), CASE, gloo)
    assert found.diagnosis.code == "unclassified"
    assert isinstance(found.diagnosis.cause, DiagnosisFailed)
    assert "RuntimeError in broken" in found.diagnosis.message
    assert found.mismatches and found.first_divergence == "output (forward)"


@pytest.mark.parametrize("seed", range(3))
def test_a_later_microbatch_that_is_wrong_alone_reuses_nothing_old(gloo: Engine, seed: int) -> None:
    """The target of the first is on the rank that counts it rightly."""
    (mutant,) = (m for m in MUTANTS if m.name == "loss_target_offset_of_even_shards")
    dims = {"batch": 1, "seq": 1, "vocab": 5, "width": 5, "reduction": "mean"}
    dims |= {"label_smoothing": 0.0, "z_loss": 0.0, "ignored": False}
    seeds = range(100 * seed, 100 * seed + 99)
    cases = (Case(dims=dims, mesh={"tp": 2}, microbatches=2, seed=s) for s in seeds)
    runner = Runner(mutant.check, gloo)
    found = next(r for r in map(runner.run, cases) if _only_the_second_loss(r))
    assert examine_failure(runner, found).diagnosis.code == "vocab-mask"


def _only_the_second_loss(result: CaseResult) -> bool:
    return {m.tensor for m in result.mismatches if m.kind == "loss"} == {"loss@1"}
