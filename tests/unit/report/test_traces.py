"""Traces side by side: one column per distinct trace, the first disagreement of a group marked."""

from __future__ import annotations

from dataclasses import replace

from tpcheck.event import Event
from tpcheck.report.folded import COLUMNS
from tpcheck.report.traces import ROWS, parted, side_by_side
from tpcheck.vocabulary import Phase

SUM = Event("all_reduce", "sum", (0, 1), "float32", (4, 8), 32, 128, Phase.FORWARD, "mlp.py:41")
MAX = replace(SUM, reduce_op="max")
GATHER = replace(SUM, op="all_gather", reduce_op=None)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_ranks_that_entered_the_same_share_a_column() -> None:
    head, first, second = side_by_side({0: [SUM, GATHER], 1: [SUM, GATHER]})
    assert cells(head) == ["ranks 0,1"]
    assert cells(first) == ["1", "all_reduce(sum) float32[4, 8] forward mlp.py:41"]
    assert cells(second)[1].startswith("all_gather float32") and ">" not in first + second


def test_the_first_disagreement_is_marked_on_each_rank() -> None:
    lines = side_by_side({0: [SUM, SUM, GATHER], 1: [SUM, MAX, SUM]})
    assert cells(lines[0]) == ["rank 0", "rank 1"]
    assert ">" not in lines[1] + lines[3]
    assert [cell[:17] for cell in cells(lines[2])[1:]] == ["> all_reduce(sum)", "> all_reduce(max)"]


def test_a_collective_that_a_rank_never_enters_is_marked_as_none() -> None:
    lines = side_by_side({0: [SUM, GATHER], 1: [SUM]})
    assert cells(lines[2])[1].startswith("> all_gather") and cells(lines[2])[2] == "> (none)"


def test_groups_part_each_by_itself() -> None:
    """Ranks of other groups, and the two ends of a message, need not enter the same."""
    other = replace(GATHER, group=(2, 3))
    send = replace(SUM, op="send", peer=2, group=(0, 2))
    recv = replace(send, op="recv", peer=0)
    of = {0: [send, SUM], 1: [SUM], 2: [recv, other], 3: [other]}
    assert parted(of) == {}
    assert not any(">" in line for line in side_by_side(of))
    of[3] = [other, other]
    assert parted(of) == {2: 2, 3: 1}
    assert cells(side_by_side(of)[0]) == ["rank 2", "rank 3", "rank 0", "rank 1"]


def test_a_long_trace_is_shown_around_its_disagreement() -> None:
    lines = side_by_side({0: [SUM] * 200, 1: [*[SUM] * 120, MAX, *[SUM] * 79]})
    assert len(lines) == ROWS + 2 and lines[-1].strip() == "110 before these, 50 after"
    assert [line.split()[0] for line in lines if ">" in line] == ["121"]


def test_it_has_100_columns_however_many_ranks_there_are() -> None:
    long = replace(SUM, where="a/very/long/path/of/a/file.py:1234", shape=(1000, 2000, 3000))
    for count in (1, 2, 4, 8):
        traces = {rank: [long] * (rank + 1) for rank in range(count)}
        lines = side_by_side(traces)
        assert all(len(line) <= COLUMNS for line in lines)
        assert all(f"rank {rank}" in "\n".join(lines) for rank in range(count))
    assert side_by_side({0: [], 1: []}) == []
