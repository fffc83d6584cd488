"""`tpcheck replay`: one saved case again."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from tpcheck.cli import signals
from tpcheck.cli.options import Ranks, TimeLimit, Verbose, path
from tpcheck.cli.say import say
from tpcheck.cli.streams import complain


def replay(
    id_or_file: Annotated[str, typer.Argument(metavar="ID_OR_FILE")],
    engine: Annotated[str | None, typer.Option("--engine", help="Default: as saved.")] = None,
    ranks: Ranks = None,
    time_limit: TimeLimit = 30.0,
    dump: Annotated[
        Path | None, typer.Option(parser=path, help="Write both sides' tensors here.")
    ] = None,
    check: Annotated[str | None, typer.Option(help="FILE::NAME, where it moved.")] = None,
    corpus: Annotated[Path | None, typer.Option(parser=path, help="Folder of saved cases.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run code outside the working folder, if it names any.")
    ] = False,
    script: Annotated[
        bool,
        typer.Option("--script", help="Print a file that shows it without tpcheck; run nothing."),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Runs one saved case again, bit for bit."""
    if script:
        return _script(id_or_file, check=check, corpus=corpus, trust=trust)
    with signals.loading():
        from tpcheck.report.replay import text
        from tpcheck.search.replay import replay as run

    again = run(
        id_or_file,
        engine=engine,
        ranks=ranks,
        time_limit=time_limit,
        dump=dump,
        check=check,
        corpus=corpus,
        trust=trust,
    )
    saved, result = again.saved, again.result
    number = len(saved.mismatches)
    same = again.identical
    say(text(result, saved.id, saved=number, identical=same, verbose=verbose))
    raise typer.Exit(result.verdict.exit_code)


def _script(id_or_file: str, *, check: str | None, corpus: Path | None, trust: bool) -> None:
    with signals.loading():
        from tpcheck.script.write import script
        from tpcheck.search.corpus import Corpus
        from tpcheck.search.replay import check_of, notes_of

    with contextlib.redirect_stdout(sys.stderr):  # what the check's file prints is not the script's
        saved = Corpus(corpus).find(id_or_file)
        found = check_of(saved, check, trust=trust)
        text = script(saved, found)
    say(text)
    for note in notes_of(saved, found):
        complain(f"note: {note}")
