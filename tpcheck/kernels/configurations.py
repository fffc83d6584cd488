"""Autotuned kernels in Triton's interpreter. It has no clock to choose a configuration by: the
first launch runs each of them once on the tensors themselves, as a benchmark does, and the choice
is given.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tpcheck.kernels import benchmarks, refusals


class Choice:
    """Which configuration kernels run in.

    Args:
        index: of a kernel's configurations; one that has fewer begins again.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.known: tuple[str, ...] = ()  # those of the kernel that has most
        self._made: set[int] = set()  # tuners that have chosen

    def of(self, tuner: Any, pruned: list[Any]) -> Any:
        """The one that this kernel is to run in."""
        different = list({str(config.kwargs): config for config in pruned}.values())
        if len(different) > len(self.known):
            self.known = tuple(map(_told, different))
        return different[self.index % len(different)]

    def first(self, tuner: Any) -> bool:
        """Whether this kernel has not been launched under it."""
        new = id(tuner) not in self._made
        self._made.add(id(tuner))
        return new


class _Current(threading.local):
    """That of a thread: ranks may be threads of one process."""

    def __init__(self) -> None:
        self.choices: list[Choice] = []


_current = _Current()


@contextmanager
def chosen(index: int) -> Iterator[Choice]:
    """Kernels in the block run in their configuration of this index."""
    _current.choices.append(Choice(index))
    try:
        yield _current.choices[-1]
    finally:
        _current.choices.pop()


def install(lock: contextlib.AbstractContextManager[Any]) -> None:
    """Replaces what measures time.

    Args:
        lock: held while a kernel chooses and runs: what it has chosen is kept in the kernel.
    """
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run

    def run_chosen(tuner: Any, *arguments: Any, **named: Any) -> Any:
        with lock:
            choice = _current.choices[-1] if _current.choices else Choice(0)
            if len(tuner.configs) > 1 and choice.first(tuner):
                tuner.nargs = dict(zip(tuner.arg_names, arguments, strict=False))
                best = choice.of(tuner, tuner.prune_configs(named))
                tuner.cache.clear()
                tuner.cache_results, tuner.measured = False, _Once(best)
            return run(tuner, *arguments, **named)

    bench = Autotuner._bench

    def once(tuner: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
        def run() -> None:
            with benchmarks.spoiled(tuner):
                bench(tuner, *arguments, config=config, **meta)

        return tuner.measured(run, config)

    Autotuner.run, Autotuner._bench = run_chosen, once
    Autotuner.do_bench = property(lambda tuner: _call)


def _call(launch: Any, quantiles: Any) -> list[float]:
    launch()
    return [1.0, 1.0, 1.0]


class _Once:
    """Runs each configuration once, as far as they differ here; `best` is the quickest."""

    def __init__(self, best: Any) -> None:
        self.best = best
        self._ran: set[str] = set()
        self._left_out: set[str] = set()  # no compiler would have made these

    def __call__(self, bench: Any, config: Any) -> list[float]:
        if (what := str(config.kwargs)) not in self._ran:  # numbers of warps and stages are alike
            self._ran.add(what)
            try:
                bench()
            except Exception as error:
                if not refusals.is_asserted(error):
                    raise
                self._left_out.add(what)
        if what in self._left_out:
            return [math.inf]
        return [0.0] if config is self.best else [1.0]


def _told(config: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.kwargs.items())
