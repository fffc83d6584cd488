"""What is told of the ranks that are given up: in what each waits, and for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tpcheck.comms.board import Board
from tpcheck.engines.hosts import Host, stacks
from tpcheck.evidence import Entered, Scene, Stuck
from tpcheck.process import memory
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Impasse, Kind


def given_up(
    board: Board,
    epoch: int,
    left: Mapping[int, Host],
    finished: set[int],
    impasse: Stuck,
    shown: bool,
) -> dict[int, Mismatch]:
    """The outcomes of the ranks that are left.

    Args:
        epoch: the number of the case on the board.
        left: these ranks and their processes.
        finished: the others.
        shown: whether their stacks are asked for.
    """
    consequence = impasse.why is Impasse.PEER_FAILED
    kind = Kind.EXCEPTION if consequence else Kind.HANG
    seen = stacks(set(left.values())) if shown else {}
    found = {}
    for rank, host in left.items():
        stack = seen.get(host.index, "") if shown else None
        scene = Scene(last=entered(board, epoch, rank), stack=stack, consequence=consequence)
        post, absent = board.waited(rank, epoch), tuple(board.absent(rank, epoch))
        own_way = of_rank(impasse, absent, finished)
        stuck = replace(
            own_way,
            absent=absent,
            waits_in=None if post is None else post.text,
            held=memory.held(host.pid) if impasse.why is Impasse.TOO_LONG else None,
            parted=_parted(board, epoch, rank, own_way.peer),
            scene=scene,
        )
        found[rank] = Mismatch("rank", kind, rank, detail=stuck)
    return found


def entered(board: Board, epoch: int, rank: int) -> tuple[str, ...]:
    """The collectives that a rank entered last."""
    return tuple(post.text for post in board.last(rank, epoch))


def of_rank(impasse: Stuck, absent: Sequence[int], finished: set[int]) -> Stuck:
    """Where some wait for one that has finished: for whom a rank does that waits for these."""
    if impasse.why is not Impasse.PEER_FINISHED:
        return impasse
    gone = [rank for rank in absent if rank in finished]
    if gone:
        return replace(impasse, peer=gone[0])
    if absent:
        return replace(impasse, why=Impasse.PEER_ABSENT, peer=absent[0])
    return replace(impasse, why=Impasse.AT_WORK, peer=None)


def _parted(
    board: Board, epoch: int, rank: int, peer: int | None
) -> tuple[Entered, Entered] | None:
    """Where a rank and the one that it waits for went different ways."""
    if peer is None or (ways := board.parted(rank, peer, epoch)) is None:
        return None
    mine, theirs = ways
    return Entered(rank, mine.text, mine.where), Entered(peer, theirs.text, theirs.where)
