"""Announces each collective on the board before it is entered, and refuses one that can't meet what
a peer has entered, or that closes a circle of ranks which wait for one another."""

from __future__ import annotations

from tpcheck.comms import works
from tpcheck.comms.board import Board
from tpcheck.comms.operands import Exchanged
from tpcheck.comms.post import Post, digest
from tpcheck.errors import CollectiveMismatch
from tpcheck.event import POINT_TO_POINT, Event
from tpcheck.evidence import Entered, Refused


class Announcer:
    """One rank's voice on the board in one case.

    Args:
        epoch: the number of the case on the board.
    """

    def __init__(self, board: Board, rank: int, epoch: int) -> None:
        self.board, self.rank, self.epoch = board, rank, epoch
        self._steps: dict[tuple[tuple[int, ...], int], int] = {}

    def announce(
        self, event: Event, communicator: str, awaits: tuple[int, ...], exchanged: Exchanged
    ) -> None:
        """Posts `event`, which is about to be entered.

        Args:
            communicator: the group's name, the same on all its ranks.
            awaits: the members without which the rank certainly can't go on.
            exchanged: of an all-to-all: elements sent to, and received from, each member.

        Raises:
            CollectiveMismatch: a peer has entered another collective, or waits for this rank.
        """
        members, sorted_members = event.group, tuple(sorted(event.group))
        if event.peer is not None:  # its two ends are a group, each direction one of its own
            ends = (self.rank, event.peer) if event.op == "send" else (event.peer, self.rank)
            members, sorted_members = ends, tuple(sorted(ends))
            communicator = f"{communicator} from rank {ends[0]} to rank {ends[1]}"
        elif event.op in POINT_TO_POINT:  # nobody knows which end it will meet
            members = sorted_members = (self.rank,)
            communicator = f"{communicator} {event.op} with any rank"
        name = digest(communicator)
        step = self._steps.get((sorted_members, name), 0)
        self._steps[sorted_members, name] = step + 1
        what, text = digest(event.fingerprint()), event.describe()
        if members != sorted_members:  # the board knows a set of members
            sent, received = exchanged
            exchanged = _in_order(members, sent), _in_order(members, received)
        at = f"{event.phase} {event.module}", event.where
        if event.peer is not None:  # who sends and who receives are at two places anyway
            at = "", ""
        mine = Post(sorted_members, step, what, text, name, awaits, *exchanged, *at)
        self.board.post(self.rank, self.epoch, mine)
        number = self.board.count(self.rank, self.epoch)
        works.entered(works.Posted(self.board, self.rank, self.epoch, number))
        self._refuse_unlike(mine, members, message=event.peer is not None)
        self._refuse_circle()

    def _refuse_unlike(self, mine: Post, members: tuple[int, ...], *, message: bool) -> None:
        refused = unlike(self.board, self.epoch, self.rank, mine, members, message=message)
        if refused is not None:
            raise CollectiveMismatch(refused)

    def _refuse_circle(self) -> None:
        circle = self.board.circle(self.rank, self.epoch)
        if circle:
            entered = (Entered(r, self.board.last(r, self.epoch, 1)[0].text) for r in circle)
            raise CollectiveMismatch(Refused(circle=tuple(entered)))


def _in_order(members: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
    """Counts, one for each member, in the order of their numbers."""
    return tuple(count for _, count in sorted(zip(members, counts, strict=False)))


def unlike(
    board: Board,
    epoch: int,
    rank: int,
    mine: Post,
    members: tuple[int, ...] | None = None,
    *,
    message: bool = False,
) -> Refused | None:
    """What can't meet what a rank has posted; None where nothing is known of.

    Args:
        members: in the order of the group.
        message: whether it is between two ranks.
    """
    for peer in mine.members:  # itself among them: what it sends itself it must expect, too
        if not mine.sent and (peer == rank or not board.is_unlike(peer, epoch, mine)):
            continue
        theirs = mine if peer == rank else board.find(peer, epoch, mine.group, mine.step)
        if theirs is None or mine.meets(rank, theirs, peer):
            continue
        return Refused(
            mine=Entered(rank, mine.text),
            theirs=Entered(peer, theirs.text),
            step=mine.step + 1,
            members=members or mine.members,
            message=message,
            uneven=mine.uneven(rank, theirs, peer),
        )
    return None
