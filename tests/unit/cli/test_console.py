"""What a user's code says is printed as it is: it is no markup of ours."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys

import pytest

from tests import ROOT
from tpcheck.cli.console import Console, console
from tpcheck.cli.streams import complain


@pytest.mark.parametrize("text", ["expected [seq, batch]", "[/bold]", "[red]x[/red]", ":key:"])
def test_brackets_and_colons_are_printed_as_they_are(text: str) -> None:
    with console.capture() as printed:
        console.print(text)
    assert printed.get() == f"{text}\n"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("closed")])
def test_a_stdout_that_can_not_be_written_is_said_once_and_stops_nothing(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    shown = Console(file=Full())
    shown.print("PASS")
    shown.print("PASS")
    said = capsys.readouterr().err
    assert said.startswith("tpcheck: can't write to stdout (") and len(said.splitlines()) == 1


def test_a_reader_that_has_gone_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    shown = Console(file=Gone())
    shown.print("PASS")
    assert shown.quiet and capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["\x1b[31m", "\x1b]0;x\x07", "\u202e", "\udcff"])
def test_escape_sequences_are_spelled_out(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with console.capture() as printed:
        console.print(text)
    complain(text)
    shown = text.encode("unicode_escape").decode()
    assert printed.get() == f"{shown}\n"
    assert capsys.readouterr().err == f"tpcheck: {shown}\n"


def test_no_socket_gets_the_descriptor_of_a_stream_that_is_closed() -> None:
    """In a process of its own: pytest's streams are open."""
    source = (
        "from tpcheck.cli.streams import can_write_anything\n"
        "import os, socket\n"
        "can_write_anything()\n"
        "os._exit(min(s.fileno() for s in socket.socketpair()))\n"
    )
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(source)} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], cwd=ROOT).returncode > 2


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_a_stream_that_is_closed_changes_no_exit_code(closed: str, code: int) -> None:
    command = f"{shlex.quote(sys.executable)} -m tpcheck --version {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
