"""The table of what a case costs: sizes × degrees × dtypes × engines, each beside the bare loop.

tpcheck and the bare loop take turns on the same warm ranks, lap by lap. Each lap is a case of a
seed of its own, and poses the next one while the ranks work, as a search does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from tpcheck.bench import mlp
from tpcheck.bench.spans import time_line
from tpcheck.case import Case
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.runner.runner import Runner
from tpcheck.space import Space

SIZES = (16, 64, 256, 1024)
DEGREES = (2, 4, 8)
DTYPES = ("float32", "bfloat16", "float64")
ENGINES = ("gloo", "threads")

#: Laps of a cell, at most and at least. Of fewer than three, two runs can't be told apart.
LAPS, LEAST = 5, 3
#: Seconds after which a cell takes no lap beyond the least. A case at hidden 1024 takes some ten:
#: with all laps the table would take half an hour.
CELL_SECONDS = 10.0
#: Seconds that a case may take on the ranks: at hidden 1024 on a busy machine it takes dozens.
TIME_LIMIT = 600.0


@dataclass(frozen=True)
class Grid:
    """What the table has.

    Args:
        sizes: of the hidden dim, each a multiple of every degree.
        degrees, dtypes, engines: as `tpcheck verify` takes them.
        laps: of a cell, at most.
    """

    sizes: tuple[int, ...] = SIZES
    degrees: tuple[int, ...] = DEGREES
    dtypes: tuple[str, ...] = DTYPES
    engines: tuple[str, ...] = ENGINES
    laps: int = LAPS

    def __post_init__(self) -> None:
        Space(self.degrees, self.dtypes, max(self.degrees, default=1))
        for hidden in self.sizes:
            for tp in self.degrees:
                if tp < 2 or hidden < 1 or hidden % tp:
                    raise InvalidArgument(
                        f"hidden {hidden} at tp {tp}: give sizes that are multiples of each "
                        "degree, and degrees of at least 2"
                    )
        for name in self.engines:
            if name not in ENGINES:
                raise InvalidArgument(
                    f"--engine {name!r} is not one of {', '.join(ENGINES)}, which the table has"
                )

    def names(self) -> list[str]:
        """Of its cells."""
        cells = product(self.engines, self.degrees, self.sizes, self.dtypes)
        return [name_of(*cell) for cell in cells]


def name_of(engine: str, tp: int, hidden: int, dtype: str) -> str:
    """What a cell is called."""
    return f"{engine} tp {tp} hidden {hidden} {dtype}"


@dataclass(frozen=True)
class Cell:
    """One engine, degree, size and dtype.

    Args:
        laps, bare: milliseconds of the case in each lap, under tpcheck and in the bare loop.
        spent: part of the case → its milliseconds, of a lap with clocks inside.
    """

    engine: str
    tp: int
    hidden: int
    dtype: str
    laps: list[float]
    bare: list[float]
    spent: dict[str, float] = field(default_factory=dict)

    def line(self) -> str:
        """As it is told of when it is finished."""
        name = name_of(self.engine, self.tp, self.hidden, self.dtype)
        return f"{name:32} {self.median:9.1f} ms  {self.ratio:5.2f} ×"

    @property
    def median(self) -> float:
        return statistics.median(self.laps)

    @property
    def ratio(self) -> float:
        """Of its median to the bare loop's."""
        return self.median / statistics.median(self.bare)


def measure(grid: Grid, finished: Callable[[Cell], object] = lambda _: None) -> list[Cell]:
    """The cells of a table, an engine after the other, small sizes first.

    Args:
        finished: is told of each cell.
    """
    cells = []
    for name in grid.engines:
        with Engine(name, max(grid.degrees), time_limit=TIME_LIMIT) as engine:
            runner = Runner(mlp.check, engine)
            for hidden, tp, dtype in product(sorted(grid.sizes), sorted(grid.degrees), grid.dtypes):
                cells.append(_cell(runner, mlp.of_size(hidden, tp, dtype), grid.laps))
                finished(cells[-1])
    return cells


def _cell(runner: Runner, case: Case, most: int) -> Cell:
    small = mlp.of_size(case.tp, case.tp, case.dtype)
    runner.renew()  # as `verify` has it for each check
    tpcheck(runner, [small])  # warm-up: candidate taught, groups made
    bare(runner.engine, [small])
    runner.run(small, then=case)
    laps: list[float] = []
    loops: list[float] = []
    began = time.perf_counter()
    while len(laps) < most and (len(laps) < LEAST or time.perf_counter() - began < CELL_SECONDS):
        after = replace(case, seed=case.seed + 1)  # one that ran is not posed again
        laps += [1e3 * seconds for seconds in tpcheck(runner, [case], then=after)]
        loops += [1e3 * seconds for seconds in bare(runner.engine, [case])]
        case = after
    case = replace(case, seed=case.seed + 1)
    spent = {part: 1e3 * seconds for part, seconds in time_line(runner, case).items()}
    hidden = int(case["hidden"])
    return Cell(runner.engine.name, case.tp, hidden, case.dtype, laps, loops, spent)


def tpcheck(runner: Runner, work: Sequence[Case], *, then: Case | None = None) -> list[float]:
    """Seconds of each case under tpcheck; `then` is posed while the last one runs."""
    out = []
    for case in work:
        began = time.perf_counter()
        result = runner.run(case, then=then if case is work[-1] else None)
        out.append(time.perf_counter() - began)
        assert not result.mismatches, (case.describe(), result.mismatches)
    return out


def bare(engine: Engine, work: Sequence[Case]) -> list[float]:
    """Seconds of each case in the bare loop, by rank 0's clock: its collectives wait for the other
    ranks."""
    seconds: list[float] = engine.call(mlp.loop, list(work), mesh=work[0].mesh)[0]
    return seconds
