"""Bad input is one line on stderr and exit code 2, whichever verb and option it is given to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

from tests.ranks.cli.commands import complaint
from tpcheck.calibrate.state import Grid, State
from tpcheck.cli.calibrate import calibrate, parsed
from tpcheck.cli.main import app
from tpcheck.cli.options import duration
from tpcheck.errors import InvalidArgument

LONG = "n" * 300
COMMANDS = [
    ["verify", "gone.py", "--json", LONG],
    ["verify", "gone.py", "--json", f"{LONG}/r.json"],
    ["verify", "gone.py", "--junit", f"/{LONG}"],
    ["verify", "gone.py", "--corpus", LONG],
    ["verify", "gone.py", "--corpus", "/dev/null/x"],
    ["verify", "gone.py", "--database", ""],
    ["verify", "gone.py", "--database", "http://host"],
    ["fuzz", "gone.py", "--database", "github://owner"],
    ["fuzz", "gone.py", "--database", "/dev/null/x"],
    ["verify", "gone.py", "--json", "/dev/null/x"],
    ["verify", "gone.py", "--json", "same", "--junit", "./same"],
    ["verify", "gone.py", "--html", "same", "--junit", "./same"],
    ["verify", "gone.py", "--time-limit", "nan"],
    ["verify", "gone.py", "--time-limit", "inf"],
    ["verify", "gone.py", "--time-limit", "0"],
    ["verify", "gone.py", "--time-limit", "1e300"],
    ["verify", "gone.py", "--time-budget", "nan"],
    ["verify", "gone.py", "--time-budget", "inf"],
    ["verify", "gone.py", "--time-budget", "-3"],
    ["verify", "gone.py", "--time-budget", ""],
    ["fuzz", "gone.py", "--for", "soon"],
    ["fuzz", "gone.py", "--for", ""],
    ["fuzz", "gone.py", "--turns", "0"],
    ["fuzz", "gone.py", "--state", ""],
    ["verify", "gone.py", "--seed", "9" * 5000],
    ["verify", "gone.py", "--examples", "nan"],
    ["verify", "gone.py", "--tp", ""],
    ["verify", "gone.py", "--tp", "0"],
    ["verify", "gone.py", "--tp", "9" * 5000],
    ["verify", "gone.py", "--dtype", ""],
    ["verify", "gone.py", "--dtype", "\udcff"],
    ["verify", "gone.py", "--tp", "\u0662"],
    ["verify", "gone.py", "--tp", "\uff12,\uff14"],
    ["verify", "gone.py", "--tp", "2_4"],
    ["verify", "gone.py", "--examples", "\u0663"],
    ["verify", "gone.py", "--seed", "\u0967"],
    ["verify", "gone.py", "--ranks", "\uff14"],
    ["verify", "gone.py", "--time-limit", "\u0663\u0660"],
    ["verify", "gone.py", "--time-budget", "\u0663\u0660s"],
    ["mutants", "gone.py", "--jobs", "0"],
    ["mutants", LONG],
    ["mutants", "gone.py", "--json", LONG],
    ["calibrate", "alarms", "gone.py", "--cases", "0"],
    ["calibrate", "alarms", "gone.py", "--tp", "x"],
    ["calibrate", "sensitivity", "gone.py::x"],
    ["calibrate", "sensitivity", "gone.py::x", "--dims", "[" * 100_000],
    ["calibrate", "sensitivity", "gone.py::x", "--dims", '{"a": ' + "9" * 5000 + "}"],
    ["calibrate", "sensitivity", "gone.py::x", "--dims", "{}", "--runs", "-1"],
    ["replay", LONG],
    ["replay", "a\x1b[31m\n"],
    ["replay", "abc", "--corpus", LONG],
    ["replay", "x.json"],
    ["audit", ""],
    ["audit", ".x:y"],
    ["audit", "os:name.x"],
    ["audit", f"{LONG}.py:build"],
    ["audit", "exits.py:build"],
    ["audit", "exits:build"],
    ["audit", "torch.nn:Identity", "--tp", "1000000000"],
    ["bench", "--json", LONG],
    ["bench", "--parts", "tables"],
    ["bench", "--parts", "start", "--against", "exits.py"],
    ["bench", "--against", "gone.json"],
    ["bench", "--against", "exits.py"],
    ["bench", "--sizes", "16,x"],
    ["bench", "--sizes", "15"],
    ["bench", "--tp", "1"],
    ["bench", "--dtype", "float31"],
    ["bench", "--engine", "nccl"],
    ["bench", "--laps", "0"],
    ["bench", "--gate", "gone"],
    ["report", LONG],
    ["report", ""],
    ["doctor", "--ranks", "0"],
    ["\x1b[31m"],
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:50])
def test_it_is_one_line_and_exit_code_2(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = complaint(capsys, *command)
    assert line.startswith("tpcheck: ") and line.isprintable()
    assert "inside a rank" not in line, "it is refused before ranks are started"


def options_of_paths() -> list[list[str]]:
    """Every option of every verb that takes the name of a file or folder."""
    found = []
    for words, verbs in (([], app), (["calibrate"], calibrate)):
        for verb in (one.callback for one in verbs.registered_commands if one.callback):
            hints = get_type_hints(verb)
            needed = ["gone"] * bool({"id_or_file", "factory", "file"} & {*hints})
            paths = [
                f"--{name}"
                for name, hint in hints.items()
                if hint in (Path, Path | None) and name != "file"
            ]
            found += [[*words, verb.__name__, *needed, option, ""] for option in paths]
    return found


@pytest.mark.parametrize("command", options_of_paths(), ids=" ".join)
def test_an_empty_name_is_not_the_working_folder(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint(capsys, *command).endswith("an empty name was given")


def test_the_twin_there_are_such_options() -> None:
    assert {"--json", "--junit", "--corpus", "--dump", "--state"} <= {
        command[-2] for command in options_of_paths()
    }


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1s", "0", "1e999h", "", "s", "1x"])
def test_a_duration_is_a_positive_time(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a time"):
        duration(text)
    assert (duration("90"), duration("2m"), duration("1h")) == (90, 120, 3600)


@pytest.mark.parametrize("text", ["[" * 100_000, "3", "null", "{", "", '{"a": ' * 50_000])
def test_dims_are_a_json_object(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a JSON object") as caught:
        parsed(text)
    assert len(str(caught.value)) < 300


STATES: dict[str, Any] = {
    "empty": b"",
    "one line": b"{}",
    "deep": b"[" * 100_000 + b"\n",
    "a unit of texts": b'{}\n{"check": "x", "tp": "2", "dtype": "y", "round": 0}\n',
    "a unit without lists": b'{}\n{"check": "x", "tp": 2, "dtype": "y", "round": 0, "usage": 3}\n',
    "not utf-8": b"\xff\n",
    "folder": None,
    "pipe": None,
    "loop": None,
}


@pytest.mark.parametrize("kind", STATES)
def test_what_is_no_state_of_a_campaign_is_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.write_bytes(STATES[kind])
    with pytest.raises(InvalidArgument) as caught:
        State(path, Grid())
    assert str(path) in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_the_twin_a_good_command_is_not_refused() -> None:
    with pytest.raises(typer.BadParameter):
        from tpcheck.cli.options import _seconds

        assert _seconds("30") == 30
        _seconds("none")
