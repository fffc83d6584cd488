"""The smallest fault that is found: a relative error on one rank's partial sum.

The candidate is a correct one. Before its first all-reduce of a forward, the last rank's partial
sum p is multiplied by 1 + ε: all of it (`whole`), or one row of it (`row`). For each of many seeds
the least ε on a grid is sought at which the case fails; the 99th percentile is the ε that is found
99 times in 100.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpcheck.case import Case, Dim
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.evidence import OfRank
from tpcheck.figures.thresholds import Threshold
from tpcheck.oracle.pose import Posed, pose
from tpcheck.report import reasons
from tpcheck.report.evidence import reason
from tpcheck.runner.runner import Runner
from tpcheck.search import drawing
from tpcheck.search.failures import decided
from tpcheck.search.session import Session
from tpcheck.search.trouble import why
from tpcheck.verdict import Verdict
from tpcheck.workers.jobs import InOrder, side_by_side
from tpcheck.workers.worker import Start

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

FAULTS = ("whole", "row")

#: Steps of the grid per decade: a threshold is known to a factor of 10 ** (1 / 8) = 1.33. More of
#: them take longer, since ε is sought step by step.
STEPS = 8

#: The ends of the grid: ε from 1e-17, below the rounding of float64, to 100. A fault that is not
#: seen at 100 is said to be never seen.
LOWEST, HIGHEST = -17 * STEPS, 2 * STEPS

NOTHING = "no all-reduce in forward: there is no partial sum to put a fault into"


@dataclass(frozen=True)
class Subject:
    """A correct check, where it is found, and the sizes at which it is measured."""

    title: str
    target: str
    dims: Mapping[str, Dim]


SUBJECTS = (
    Subject(
        "row-parallel linear",
        "properties/linear.py::row_linear",
        {"batch": 2, "seq": 8, "in_features": 64, "out_features": 64, "bias": False},
    ),
    Subject(
        "stack of 4 blocks",
        "properties/block.py::stack",
        {
            "layers": 4,
            "batch": 2,
            "seq": 4,
            "hidden": 32,
            "heads": 8,
            "kv_heads": 8,
            "head_dim": 4,
            "intermediate": 64,
            "activation": "gelu",
            "norm": "layer",
            "bias": True,
            "qk_norm": False,
            "rotary": True,
            "causal": True,
        },
    ),
)


Cell = tuple[int, int, str]  # number of the subject, degree, dtype


class Measurement:
    """The thresholds of several subjects, told in their order.

    Args:
        subjects, checks: what is measured, and the check of each.
        degrees, dtypes: a cell of the table for each of both.
        runs, seed: seeds per cell, and the first of them.
        finished: is told of each threshold.
        failed: of each subject that can't be measured: its title, and why.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        checks: Sequence[Check],
        *,
        degrees: Sequence[int],
        dtypes: Sequence[str],
        runs: int,
        seed: int = 0,
        finished: Callable[[Threshold], None] = lambda _: None,
        failed: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self.subjects, self.checks, self.runs, self.seed = subjects, checks, runs, seed
        self.finished, self.failed = finished, failed
        self.rows: list[Threshold] = []
        self.troubled: dict[str, str] = {}  # subject → why it can't be measured
        self._left = itertools.product(range(len(subjects)), degrees, dtypes)
        self._order: InOrder[Cell, list[Threshold] | str] = InOrder(self._tell)

    def run(self, session: Session) -> None:
        """One cell after the other."""
        while (cell := self.next()) is not None:
            self.ended(cell, self.do(session, cell))

    def run_side_by_side(self, start: Start, jobs: int) -> None:
        """The same in so many processes."""
        side_by_side(self, start, self.do, count=jobs, what="checks")

    def do(self, session: Session, cell: Cell, told: object = None) -> list[Threshold] | str:
        """The thresholds of a cell, or why there are none."""
        number, tp, dtype = cell
        subject, check = self.subjects[number], self.checks[number]
        try:
            return measured(
                subject, check, session.engine, tp, dtype, runs=self.runs, seed=self.seed
            )
        except BaseException as error:  # of one check: the others go on
            let_through(error)
            return why(error)

    def next(self) -> Cell | None:
        left = (cell for cell in self._left if self.subjects[cell[0]].title not in self.troubled)
        cell = next(left, None)
        return None if cell is None else self._order.given(cell)

    def ended(self, cell: Cell, came: list[Threshold] | str) -> None:
        self._order.ended(cell, came)

    def lost(self, cell: Cell, seconds: float) -> None:
        self.ended(cell, reasons.JOB_LOST)

    def _tell(self, cell: Cell, came: list[Threshold] | str) -> None:
        title = self.subjects[cell[0]].title
        if title in self.troubled:  # one after the other, it would not have been measured
            return
        if isinstance(came, str):
            self.troubled[title] = came
            self.failed(title, came)
            return
        self.rows += came
        for row in came:
            self.finished(row)


