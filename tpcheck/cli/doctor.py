"""`tpcheck doctor`: which engines, devices and optional packages work here, and why not."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from tpcheck.cli.options import whole_number
from tpcheck.cli.say import say
from tpcheck.errors import InvalidArgument
from tpcheck.report.visible import one_line

_PACKAGES = {
    "torch": "required",
    "hypothesis": "required",
    "safetensors": "required",
    "cloudpickle": "required",
    "transformers": "extra: tpcheck[transformers]",
    "megatron-core": "extra: tpcheck[megatron]",
    "pytest": "extra: tpcheck[test]",
    "pytest-xdist": "extra: tpcheck[test]",
    "triton": "for kernels",
}
#: Columns of what was looked at: the longest of them, and a gap.
_WIDE = max(map(len, [*_PACKAGES, "engine gloo-cuda"])) + 3


def doctor(
    ranks: Annotated[
        int, typer.Option(help="Ranks to try each engine with.", **whole_number(1))
    ] = 4,
) -> None:
    """Which engines, devices and optional packages work here, and why not."""
    from tpcheck.engines import MOST

    if ranks > MOST:
        raise InvalidArgument(f"--ranks {ranks}: give 1 to {MOST}")
    for row in examine(ranks):
        say(row.line())


@dataclass(frozen=True)
class Row:
    """What was looked at, whether it works, and what was seen."""

    subject: str
    works: bool
    seen: str

    def line(self) -> str:
        """As it is shown."""
        return f"{'ok' if self.works else 'no'}  {self.subject:{_WIDE}}{one_line(self.seen)}"


def examine(ranks: int = 4) -> Iterator[Row]:
    """Looks at everything, each when it is asked for: an engine is really started, which takes
    seconds, and a canary is run on it."""
    from tpcheck import engines

    yield Row("python", True, platform.python_version())
    yield Row("processors", True, f"{os.cpu_count()} for {ranks} ranks")
    yield from (_package(name, why) for name, why in _PACKAGES.items())
    yield from (_engine(name, ranks) for name in engines.KINDS)


def _package(name: str, why: str) -> Row:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Row(name, True, version(name))
    except PackageNotFoundError:
        return Row(name, False, f"not installed ({why})")


def _engine(name: str, ranks: int) -> Row:
    from tpcheck import engines

    subject = f"engine {name}"
    if (reason := engines.why_not(name, ranks) or _fault(name, ranks)) is not None:
        return Row(subject, False, reason)
    cannot = engines.KINDS[name].cannot
    limits = f"; can't do: {', '.join(cannot)}" if cannot else ""
    return Row(subject, True, f"{ranks} ranks up, canary found, trace complete{limits}")


def _fault(name: str, ranks: int) -> str | None:
    """Why an engine that should run here does not, or is not to be trusted."""
    from tpcheck.search.session import open_session

    try:
        with open_session(name, ranks) as session:
            session.engine.start()
            return session.untrusted
    except InvalidArgument as error:
        return str(error)
