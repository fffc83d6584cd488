"""The command line. Commands import what they need when they run: `--help` costs no torch."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tpcheck import __version__
from tpcheck.cli.calibrate import calibrate
from tpcheck.cli.console import Console, leave
from tpcheck.cli.options import (
    CorpusDir,
    Examples,
    JsonFile,
    JunitFile,
    Ranks,
    Seed,
    TimeLimit,
    duration,
    integers,
    whole_number,
)
from tpcheck.cli.options import Engine as Engine_
from tpcheck.errors import InvalidArgument

app = typer.Typer(
    help="Verifies tensor-parallel PyTorch code against its single-device reference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
INTERRUPTED = 130  # 128 + SIGINT, as a shell says
console = Console(highlight=False, soft_wrap=True)
BAD_INPUT = 2
FIXTURES = "fixtures/mutants"
app.add_typer(calibrate)


def _version(asked: bool) -> None:
    if asked:
        console.print(f"tpcheck {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """What stands before any command."""


@app.command()
def verify(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE_OR_DIR[::NAME] ...]", help="Default: properties/."),
    ] = None,
    engine: Engine_ = "gloo",
    tp: Annotated[str, typer.Option(help="TP degrees, as in 2,4.")] = "2,4",
    dtype: Annotated[str, typer.Option(help="Dtypes to draw.")] = "float64,float32,bfloat16",
    examples: Examples = 20,
    seed: Seed = 0,
    time_budget: Annotated[str | None, typer.Option(help="For all checks: 90s, 2m.")] = None,
    ranks: Ranks = None,
    time_limit: TimeLimit = 30.0,
    json: JsonFile = None,
    junit: JunitFile = None,
    corpus: CorpusDir = None,
) -> None:
    """Collects Check objects, runs them, prints a verdict a check."""
    from tpcheck.case import Space
    from tpcheck.engines import ranks_for
    from tpcheck.engines.engine import Engine
    from tpcheck.report import machine, text
    from tpcheck.search import canary
    from tpcheck.search.collect import collect, heavy_imports, runnable
    from tpcheck.search.corpus import Corpus
    from tpcheck.search.search import Options, real_ranks, simulated, verify_all
    from tpcheck.verdict import CheckResult, Verdict, worst

    degrees = integers(tp, "--tp")
    budget = duration(time_budget) if time_budget else None
    options = Options(
        examples=examples,
        seed=seed,
        degrees=degrees,
        dtypes=tuple(dtype.split(",")),
        time_budget=budget,
        corpus=Corpus(corpus),
    )
    size = ranks or ranks_for(degrees)
    Space(options.degrees, options.dtypes, size)
    begun, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    preload = heavy_imports(targets or ["properties"])
    with ExitStack() as stack:
        ready = stack.enter_context(Engine(engine, size, time_limit=time_limit, preload=preload))
        confirm = stack.enter_context(real_ranks(ready)) if simulated(ready) else None
        checks, absent = runnable(collect(targets or ["properties"]))
        for name, reason in absent.items():
            console.print(text.skipped(name, reason))
        untrusted = canary.sings(ready)
        if untrusted:
            console.print(f"UNKNOWN {untrusted}")
        results: list[CheckResult] = []
        stopped = None
        mistake: InvalidArgument | None = None

        def finished(result: CheckResult) -> None:
            results.append(result)
            console.print("\n".join([text.line(result), *text.findings(result)]))

        try:
            verify_all(checks, ready, options, confirm=confirm, finished=finished)
        except KeyboardInterrupt:
            stopped = f"interrupted after {len(results)} of {len(checks)} checks"
            console.print(f"UNKNOWN {stopped}")
        except InvalidArgument as error:  # of one check: the others' verdicts stand
            if not results:
                raise
            mistake = error
    seconds = time.monotonic() - clock
    for result in results:
        if result.verdict is not Verdict.PASS:
            console.print("\n" + text.failure(result))
    undecided = stopped or untrusted or (str(mistake) if mistake else None)
    verdict = worst([*(r.verdict for r in results), *([Verdict.UNKNOWN] if undecided else [])])
    if json:
        report = machine.as_json(
            results,
            started=begun,
            seconds=seconds,
            seed=seed,
            engine=engine,
            ranks=size,
            unknown=undecided,
            skipped=absent,
        )
        machine.write(json, machine.dumps(report))
    if junit:
        machine.write(
            junit, machine.as_junit(results, seconds=seconds, unknown=undecided, skipped=absent)
        )
    total = sum(result.examples for result in results)
    known = sum(row.failed > 0 for result in results for row in result.findings)
    also = f", {known} known findings" if known else ""
    also += f", {len(absent)} checks skipped" if absent else ""
    console.print(f"\n{verdict.value}  {len(results)} checks, {total} cases{also}, {seconds:.1f} s")
    if mistake is not None:
        raise mistake
    raise typer.Exit(INTERRUPTED if stopped else verdict.exit_code)


@app.command()
def replay(
    id_or_file: Annotated[str, typer.Argument(metavar="ID_OR_FILE")],
    engine: Annotated[str | None, typer.Option("--engine", help="Default: as saved.")] = None,
    ranks: Ranks = None,
    time_limit: TimeLimit = 30.0,
    dump: Annotated[Path | None, typer.Option(help="Write both sides' tensors here.")] = None,
    check: Annotated[str | None, typer.Option(help="FILE::NAME, where it moved.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder of saved cases.")] = None,
) -> None:
    """Runs one saved case again, bit for bit."""
    from tpcheck.search.replay import replay as run

    outcome = run(
        id_or_file,
        engine=engine,
        ranks=ranks,
        time_limit=time_limit,
        dump=dump,
        check=check,
        corpus=corpus,
    )
    console.print(outcome.text)
    raise typer.Exit(outcome.verdict.exit_code)


@app.command()
def audit(
    factory: Annotated[str, typer.Argument(metavar="MODULE:FACTORY")],
    plan: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="Default: the model's own tp_plan.")
    ] = None,
    tp: Annotated[int, typer.Option(help="TP degree.", **whole_number(1))] = 2,
    whole: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of parameters that are meant to stay whole; may be repeated."),
    ] = None,
    optional: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of keys that may match nothing; may be repeated."),
    ] = None,
    json: JsonFile = None,
) -> None:
    """What a plan matches, what it skips, what is sharded; needs no ranks."""
    from tpcheck.cli.target import audit_target
    from tpcheck.report import machine
    from tpcheck.report import plan as report

    found = audit_target(factory, plan=plan, tp=tp, whole=whole or (), optional=optional or ())
    console.print(report.text(found))
    if json:
        machine.write(json, machine.dumps(found.to_dict()))
    raise typer.Exit(1 if found.findings else 0)


@app.command()
def mutants(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE_OR_DIR[::NAME] ...]", help="Default: fixtures/mutants."),
    ] = None,
    engine: Engine_ = "gloo",
    examples: Examples = 50,
    seed: Seed = 0,
    ranks: Ranks = 4,
    time_limit: TimeLimit = 10.0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Mutants at a time; default: one a core, four at most, one on a GPU.",
            **whole_number(1),
        ),
    ] = None,
    against: Annotated[
        bool, typer.Option("--against", help="Also under the rules of others, side by side.")
    ] = False,
    correct: Annotated[
        str, typer.Option(help="Correct candidates on which --against counts alarms.")
    ] = "properties",
    json: JsonFile = None,
) -> None:
    """The kill matrix: what killed each mutant, in how many examples, and the diagnosis."""
    from tpcheck.engines.engine import Engine
    from tpcheck.mutation import against as rules
    from tpcheck.mutation import mutant
    from tpcheck.report import calibration, machine, text
    from tpcheck.search.collect import collect, modules, runnable
    from tpcheck.search.search import Options

    names = {name for t in targets or [] if (name := t.partition("::")[2])}
    found = mutant.collect(modules([t.partition("::")[0] for t in targets or [FIXTURES]]))
    found = [m for m in found if not names or m.name in names]
    absent = runnable(mutant.check for mutant in found)[1]
    for name, reason in absent.items():
        console.print(text.skipped(name, reason))
    found = [mutant for mutant in found if mutant.name not in absent]
    if not found:
        raise InvalidArgument(f"no mutant found in {', '.join(targets or [FIXTURES])}")
    options = Options(examples=examples, seed=seed, corpus=None, shrink_seconds=1.0)
    preload = {module for mutant in found for module in mutant.spec.preload}
    ready = partial(Engine, engine, ranks or 4, time_limit=time_limit, preload=preload)
    matrix = mutant.matrix(
        found,
        ready,
        options,
        jobs=jobs or (1 if engine == "nccl" else min(4, os.cpu_count() or 1)),
        finished=lambda row: console.print(text.kill_line(row)),
    )
    console.print("\n" + text.matrix(matrix))
    report = matrix.to_dict()
    if against:
        with ready() as one:
            others = rules.against(
                found,
                runnable(collect([correct]))[0],
                one,
                options,
                finished=lambda name, by: console.print(calibration.missed(name, by)),
            )
        console.print("\n" + calibration.against(others))
        report["against"] = others.to_dict()
    if json:
        machine.write(json, machine.dumps(report))
    raise typer.Exit(0 if all(row.killed for row in matrix.rows) else 1)


@app.command()
def doctor(
    ranks: Annotated[
        int, typer.Option(help="Ranks to try each engine with.", **whole_number(1))
    ] = 4,
) -> None:
    """Which engines, devices and optional packages work here, and why not."""
    from tpcheck.cli.doctor import examine

    table = Table("", "", "", show_header=False, box=None)
    for finding in examine(ranks):
        table.add_row("ok" if finding.works else "no", finding.subject, finding.seen)
    console.print(table)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option(help="Fewer repetitions.")] = False,
    json: JsonFile = None,
) -> None:
    """Throughput against the bare loop and against torch's own test harnesses."""
    from tpcheck.bench import bench as run
    from tpcheck.bench import render
    from tpcheck.report import machine

    report = run(quick=quick)
    # a table cut to 80 columns, as where the output is piped, would hide its figures
    Console(highlight=False, width=max(console.width, 150)).print(render(report))
    if json:
        machine.write(json, machine.dumps(report.to_dict()))


def main(arguments: list[str] | None = None) -> None:
    """Entry point: a user's mistake is one line on stderr and exit code 2."""
    try:
        code: Any = app(args=arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except InvalidArgument as error:
        _complain(str(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        leave()
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help, of many lines
            print(error, file=sys.stderr)
            sys.exit(BAD_INPUT)
        # click's own usage errors (unknown option, missing argument) carry their message
        if hasattr(error, "format_message"):
            _complain(error.format_message())
        raise


def _complain(message: str) -> None:
    print(f"tpcheck: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
