"""Whether the ranks' masks are coordinated: by the bits of what they drew, and how it is split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tpcheck import Replicate, Shard
from tpcheck.case import Case
from tpcheck.evidence import MaskRepeated, MasksAgree, MasksDiffer
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Placement
from tpcheck.protocol.messages import DrawnMask, RankReport
from tpcheck.protocol.problem import Problem
from tpcheck.runner.masks import telling, uncoordinated
from tpcheck.tensors.masks import Chance, Mask

WHOLE: Mapping[str, Placement] = {"tp": Replicate()}
SPLIT: Mapping[str, Placement] = {"tp": Shard(1)}
MASK = Mask(torch.ones(4, 8, dtype=torch.bool), Chance(0.5))


def found(
    bits: str, entry: Mapping[str, Placement] = SPLIT, *, tells: float = 40.0, mesh: Any = None
) -> list[Any]:
    """Of ranks that drew masks of these bits, a letter each; of several masks with blanks."""
    posed, reports = drawn(bits, entry, tells=tells, mesh=mesh)
    return [m.detail for m in uncoordinated(posed, reports)]


def drawn(
    bits: str, entry: Mapping[str, Placement] = SPLIT, *, tells: float = 40.0, mesh: Any = None
) -> tuple[Posed, list[RankReport]]:
    case = Case(mesh=mesh or {"tp": len(bits.split()[0])})
    masks = {"": [MASK] * len(bits.split())}
    posed = Posed(case, [Problem(d, masks=masks) for d in range(case.dp)], {}, {}, {})
    reports = [RankReport(rank) for rank in range(case.world_size)]
    for number, own in enumerate(bits.split()):
        for report, letter in zip(reports, own, strict=True):
            mask = DrawnMask(entry, letter, tells, "f.py:3", "mlp")
            report.drawn[f"mask{number}"] = mask
    return posed, reports


def test_ranks_with_the_same_elements_must_draw_the_same() -> None:
    assert found("aaaa", WHOLE) == []
    assert found("aaba", WHOLE) == [MasksDiffer((0, 1, 2, 3), (2,), "f.py:3", "mlp")]
    assert found("ab", WHOLE, tells=1.0), "of one bit, too: they must be the same"


def test_ranks_with_parts_must_not() -> None:
    assert found("abcd") == []
    assert found("abcb") == [MasksAgree((1, 3), (1,), "f.py:3", "mlp")]


def test_one_that_is_another_s_is_enough_whatever_the_others_are() -> None:
    assert found("ab cc de") == [MasksAgree((0, 1), (1,), "f.py:3", "mlp")]


def test_what_another_rank_drew_before_is_drawn_again() -> None:
    assert found("ab bc") == [MaskRepeated("mask0", "f.py:3", "mlp")]
    assert found("ab bc", tells=20.0) == []
    assert found("aabb cccc", WHOLE, mesh={"dp": 2, "tp": 2}) == []


def test_small_masks_may_be_the_same_by_chance() -> None:
    assert found("aa", tells=20.0) == []
    assert found("aa bb", tells=20.0) == [MasksAgree((0, 1), (1,), "f.py:3", "mlp")]
    assert found("aa bc", tells=20.0) == [], "they are not the same in all"


def test_how_much_the_masks_of_a_line_tell_is_counted_where_ranks_have_parts() -> None:
    posed, reports = drawn("aa bb", tells=10.0)
    assert telling(posed.case, reports) == {"f.py:3": 20.0}
    posed, reports = drawn("aa bb", WHOLE, tells=10.0)
    assert telling(posed.case, reports) == {}
    assert telling(posed.case, []) == {}


def test_other_data_may_be_dropped_alike() -> None:
    mesh = {"dp": 2, "tp": 2}
    assert found("abab", mesh=mesh) == []
    assert found("aabb", mesh=mesh) == [MasksAgree((0, 1), (1,), "f.py:3", "mlp")]
    assert found("aabb", WHOLE, mesh=mesh) == []
    assert found("abcc", WHOLE, mesh=mesh) == [MasksDiffer((0, 1), (1,), "f.py:3", "mlp")]


def test_a_mask_that_some_rank_did_not_draw_is_said_elsewhere() -> None:
    case = Case(mesh={"tp": 2})
    posed = Posed(case, [Problem(0, masks={"": [MASK]})], {}, {}, {})
    own, none = RankReport(0), RankReport(1)
    own.drawn["mask0"] = DrawnMask(SPLIT, "a", 40.0, "f.py:3", "mlp")
    assert uncoordinated(posed, [own, none]) == uncoordinated(posed, [none, own]) == []
