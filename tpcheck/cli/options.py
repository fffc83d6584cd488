"""Options that several commands share, and how their values are read. Costs no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpcheck import given
from tpcheck.errors import InvalidArgument
from tpcheck.process.cores import cores
from tpcheck.vocabulary import ON_GPUS

if TYPE_CHECKING:
    from tpcheck.search.corpus import Corpus

#: Seconds, at most, for a case: a week. Longer ones are more than the system's timers hold.
LONGEST = 604_800


def whole_number(least: int) -> dict[str, Any]:
    """What makes an option one of whole numbers of at least `least`, and says so."""

    def read(text: str | int) -> int:
        try:
            number = given.whole(str(text))
        except ValueError:
            number = least - 1
        if number < least:
            raise typer.BadParameter(f"{text} is not a whole number of at least {least}")
        return number

    return {"parser": read, "metavar": "N"}


_PROPERTIES = "properties"
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE_OR_DIR[::NAME] ...]", help="Default: properties/."),
]


def chosen(targets: list[str] | None) -> list[str]:
    """What is named, else the checks of the folder that is looked into.

    Raises:
        InvalidArgument: nothing is named, and there is no such folder.
    """
    if not targets and not Path(_PROPERTIES).exists():
        raise InvalidArgument(
            f"no checks are named, and there is no folder {_PROPERTIES}: name the files of yours"
        )
    return targets or [_PROPERTIES]


def _of_this_machine(engine: str) -> str:
    """Processes of a launch follow `tpcheck verify` alone."""
    if engine == "torchrun":
        raise InvalidArgument("--engine torchrun is for tpcheck verify; give gloo here, or threads")
    return engine


Engine = Annotated[
    str,
    typer.Option("--engine", help="gloo, nccl, gloo-cuda or threads.", callback=_of_this_machine),
]
Examples = Annotated[
    int, typer.Option("--examples", help="Cases per check, at most.", **whole_number(1))
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the search.", **whole_number(0))]
Ranks = Annotated[
    int | None, typer.Option("--ranks", help="Size of the world of ranks.", **whole_number(1))
]


#: Processes, at most, unless `--jobs` says more: each has a driver and as many ranks as the world,
#: and with more of them a machine of many cores runs out of memory first.
JOBS = 4
#: Checks from which on two run at a time where ranks share processors. With fewer, loading torch
#: twice takes longer than it saves.
MANY = 20


def alone_if_sanitized(jobs: int | None) -> int | None:
    """compute-sanitizer has one log for all processes, so that cases run one by one."""
    if jobs is not None and jobs > 1:
        from tpcheck.protocol import sanitized

        if words := sanitized.words():
            raise InvalidArgument(f"--jobs {jobs} does not go with {words[0]}; give --jobs 1")
    return jobs


Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        help="How many at a time; default: one per core, four at most, one on a GPU.",
        callback=alone_if_sanitized,
        **whole_number(1),
    ),
]


def at_once(jobs: int | None, engine: str) -> int:
    """How many processes `--jobs` asks for."""
    return jobs or (1 if engine in ON_GPUS else min(JOBS, cores()))


def carried(engine: str, ranks: int, checks: Callable[[], int]) -> int:
    """How many checks run at a time where `--jobs` does not say it: each rank has a processor, and
    each of the processes, which load torch first, more than one check. Two of `MANY` do where ranks
    share processors: of two, one check alone leaves a quarter idle.

    Args:
        checks: how many there are; asked only where it matters.
    """
    # a GPU has one job, and a launch one set of ranks
    if engine in ON_GPUS or engine == "torchrun" or cores() == 1:
        return 1
    if (most := min(JOBS, cores() // ranks)) < 2:
        return 2 if checks() >= MANY else 1
    return max(1, min(most, checks() // 2))


def _seconds(text: str | float) -> float:
    try:
        seconds = given.number(str(text))
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST:
        raise typer.BadParameter(f"{text} is not a number of seconds above 0, of {LONGEST} at most")
    return seconds


TimeLimit = Annotated[
    float,
    typer.Option(
        "--time-limit", help="Seconds that one case may take.", parser=_seconds, metavar="SECONDS"
    ),
]


def path(text: str) -> Path:
    """Reads the name of a file or folder. An empty one, of a variable that is not set say, would be
    the working folder."""
    if not text:
        raise typer.BadParameter("an empty name was given")
    return Path(text)


def _writable(path: Path | None) -> Path | None:
    """A report is written when all is done: whether it can be is asked before."""
    if path is None:
        return None
    if path.suffix.lower() == ".py":  # a file of checks: the report's own name was forgotten
        raise InvalidArgument(f"can't write the report {path}: it is a Python file")
    try:
        fits = _takes_a_report(path)
    except (OSError, ValueError):  # too long a name, a NUL byte
        fits = False
    if not fits:
        raise InvalidArgument(f"can't write the report {path}: give a file in a writable folder")
    return path


def _takes_a_report(path: Path) -> bool:
    if path.exists() and not path.is_dir() and (path.is_symlink() or not path.is_file()):
        return os.access(path, os.W_OK)  # a device or a link is written to, never replaced
    return not path.is_dir() and _can_make_files_in(path.parent)


def _keeps(folder: Path | None) -> Path | None:
    """A counterexample is saved when it is found, perhaps after hours: asked before, too."""
    try:
        fits = folder is None or _can_make_files_in(folder)
    except (OSError, ValueError):
        fits = False
    if not fits:
        raise InvalidArgument(f"can't keep cases in {folder}: give a writable folder")
    return folder


def _can_make_files_in(folder: Path) -> bool:
    """Whether files can be made in a folder, which may itself not be there yet."""
    folder = folder.absolute()
    longest = max(len(os.fsencode(part)) for part in folder.parts)
    if longest > os.pathconf("/", "PC_NAME_MAX"):
        return False
    there = next(p for p in (folder, *folder.parents) if p.exists() or p.is_symlink())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


CorpusDir = Annotated[
    Path | None,
    typer.Option("--corpus", parser=path, callback=_keeps, help="Folder of saved cases."),
]


def _shares(place: str | None) -> str | None:
    """Asked before anything is loaded; it is opened later."""
    if place is not None:
        from tpcheck.search.shared import checked

        checked(place)
    return place


Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        callback=_shares,
        metavar="PLACE",
        help="Share cases: FOLDER, redis://HOST or github://OWNER/REPO.",
    ),
]


def corpus_of(folder: Path | None, database: str | None) -> Corpus:
    """The corpus of a run, which others share where there is a database."""
    from tpcheck.search.corpus import Corpus
    from tpcheck.search.shared import SharedCorpus

    return Corpus(folder) if database is None else SharedCorpus(folder, database)


JsonFile = Annotated[
    Path | None,
    typer.Option("--json", parser=path, callback=_writable, help="Write the figures as JSON."),
]
JunitFile = Annotated[
    Path | None,
    typer.Option("--junit", parser=path, callback=_writable, help="Write JUnit XML."),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="All evidence and digits, traces, kinds of case."),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", parser=path, callback=_writable, help="Write a page to hand on."),
]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", parser=path, callback=_writable, help="Default: F.html.", metavar="F.html"
    ),
]


def integers(text: str, option: str) -> tuple[int, ...]:
    """`2,4` → (2, 4)."""
    try:
        return tuple(given.whole(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(
            f"{option} {text!r} is not a list of numbers, such as {option} 2,4"
        ) from None


def duration(text: str, option: str = "--time-budget") -> float:
    """`90`, `90s`, `2m`, `1h` → seconds."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
    try:
        seconds = given.number(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < math.inf:
        raise InvalidArgument(f"{option} {text!r} is not a time, such as 90s, 2m or 1h")
    return seconds
