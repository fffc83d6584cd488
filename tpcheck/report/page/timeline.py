"""The collectives of all ranks side by side: what was entered together stands in one column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

#: Letters of each collective on the line; of others the first three.
LETTERS = {
    "all_reduce": "AR",
    "all_gather": "AG",
    "reduce_scatter": "RS",
    "all_to_all": "A2A",
    "broadcast": "BC",
    "reduce": "RD",
    "scatter": "SC",
    "gather": "GA",
    "barrier": "BAR",
    "send": "S→",
    "recv": "→R",
}

#: Columns that are drawn, at most: more than a rank's collectives that a report lists, since ranks
#: of different groups stand in columns of their own.
COLUMNS = 600

WIDTH, HEIGHT, LEFT, TOP = 40, 34, 70, 26


@dataclass(frozen=True)
class Entry:
    """A collective as one rank entered it; `group` is empty where it is not known."""

    op: str
    group: tuple[int, ...]
    phase: str
    said: str

    @property
    def what(self) -> str:
        """What all ranks of the group must have in common: the op, its dtype and its shape."""
        return "message" if self.op in ("send", "recv") else self.said.partition(" over ranks")[0]


def lines(collectives: dict[str, Any] | None, failed: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """Rank → its entries in order; of a rank that failed those that it entered last.

    Args:
        failed: as `words.ranks` gives them.
    """
    found: dict[int, list[Any]] = {}
    if collectives is not None:
        known = [_entry(one) for one in collectives["events"]]
        for rank, own in collectives["ranks"].items():
            if rank.isdecimal():
                found[int(rank)] = [known[i] for i in own if 0 <= i < len(known)]
    for one in failed:
        if one["rank"].isdecimal() and int(one["rank"]) not in found:
            found[int(one["rank"])] = [parsed(text) for text in one["last"]]
    return dict(sorted(found.items()))


def _entry(one: dict[str, Any]) -> Entry:
    return Entry(one["op"], tuple(one["group"]), one["phase"], one["said"])


def parsed(said: str) -> Entry:
    """An entry of which there is only the sentence."""
    op = re.split(r"[ (]", said, maxsplit=1)[0]
    ranks = re.search(r" over ranks ([\d,]+) in (\w+)", said)
    group = tuple(int(rank) for rank in ranks[1].split(",") if rank) if ranks else ()
    return Entry(op, group, ranks[2] if ranks else "", said)


def drawn(of: dict[int, list[Any]], failed: set[int]) -> dict[str, Any] | None:
    """What the template draws; None where no rank is known."""
    if not of:
        return None
    columns = _columns(of)
    ranks = list(of)
    boxes = []
    for number, column in enumerate(columns):
        odd = _odd(column, of)
        for rank, entry in column.items():
            boxes.append(
                {
                    "x": LEFT + number * WIDTH,
                    "y": TOP + ranks.index(rank) * HEIGHT,
                    "op": entry.op,
                    "letters": LETTERS.get(entry.op.removesuffix("_"), entry.op[:3]),
                    "phase": entry.phase if entry.phase in ("forward", "backward") else "other",
                    "odd": odd,
                    "said": f"rank {rank}: {entry.said}",
                }
            )
    return {
        "width": LEFT + len(columns) * WIDTH + 10,
        "height": TOP + len(ranks) * HEIGHT + 6,
        "rows": [
            {"rank": rank, "y": TOP + i * HEIGHT, "failed": rank in failed, "none": not of[rank]}
            for i, rank in enumerate(ranks)
        ],
        "boxes": boxes,
        "letters": sorted({(box["letters"], box["op"]) for box in boxes}),
        "steps": [_step(number, column, of) for number, column in enumerate(columns, 1)],
        "odd": any(box["odd"] for box in boxes),
        "none": not any(of.values()),
    }


def _step(number: int, column: dict[int, Entry], of: dict[int, list[Any]]) -> dict[str, Any]:
    said: dict[str, list[int]] = {}
    for rank, entry in column.items():
        said.setdefault(entry.said, []).append(rank)
    rows = [(", ".join(map(str, ranks)), text) for text, ranks in said.items()]
    return {"number": number, "rows": rows, "odd": _odd(column, of)}


def _odd(column: dict[int, Entry], of: dict[int, list[Any]]) -> bool:
    """Whether a rank of the group is missing, or entered something else."""
    first = next(iter(column.values()))
    members = {rank for rank in first.group if rank in of}
    return members != set(column) or len({entry.what for entry in column.values()}) > 1


def _columns(of: dict[int, list[Any]]) -> list[dict[int, Entry]]:
    """Steps, each rank → its entry: the ranks of a group that have come to one together; where
    nobody's peers come, each alone."""
    at = dict.fromkeys(of, 0)
    found: list[dict[int, Entry]] = []

    def head(rank: int) -> Entry | None:
        return of[rank][at[rank]] if at[rank] < len(of[rank]) else None

    while len(found) < COLUMNS:
        waiting = {rank: own for rank in of if (own := head(rank)) is not None}
        if not waiting:
            break
        together = next((met for rank in waiting if (met := _met(rank, waiting, of))), None)
        column = together or waiting
        alike: dict[tuple[int, ...], dict[int, Entry]] = {}
        for rank, own in column.items():
            alike.setdefault(own.group, {})[rank] = own
            at[rank] += 1
        found += alike.values()
    return found


def _met(rank: int, waiting: dict[int, Entry], of: dict[int, list[Any]]) -> dict[int, Entry] | None:
    """The ranks of this one's group, where all of them stand before a collective of it."""
    group = waiting[rank].group
    members = [other for other in group if other in of]
    if rank not in members:
        return None
    met = {m: waiting[m] for m in members if m in waiting and waiting[m].group == group}
    return met if len(met) == len(members) else None
