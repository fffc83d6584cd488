"""The wait for one case on an engine's ranks: what they answer, and when to stop waiting."""

from __future__ import annotations

import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import cloudpickle

from tpcheck.verdict import Mismatch

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine, Host
    from tpcheck.protocol.messages import RankReport, Work

GRACE = 0.5  # after one rank failed, how long its peers have to finish by themselves
SETTLE = 0.1  # how long a rank must wait in vain before it is given up
STALL = 5.0  # ranks that all wait for one another are given up after this long
PEER_FAILED = "a peer failed"


class Collection:
    """The wait for one case: collects outcomes and decides when to stop waiting."""

    def __init__(self, engine: Engine, hosts: list[Host], work: Work) -> None:
        self.engine, self.work = engine, work
        self.size = work.case.world_size
        self.host_of = {r: h for h in hosts for r in h.ranks if r < self.size}
        self.found: dict[int, RankReport | Mismatch] = {}
        self.dead: set[int] = set()
        self.deadline = time.monotonic() + engine.time_limit
        self._grace: float | None = None
        self._gone: float | None = None
        self._still: tuple[tuple[int, ...], float] = ((), 0.0)

    def outcomes(self) -> list[RankReport | Mismatch]:
        """One a rank; where one failed, the hosts are killed."""
        while self._pending():
            self._receive(0.02 if self._grace or self.found else 0.2)
            reason = self._give_up() if self._pending() else None
            if reason:
                self._abandon(reason)
                break
        self._tell_consequences()
        if self.dead or any(isinstance(o, Mismatch) for o in self.found.values()):
            # peers of a failed rank may hold half a collective: start afresh
            self.engine.kill()
        return [self.found[rank] for rank in range(self.size)]

    def _tell_consequences(self) -> None:
        """A rank whose peer died fails in its collective: the death is the cause, not that."""
        died = any(isinstance(o, Mismatch) and o.kind == "crash" for o in self.found.values())
        for rank, outcome in self.found.items():
            if isinstance(outcome, Mismatch):
                outcome.detail.setdefault("last", self._last(rank))
                if died and "peer" in str(outcome.detail.get("reason")).lower():
                    outcome.detail["consequence"] = True

    def _pending(self) -> list[int]:
        return [rank for rank in range(self.size) if rank not in self.found]

    def _receive(self, timeout: float) -> None:
        waiting = {self.host_of[r].connection: self.host_of[r] for r in self._pending()}
        for ready in wait(list(waiting), timeout):
            host = waiting[ready]  # type: ignore[index]
            try:
                _, epoch, rank, outcome = cloudpickle.loads(host.connection.recv_bytes())
            except (EOFError, OSError):
                self._bury(host)
                continue
            if epoch == self.work.epoch:
                self.found[rank] = outcome

    def _bury(self, host: Host) -> None:
        how = self.engine.status_of(host)
        for rank in host.ranks:
            if rank < self.size and rank not in self.found:
                self.dead.add(rank)
                detail: dict[str, Any] = {"reason": how, "log": self.engine.log_tail(host)[-2000:]}
                detail["last"] = self._last(rank)
                self.found[rank] = Mismatch("rank", "crash", rank, detail=detail)

    def _last(self, rank: int) -> list[str]:
        board = self.engine.board
        return [p.text for p in board.last(rank, self.work.epoch)] if board else []

    def _give_up(self) -> str | None:
        """Why the ranks still running will not finish, or None while they may."""
        now = time.monotonic()
        failed = {r for r, outcome in self.found.items() if isinstance(outcome, Mismatch)}
        for rank in self._pending():
            gone = [r for r in self._absent(rank) if r in self.found]
            if gone and not failed:
                # a peer that has seen a mismatch may be about to say so, and says more
                self._gone = self._gone or now
                if now < self._gone + SETTLE:
                    return None
                return f"waits for rank {gone[0]}, which finished without this collective"
        if failed:
            self._grace = self._grace or now + GRACE
            lost = all(failed & set(self._absent(rank)) for rank in self._pending())
            # who refuses a collective that its peers have entered leaves them there for good
            refused = self._refused() and now > self._grace - GRACE + SETTLE
            return PEER_FAILED if lost or refused or now > self._grace else None
        if now > self.deadline:
            return f"the case took longer than {self.engine.time_limit:g} s"
        return self._stalled(now)

    def _refused(self) -> bool:
        """Whether a rank has seen that it and a peer are in different collectives."""
        outcomes = self.found.values()
        return any(isinstance(o, Mismatch) and o.kind == "collective" for o in outcomes)

    def _absent(self, rank: int) -> list[int]:
        board = self.engine.board
        return board.absent(rank, self.work.epoch) if board else []

    def _stalled(self, now: float) -> str | None:
        """Whether every rank waits for a collective that another has not entered."""
        board = self.engine.board
        assert board is not None
        counts = tuple(board.count(r, self.work.epoch) for r in range(self.size))
        if counts != self._still[0] or not all(self._absent(r) for r in self._pending()):
            self._still = (counts, now)
            return None
        return "every rank waits for another" if now - self._still[1] > STALL else None

    def _abandon(self, reason: str) -> None:
        """Notes what each unfinished rank was in, with its stack, and gives them up."""
        consequence = reason == PEER_FAILED
        for rank in self._pending():
            detail: dict[str, Any] = {"reason": reason, "last": self._last(rank)}
            detail["absent"] = self._absent(rank)
            if not consequence or self._refused():
                detail["stack"] = self.engine.stacks(self.host_of[rank])
            kind = "hang" if not consequence else "exception"
            detail["consequence"] = consequence
            self.dead.add(rank)
            self.found[rank] = Mismatch("rank", kind, rank, detail=detail)