def measured(
    subject: Subject, check: Check, engine: Engine, tp: int, dtype: str, *, runs: int, seed: int
) -> list[Threshold]:
    """The thresholds of a subject at one degree in one dtype, one for each fault.

    Raises:
        InvalidArgument: the candidate is not a module, has no all-reduce in forward, or is called
            wrong without any fault.
    """
    if not engine.kind.processes:
        raise InvalidArgument("sensitivity needs ranks that are processes: --engine gloo or nccl")
    runner = Runner(replace(check, candidate=faulty(check.candidate), overrides={}), engine)
    least: dict[str, list[float]] = {fault: [] for fault in FAULTS}
    for case in _cases(subject, tp, dtype, runs, seed):
        posed = pose(check.spec, case, None)
        _must_pass(runner, posed)
        for fault, known in least.items():
            known.append(_least(runner, posed, fault, known[-1] if known else 1e-3))
    out = []
    for fault, found in least.items():
        ordered = sorted(found)
        quantiles = ordered[(runs - 1) // 2], ordered[math.ceil(0.99 * runs) - 1]
        out.append(Threshold(subject.title, tp, dtype, fault, runs, *quantiles))
    return out


def _cases(subject: Subject, tp: int, dtype: str, runs: int, seed: int) -> Iterator[Case]:
    case = Case(dims=subject.dims, dtype=dtype, mesh={"tp": tp})
    yield from drawing.reseeded([case] * runs, f"{seed} {subject.title} {tp} {dtype}")


def _least(runner: Runner, posed: Posed, fault: str, near: float) -> float:
    """The least ε of the grid that is found, sought from `near` on."""
    at = HIGHEST if near == math.inf else min(HIGHEST, round(math.log10(near) * STEPS))
    if _found(runner, posed, fault, at):
        while at > LOWEST and _found(runner, posed, fault, at - 1):
            at -= 1
        return 10 ** (at / STEPS)
    while at < HIGHEST:
        at += 1
        if _found(runner, posed, fault, at):
            return 10 ** (at / STEPS)
    return math.inf


def _found(runner: Runner, posed: Posed, fault: str, at: int) -> bool:
    return _fails(runner, posed, fault, 10 ** (at / STEPS))


def _fails(runner: Runner, posed: Posed, fault: str, epsilon: float) -> bool:
    """Whether values are wrong. A fault of this kind raises nothing and hangs nothing: what does
    is not a measurement."""
    dims = {**posed.case.dims, "fault": fault, "epsilon": epsilon}
    altered = replace(posed, case=replace(posed.case, dims=dims))
    result = decided(lambda: runner.execute(altered))
    for mismatch in result.mismatches:
        if isinstance(mismatch.detail, OfRank):
            raise InvalidArgument(f"{runner.check.title}: {reason(mismatch)}")
    return result.verdict is Verdict.FAIL


def _must_pass(runner: Runner, posed: Posed) -> None:
    if _fails(runner, posed, "whole", 0.0):
        raise InvalidArgument(
            f"{runner.check.title} fails without any fault: {posed.case.describe()}"
        )


def faulty(candidate: Callable[[Case, Any], Any]) -> Callable[[Case, Any], Any]:
    """A builder of the same candidate with the case's fault in it: `case["fault"]` (`whole` or
    `row`) of size `case["epsilon"]`, on the last rank of the tp axis."""

    def build(case: Case, mesh: Any) -> Any:
        import torch
        import torch.distributed as dist

        module = candidate(case, mesh)
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"the candidate is a {type(module).__name__}, not an nn.Module")
        right = dist.all_reduce
        last = mesh["tp"].get_local_rank() == case.tp - 1
        waiting: list[bool] = []

        def wrong(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if waiting and last:
                changed = tensor.double()  # [*, N]
                part = (
                    changed if case["fault"] == "whole" else changed.view(-1, tensor.shape[-1])[0]
                )
                part.mul_(1.0 + case["epsilon"])
                tensor.copy_(changed)
            waiting.clear()
            return right(tensor, *args, **kwargs)

        def before(*_: Any) -> None:
            waiting.append(True)
            dist.all_reduce = wrong

        def after(*_: Any) -> None:
            dist.all_reduce = right
            if waiting:
                raise RuntimeError(NOTHING)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module

    return build
