"""Which elements were judged: those that some rank compared, and where a wrong value shows."""

from __future__ import annotations

from dataclasses import replace

import torch

from tpcheck import Heads, Replicate, Shard
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.evidence.judged import Judged
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Entry, Only
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Problem, Target
from tpcheck.runner.judged import judged
from tpcheck.vocabulary import Kind, Unjudged

CASE = Case(mesh={"tp": 2})
KEY = (Kind.OUTPUT, "y")


def target(entry: Entry, name: str = "y", size: int = 4) -> Target:
    value = torch.arange(size, dtype=torch.float64)
    spread = Spread(torch.ones(size, dtype=torch.float64), 1, 1)
    return Target(Kind.OUTPUT, name, entry, torch.float32, value, spread, own=value.float())


def found(
    *targets: Target, held: dict[int, Entry], case: Case = CASE, again: Posed | None = None
) -> Judged:
    posed = Posed(case, [Problem(d, targets=list(targets)) for d in range(case.dp)], {}, {}, {})
    reports = [RankReport(rank) for rank in range(case.world_size)]
    for rank, entry in held.items():
        reports[rank].compared = {(t.kind, t.name): entry for t in targets}
        reports[rank].suspects = {(t.kind, t.name): entry for t in targets} if again else {}
    return judged(posed, reports, again)[KEY]


SHARDED: dict[str, Entry] = {"tp": Shard(0)}


def test_every_element_on_one_rank_is_all() -> None:
    assert found(target(Shard(0)), held={0: SHARDED, 1: SHARDED}).complete
    assert found(target(Replicate()), held={1: {"tp": Replicate()}}).complete
    assert found(target({"tp": Only(0)}), held={0: {"tp": Only(0)}}).complete
    assert found(target(Heads(0, 1)), held={1: {"tp": Heads(0, 1)}}).complete


def test_a_shard_that_no_rank_compared_is_not_judged() -> None:
    half = found(target(Shard(0)), held={1: SHARDED})
    assert half == Judged(4, 2, 1, 1, {Unjudged.NOT_COMPARED: 2})
    assert found(target(Shard(0)), held={}).why == {Unjudged.NOT_COMPARED: 4}
    assert found(target(Shard(0)), held={}).blind


def test_a_buffer_that_a_candidate_computes_and_does_not_have_is_its_own_affair() -> None:
    of = replace(target(Replicate(), "cos@step2"), kind=Kind.PARAM)
    for computed in (frozenset({"cos"}), frozenset[str]()):
        posed = Posed(CASE, [Problem(targets=[of])], {}, {}, {}, computed=computed)
        for held, judged_in in (({}, 0), ({(Kind.PARAM, "cos@step2"): SHARDED}, 1)):
            reports = [RankReport(0, compared=held), RankReport(1)]
            known = judged(posed, reports).get((Kind.PARAM, "cos"))
            assert (known is None) is (bool(computed) and not held)
            assert known is None or known.judged_in == judged_in


def test_a_rank_that_has_it_otherwise_than_the_layout_says_counts_by_what_it_has() -> None:
    """As a DTensor whose own placement is another."""
    whole: Entry = {"tp": Replicate()}
    assert found(target(Shard(0)), held={0: whole}).complete
    assert found(target(Replicate()), held={0: SHARDED}).judged == 2
    assert found(target(Replicate()), held={0: SHARDED, 1: SHARDED}).complete


def test_each_dp_coordinate_has_elements_of_its_own() -> None:
    case = Case(mesh={"dp": 2, "tp": 2})
    both = {rank: SHARDED for rank in range(4)}
    assert found(target(Shard(0)), held=both, case=case) == Judged(8, 8, 1, 1)
    del both[3]
    assert found(target(Shard(0)), held=both, case=case).judged == 6


def test_passes_count_as_one_tensor() -> None:
    everywhere = {0: SHARDED, 1: SHARDED}
    passes = [target(Shard(0), name) for name in ("y", "y@1", "y@step")]
    assert found(*passes, held=everywhere) == Judged(12, 12, 1, 1)


def test_each_element_that_is_not_judged_has_a_reason() -> None:
    whole = target(Replicate())
    sigma = torch.tensor([1.0, torch.inf, torch.inf, torch.inf], dtype=torch.float64)
    value = torch.tensor([0.0, torch.nan, 1.0, 2.0], dtype=torch.float64)
    own = torch.tensor([0.0, torch.nan, torch.inf, 2.0])
    spread = replace(whole.spread, sigma=sigma)
    floats = replace(whole, value=value, own=own, spread=spread)
    assert found(floats, held={0: {"tp": Replicate()}}).why == {
        Unjudged.NOT_FINITE: 1,
        Unjudged.OVERFLOW: 1,
        Unjudged.MAY_OVERFLOW: 1,
    }
    bools = replace(whole, dtype=torch.bool, spread=spread)
    assert found(bools, held={0: {"tp": Replicate()}}).why == {Unjudged.TIE: 3}


def test_a_bound_beyond_every_number_of_the_dtype_judges_nothing() -> None:
    whole = target(Replicate())
    for sigma, judged_of in ((1e30, 4), (1e39, 0)):
        wide = Spread(torch.full((4,), sigma, dtype=torch.float64), 10**9, 10**9)
        one = found(replace(whole, spread=wide), held={0: {"tp": Replicate()}})
        assert one.judged == judged_of


def test_a_suspect_that_the_second_look_can_not_judge_was_not_judged() -> None:
    first = target(Replicate())
    blind = replace(first, spread=Spread(torch.full((4,), torch.inf, dtype=torch.float64), 1, 1))
    again = Posed(CASE, [Problem(targets=[blind])], {}, {}, {})
    held: dict[int, Entry] = {0: {"tp": Replicate()}}
    assert found(first, held=held).complete
    assert found(first, held=held, again=again).why == {Unjudged.MAY_OVERFLOW: 4}


def test_an_empty_tensor_was_judged() -> None:
    assert found(target(Shard(0), size=0), held={}) == Judged(0, 0, 1, 1)


def test_what_only_the_candidate_returns_is_named_once() -> None:
    posed = Posed(CASE, [Problem(targets=[target(Replicate())])], {}, {}, {})
    reports = [RankReport(0, extra={"aux": 3, "aux@1": 3, "y@1": 4}), RankReport(1)]
    aux = judged(posed, reports)[Kind.OUTPUT, "aux"]
    assert aux == Judged(3, 0, 1, 0, {Unjudged.EXTRA: 3})
    assert judged(posed, reports)[KEY].why == {Unjudged.NOT_COMPARED: 4}
