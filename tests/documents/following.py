"""A page, followed: its blocks run in order, and what is not as the page says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import ROOT, commands
from tests.documents.blocks import Command, blocks
from tests.documents.samples import same

#: Folders of the checkout that a page's commands may name; each page has a copy of its own.
SHIPPED = ("docs", "fixtures", "properties")
#: Seconds that one command may take: many times what the slowest takes on an idle machine.
PATIENCE = 120
#: Cases per check of a line that shows nothing: one at each degree. That the checks are right in
#: more is for the tests of what they are about.
CASES = 2


def lay_out(folder: Path) -> None:
    """Gives a page its folder: a copy of what commands may name."""
    for name in SHIPPED:
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )


def run(command: Command, folder: Path) -> tuple[int, list[str]]:
    """A command's exit code, and what it prints."""
    program, *words = command.words
    if program in ("tpcheck", "pytest"):
        words = words if command.shown is not None else few(words)
        code, text = commands.tpcheck(words, folder, program=program, patience=PATIENCE)
        return code, _lines(text)
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,  # apart: libraries warn of what is not there, show how far they are
        text=True,
        cwd=folder,
        env=commands.environment(),
        timeout=PATIENCE,
    )
    printed = _lines(done.stdout)
    if done.returncode:
        printed += done.stderr.splitlines()
    return done.returncode, printed


def few(words: list[str]) -> list[str]:
    """The words of a command; of `verify`, asking for few cases."""
    return [*words, "--examples", str(CASES)] if words[:1] == ["verify"] else words


def _lines(text: str) -> list[str]:
    """Without what nobody sees: blanks at the ends of lines, empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def follow(
    text: str, page: str, folder: Path, names: dict[str, Any], *, lines: bool = True
) -> Iterator[str]:
    """Runs a page's blocks in order; yields what is not as the page says. `lines`: its commands,
    too, and not Python's blocks alone.

    Python runs in this process, in `names`; the caller has made `folder` the working folder and
    the first place to import from.
    """
    for block in blocks(text):
        if block.file:
            place = folder / block.file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.text)
        elif block.language == "python":
            # padded, so that a traceback has the page's own lines
            source = "\n" * (block.line - 1) + block.text
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(source, page, "exec"), names)
        for command in block.commands:
            if command.runs and lines:
                yield from differs(command, *run(command, folder))


def followed(page: Path, folder: Path, patch: Any, *, lines: bool = True) -> list[str]:
    """Follows a page in a folder of its own; `patch` is pytest's monkeypatch.

    What the page's files are called stays free: another page may have files of the same names.
    """
    before = set(sys.modules)
    lay_out(folder)
    patch.chdir(folder)
    patch.syspath_prepend(folder)
    try:
        names = {"__name__": "page"}
        text, name = page.read_text(), page.relative_to(ROOT).as_posix()
        return list(follow(text, name, folder, names, lines=lines))
    finally:
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


def differs(command: Command, code: int, printed: list[str]) -> Iterator[str]:
    told = f"line {command.line}: {' '.join(command.words)}"
    if command.shown is None and code:
        yield f"{told}: exit code {code}\n" + "\n".join(printed)
    elif command.shown is not None:
        shown = list(command.shown)
        if command.words[0] == "python":  # its processes print in any order
            shown, printed = sorted(shown), sorted(printed)
        if not same(shown, printed):
            both = ("\n".join(shown), "\n".join(printed))
            yield f"{told}: the page shows\n{both[0]}\nand it prints\n{both[1]}"
