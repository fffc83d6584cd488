"""Shell lines held to the real command line: programs, options, values, paths."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from tests import ROOT
from tests.commands import environment
from tests.documents.blocks import Command, blocks, spans
from tpcheck.cli.main import app
from tpcheck.errors import InvalidArgument

#: Options whose value is a file or folder that the command makes.
WRITES = ("--database", "--json", "--junit", "--dump", "--corpus", "--state", "--outdir", "--out")


#: What starts `python -m tpcheck …` several times.
LAUNCHERS = ("torchrun", "srun")


def bad_commands(text: str) -> Iterator[str]:
    """Shell lines with a program, an option or a path that is not there."""
    there = {name for block in blocks(text) if (name := block.file)}
    for command in (c for block in blocks(text) for c in block.commands):
        for complaint in _complaints(command, there):
            yield f"line {command.line}: {' '.join(command.words)}: {complaint}"
        there |= {value for option, value in _pairs(command.words) if option in WRITES}
    for line, code in spans(text):
        for complaint in _in_prose(code):
            yield f"line {line}: `{code}`: {complaint}"


def _complaints(command: Command, there: set[str]) -> Iterator[str]:
    program, *words = command.words
    if program == "tpcheck":
        yield from _parsed(words)
    elif program == "make":
        yield from (f"no target {word}" for word in words if word not in _targets())
    elif program == "pytest":
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        yield from (f"no option {option}" for option in options if option not in _pytest_options())
    elif program in LAUNCHERS and "tpcheck" in words:
        yield from _parsed(words[words.index("tpcheck") + 1 :])
    elif program not in ("pip", "python", "pre-commit"):
        yield f"an unknown program {program}"
    written = {value for option, value in _pairs(command.words) if option in WRITES}
    yield from _missing(words, there | written)


def _missing(words: Iterable[str], there: set[str]) -> Iterator[str]:
    """Of what looks like a file, with or without a name in it: what is not there."""
    for word in words:
        path, _, name = word.replace("::", ":").partition(":")
        if not _is_path(path) or {path, word} & there or path.startswith(("dist/", "wheels/")):
            continue
        file = ROOT / path
        if not file.exists() and not list(ROOT.glob(path)):
            yield f"no file {path}"
        # checks of a sweep are made in a loop: their names stand nowhere
        elif name and file.suffix == ".py" and "_sweeps" not in path and name not in _names(file):
            yield f"no {name} in {path}"


def _pairs(words: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(words))


def _is_path(word: str) -> bool:
    return bool(re.fullmatch(r"[\w./*-]*(/|\.(py|md|toml|json|xml))[\w./*-]*", word))


def _names(file: Path) -> set[str]:
    """What may be named in a file: its variables, and the names that it gives to checks."""
    return set(re.findall(r"\w+", file.read_text()))


def _parsed(words: list[str]) -> Iterator[str]:
    """What the command line itself says of these words, up to the verb's own work."""
    command: Any = _line()
    context, name = None, "tpcheck"
    quiet = (contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()))
    with quiet[0], quiet[1]:
        while True:
            try:
                context = command.make_context(name, list(words), parent=context)
                if not hasattr(command, "commands"):
                    return
                name, command, words = command.resolve_command(
                    context, [*context._protected_args, *context.args]
                )
            except InvalidArgument as error:
                yield str(error)
                return
            except Exception as error:
                if type(error).__name__ != "Exit":  # --help, --version
                    yield getattr(error, "message", None) or str(error) or type(error).__name__
                return


@cache
def _line() -> Any:
    """The whole command line, as typer has it: a sixth of a second to make."""
    return typer.main.get_command(app)


@cache
def verbs() -> dict[str, Any]:
    """The commands, by what stands behind `tpcheck`."""
    found: dict[str, Any] = {}

    def walk(command: Any, path: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            found[f"{path} {name}".strip()] = inner
            walk(inner, f"{path} {name}".strip())

    walk(_line(), "")
    return found


def options_of(verb: str) -> dict[str, Any]:
    """A verb's options: the long name → what typer knows of it."""
    params = verbs()[verb].params
    return {p.opts[0]: p for p in params if p.opts and p.opts[0].startswith("--")}


def _in_prose(code: str) -> Iterator[str]:
    """A command in the middle of a sentence may have placeholders; its verb and options exist."""
    words = code.split()
    if words[0] == "make":
        yield from (f"no target {word}" for word in words[1:] if word not in _targets())
    elif words[0] == "tpcheck" and len(words) > 1:
        verb = next((" ".join(words[1:n]) for n in (3, 2) if " ".join(words[1:n]) in verbs()), None)
        if verb is None and not words[1].startswith("--"):
            yield f"no verb {words[1]}"
        known = {*options_of(verb), "--help"} if verb else {"--help", "--version"}
        asked = re.findall(r"(?<![\w-])--[a-z-]+", code)
        yield from (f"no option {option}" for option in asked if option not in known)
        yield from _missing([word for word in words[1:] if "/" in word], set())


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def _pytest_options() -> set[str]:
    command = [sys.executable, "-m", "pytest", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment())
    return set(re.findall(r"--[\w-]+", said.stdout))
