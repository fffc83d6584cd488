"""The wait for one case on an engine's ranks: what they answer, and when to stop waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from tpcheck.comms.announcer import unlike
from tpcheck.comms.board import Board
from tpcheck.engines.given_up import entered, given_up
from tpcheck.engines.hosts import Host, watch
from tpcheck.engines.standstill import Standstill
from tpcheck.evidence import Died, Raised, Scene, Stuck
from tpcheck.kernels import sanitizer
from tpcheck.process.delays import Delay
from tpcheck.protocol.messages import Ended, RankReport, Work
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Impasse, Kind, Lost

#: Seconds for which the peers of a rank that failed may stand still without a word. Longer delays
#: every failure; shorter gives up ranks that were about to report what they saw.
GRACE = 0.5
#: Seconds of standing still until a rank that waits in vain is given up: a peer that has seen a
#: mismatch may be about to say so, and says more.
SETTLE = 0.1
#: Seconds after which ranks that all wait for one another are given up. Only the report waits: a
#: deadlock stays one. Shorter would take ranks for stuck that a busy machine has not yet resumed.
STALL = 5.0
#: Seconds that `build` may take on all ranks, unless the time limit is longer: it may import a
#: framework for the first time, which takes minutes on a busy machine. Shorter would call that
#: undecided; longer is waited for by whoever waits for a build that does not end.
BUILD_LIMIT = 120.0
#: How many time limits a case may take whose interpreted kernels go on, program by program. Fewer
#: would call a case of many programs a hang on a slow machine; more is waited for by whoever
#: launches kernels for ever.
LIMITS = 20
#: Seconds between two looks at ranks that are well, and once one has answered.
LOOK, LOOK_CLOSELY = 0.2, 0.02


class Collection:
    """The wait for one case: collects outcomes and decides when to stop waiting.

    Args:
        status_of: how a host has ended.
        require: raises where the machine of a rank is gone; asked once per time limit.
        moment: called now and then, by who shows that time goes by.
    """

    def __init__(
        self,
        hosts: list[Host],
        work: Work,
        *,
        board: Board,
        time_limit: float,
        status_of: Callable[[Host], int | None],
        require: Callable[[], None] = lambda: None,
        moment: Callable[[], None] = lambda: None,
    ) -> None:
        self.work, self.board = work, board
        self.time_limit, self.status_of, self.require = time_limit, status_of, require
        self.moment = moment
        self._required = time.monotonic()
        self.size = work.case.world_size
        self.host_of = {r: h for h in hosts for r in h.ranks if r < self.size}
        self.found: dict[int, RankReport | Mismatch] = {}
        self.dead: set[int] = set()
        self.deadline: float | None = None  # once all ranks have built
        self._delays: list[Delay] | None = None  # of the hosts, from soon after that
        self._latest = 0.0  # later than this the deadline is never set
        self._turns = 0
        self._build_limit = max(BUILD_LIMIT, time_limit)
        self._build_by = time.monotonic() + self._build_limit
        self._since_failed: Standstill | None = None
        self._since_gone: Standstill | None = None
        self._still: tuple[tuple[int, ...], float] = ((), 0.0)

    def outcomes(self) -> list[RankReport | Mismatch]:
        """One per rank, whatever happened to it."""
        while self._pending():
            self._receive(LOOK_CLOSELY if self.found else LOOK)
            self.moment()
            if time.monotonic() > self._required + self.time_limit:
                self.require()
                self._required = time.monotonic()
            impasse = self._give_up() if self._pending() else None
            if impasse:
                self._abandon(impasse)
                break
        self.found |= _unlike(self.board, self.work.epoch, self.found)
        self._tell_consequences()
        return [self.found[rank] for rank in range(self.size)]

    @property
    def spoilt(self) -> bool:
        """Whether to start ranks afresh: peers of a failed one may hold half a collective."""
        return bool(self.dead) or any(isinstance(o, Mismatch) for o in self.found.values())

    def _tell_consequences(self) -> None:
        """A rank whose peer died fails in its collective: the death is the cause, not that."""
        dead = {
            r for r, o in self.found.items() if isinstance(o, Mismatch) and o.kind is Kind.CRASH
        }
        for rank, outcome in self.found.items():
            if not isinstance(outcome, Mismatch):
                continue
            scene = outcome.scene
            if scene.last is None:
                scene = replace(scene, last=self._last(rank))
            if dead and self._lost_its_peer(rank, outcome, dead):
                scene = replace(scene, consequence=True)
            self.found[rank] = outcome.seen_at(scene)

    def _lost_its_peer(self, rank: int, outcome: Mismatch, dead: set[int]) -> bool:
        """Whether what the rank raised is what a collective raises when a member dies: it comes
        from one, or it is torch's error for it and the last collective has a dead member."""
        detail = outcome.detail
        if not isinstance(detail, Raised):
            return False
        posts = self.board.last(rank, self.work.epoch, 1)
        in_company = any(dead & set(post.members) for post in posts)
        return in_company and (detail.communicating or detail.type == RuntimeError.__name__)

    def _pending(self) -> list[int]:
        return [rank for rank in range(self.size) if rank not in self.found]

    def _receive(self, timeout: float) -> None:
        hosts = {id(host): host for host in map(self.host_of.__getitem__, self._pending())}
        watch(hosts.values(), timeout)
        for host in hosts.values():
            while (message := host.take()) is not None:
                self._hear(host, message)
            if host.lost is not None:
                self._bury(host, host.lost)

    def _hear(self, host: Host, message: object) -> None:
        """Takes the outcome of one of the host's ranks in this case; anything else a candidate has
        sent, in its host's name."""
        if not isinstance(message, Ended) or message.epoch != self.work.epoch:
            return
        rank, outcome = message.rank, message.outcome
        expected = isinstance(outcome, (RankReport, Mismatch)) and outcome.rank == rank
        if expected and self.host_of.get(rank) is host and rank not in self.found:
            self.found[rank] = outcome

    def _bury(self, host: Host, lost: Lost) -> None:
        status = self.status_of(host) if lost is Lost.ENDED else None
        for rank in host.ranks:
            if rank < self.size and rank not in self.found:
                self.dead.add(rank)
                scene = Scene(last=self._last(rank))
                died = Died(status, host.log_tail()[-2000:], scene, lost)
                crashed = Mismatch("rank", Kind.CRASH, rank, detail=died)
                self.found[rank] = _outside_of_memory(rank, scene) or crashed

    def _last(self, rank: int) -> tuple[str, ...]:
        return entered(self.board, self.work.epoch, rank)

    def _give_up(self) -> Stuck | None:
        """Why the ranks still running will not finish, or None while they may."""
        now = time.monotonic()
        failed = {r for r, outcome in self.found.items() if isinstance(outcome, Mismatch)}
        for rank in self._pending():
            gone = [r for r in self._absent(rank) if r in self.found]
            if gone and not failed:
                # a peer that has seen a mismatch may be about to say so, and says more
                self._since_gone = self._since_gone or self._standstill()
                if self._since_gone.seconds() < SETTLE:
                    return None
                return Stuck(Impasse.PEER_FINISHED, peer=gone[0])
        if failed:
            self._since_failed = self._since_failed or self._standstill()
            lost = all(failed & set(self._absent(rank)) for rank in self._pending())
            # a rank that refuses a collective strands the peers that have entered it
            over = lost or self._since_failed.seconds() > (SETTLE if self._refused() else GRACE)
            return Stuck(Impasse.PEER_FAILED) if over else None
        return self._late(now) or self._stalled(now)

    def _standstill(self) -> Standstill:
        """Of the ranks that may still say something, from now on."""
        return Standstill({self.host_of[rank] for rank in self._pending()})

    def _late(self, now: float) -> Stuck | None:
        """Whether the ranks have used up their time: that of a case runs once all have built, anew
        with each program of an interpreted kernel, and stands still while other processes have the
        processors."""
        if self.deadline is None and all(map(self._has_built, range(self.size))):
            self.deadline = now + self.time_limit
            self._latest = now + LIMITS * self.time_limit
        elif self.deadline is not None and self._goes_on():
            self.deadline = min(now + self.time_limit, self._latest)
            self._delays = None
        elif self.deadline is not None and self._delays is None:  # few cases come to a second look
            self._delays = [Delay(process=host.pid) for host in set(self.host_of.values())]
        if self.deadline is not None:
            late = now > self.deadline and now > self.deadline + self._delayed()
            return Stuck(Impasse.TOO_LONG, seconds=self.time_limit) if late else None
        late = now > self._build_by
        return Stuck(Impasse.STILL_BUILDING, seconds=self._build_limit) if late else None

    def _goes_on(self) -> bool:
        """Whether interpreted kernels have begun programs since this was asked."""
        before = self._turns
        self._turns = sum(self.board.turns(r, self.work.epoch) for r in range(self.size))
        return self._turns != before

    def _delayed(self) -> float:
        """Seconds that the ranks have waited for a processor: those of the one that has longest."""
        return max((delay.seconds() for delay in self._delays or []), default=0.0)

    def _has_built(self, rank: int) -> bool:
        return rank in self.found or self.board.is_built(rank, self.work.epoch)

    def _refused(self) -> bool:
        """Whether a rank has seen that it and a peer are in different collectives."""
        outcomes = self.found.values()
        return any(isinstance(o, Mismatch) and o.kind is Kind.COLLECTIVE for o in outcomes)

    def _absent(self, rank: int) -> list[int]:
        return self.board.absent(rank, self.work.epoch)

    def _stalled(self, now: float) -> Stuck | None:
        """Whether every rank that is left waits for one that has not entered its collective."""
        counts = tuple(self.board.count(r, self.work.epoch) for r in range(self.size))
        if counts != self._still[0] or not all(self._absent(r) for r in self._pending()):
            self._still = (counts, now)
            return None
        wait = Stuck(Impasse.EVERY_RANK_WAITS, finished=tuple(sorted(self.found)))
        return wait if now - self._still[1] > STALL else None

    def _abandon(self, impasse: Stuck) -> None:
        """Notes what each unfinished rank was in, with its stack, and gives them up."""
        shown = impasse.why is not Impasse.PEER_FAILED or self._refused()
        own = {rank: self.host_of[rank] for rank in self._pending()}
        self.found |= given_up(self.board, self.work.epoch, own, set(self.found), impasse, shown)
        self.dead |= set(own)


def _outside_of_memory(rank: int, scene: Scene) -> Mismatch | None:
    """What a rank that has ended was ended by, where that was seen: a watchdog of NCCL may end the
    process before it can say so itself."""
    found = sanitizer.stray(wait=sanitizer.SOON)
    return None if found is None else sanitizer.told(found, rank, scene)


def _unlike(
    board: Board, epoch: int, found: Mapping[int, RankReport | Mismatch]
) -> dict[int, Mismatch]:
    """Ranks that do not see one another's board have entered collectives that can't meet: what
    they came to, a hang or what the backend raises, follows from it. Their outcomes then."""
    failed = {rank: o for rank, o in found.items() if isinstance(o, Mismatch)}
    if any(outcome.kind in (Kind.COLLECTIVE, Kind.CRASH) for outcome in failed.values()):
        return {}
    for rank, outcome in sorted(failed.items()):
        for post in board.last(rank, epoch, 1):
            if (refused := unlike(board, epoch, rank, post)) is not None:
                detail = replace(refused, scene=outcome.scene)
                others = {
                    r: o.seen_at(replace(o.scene, consequence=True)) for r, o in failed.items()
                }
                return others | {rank: Mismatch("collective", Kind.COLLECTIVE, rank, detail=detail)}
    return {}
