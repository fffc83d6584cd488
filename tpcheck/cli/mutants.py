"""`tpcheck mutants`: the kill matrix, and the rules of others beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpcheck.cli import signals
from tpcheck.cli.options import Engine, Examples, Jobs, JsonFile, Ranks, Seed, TimeLimit, at_once
from tpcheck.cli.reports import Reports
from tpcheck.cli.say import say
from tpcheck.cli.streams import complain
from tpcheck.errors import TROUBLE, InvalidArgument, did_you_mean
from tpcheck.search import files

if TYPE_CHECKING:
    from types import ModuleType

    from tpcheck.figures.kills import Matrix
    from tpcheck.figures.rules import Against
    from tpcheck.mutant import Mutant
    from tpcheck.search.options import Options
    from tpcheck.workers.worker import Start

FIXTURES = ["fixtures/mutants"]


def mutants(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE_OR_DIR[::NAME] ...]", help="Default: fixtures/mutants."),
    ] = None,
    engine: Engine = "gloo",
    examples: Examples = 100,
    seed: Seed = 0,
    ranks: Ranks = 4,
    time_limit: TimeLimit = 10.0,
    jobs: Jobs = None,
    against: Annotated[
        bool, typer.Option("--against", help="Also under the rules of others, side by side.")
    ] = False,
    correct: Annotated[
        str, typer.Option(help="Correct candidates on which --against counts alarms.")
    ] = "properties",
    json: JsonFile = None,
) -> None:
    """The kill matrix: what killed each mutant, in how many examples, and the diagnosis."""
    files.look([*(targets or FIXTURES), *([correct] if against else [])])
    with signals.loading():
        from tpcheck.mutation import matrix
        from tpcheck.report import machine, text
        from tpcheck.report import mutants as report
        from tpcheck.search.session import open_session, preload_of

    chosen, homes = _collect(targets or FIXTURES)
    options = matrix.options(examples, seed)
    preload = preload_of(mutant.check for mutant in chosen) | homes
    start = partial(open_session, engine, ranks or 4, time_limit=time_limit, preload=preload)
    found = _killed(chosen, start, options, at_once(jobs, engine), json)
    reports = Reports()
    data = found.to_dict()
    reports.write(json, lambda: machine.dumps(data))
    say("\n" + report.matrix(found))
    troubled = {row.mutant: row.trouble or "" for row in found.troubled()}
    if against:
        try:
            compared = _against(chosen, correct, start, options)
            troubled |= compared.troubled
            data["against"] = report.against_data(compared)
            reports.write(json, lambda: machine.dumps(data))
        except InvalidArgument as error:  # what survived says more
            troubled["--against"] = str(error)
    if found.survivors():
        reports.end(1)
    if troubled:
        complain(text.together(troubled))
    reports.end(TROUBLE if troubled else 0)


def _collect(targets: Sequence[str]) -> tuple[list[Mutant], set[str]]:
    """The mutants that `targets` name and that can run here (the others are told of), and the
    modules that they are in."""
    from tpcheck.mutation.collect import collect
    from tpcheck.report import text
    from tpcheck.search.collect import modules, runnable

    homes: list[ModuleType] = []
    asked: dict[str, Mutant] = {}
    for target in targets:
        path, _, name = target.partition("::")
        homes += (here := modules([path]))
        found = {mutant.name: mutant for mutant in collect(here)}
        if name and name not in found:
            raise InvalidArgument(f"{path} has no mutant {name!r}{did_you_mean(name, found)}")
        asked |= {name: found[name]} if name else found
    chosen = list(asked.values())
    absent = runnable(mutant.check for mutant in chosen)[1]
    for name, reason in absent.items():
        say(text.skipped(name, reason))
    chosen = [mutant for mutant in chosen if mutant.name not in absent]
    if not chosen:
        raise InvalidArgument(f"no mutant found in {', '.join(targets)}")
    return chosen, {home.__name__ for home in homes}


def _killed(
    chosen: Sequence[Mutant], start: Start, options: Options, jobs: int, json: Path | None
) -> Matrix:
    """The kill matrix; where it is interrupted, what was found until then is written."""
    from tpcheck.figures.kills import Matrix, Row
    from tpcheck.mutation.matrix import kill_all
    from tpcheck.report import machine
    from tpcheck.report import mutants as report

    rows: list[Row] = []

    def finished(row: Row) -> None:
        rows.append(row)
        say(report.kill_line(row))

    try:
        with signals.as_interrupt():
            return kill_all(chosen, start, options, jobs=jobs, finished=finished)
    except KeyboardInterrupt:
        Reports().write(json, lambda: machine.dumps(Matrix(rows).to_dict()))
        raise


def _against(chosen: Sequence[Mutant], correct: str, start: Start, options: Options) -> Against:
    """The same mutants under every rule."""
    from tpcheck.mutation.against import against
    from tpcheck.report import mutants as report

    with start() as session:
        session.require_trust()
        found = against(
            chosen,
            session.collect([correct]),
            session.engine,
            options,
            finished=lambda name, by: say(report.missed(name, by)),
        )
    say("\n" + report.against(found))
    return found
