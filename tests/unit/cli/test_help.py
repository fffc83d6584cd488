"""Help, the version, and what loading them and a mistake cost: no torch, and no rich."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tpcheck
from tests.documents.commands import verbs
from tpcheck.cli.main import app, main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["calibrate"]):
        assert run(*arguments) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("Usage:") and len(lines) > 5


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"tpcheck {tpcheck.__version__}\n"


HELP = """
from tpcheck.cli.main import main
for words in {words}:
    try: main(words)
    except SystemExit: pass
"""


VERBS = ("init", "verify", "fuzz", "replay", "audit", "mutants", "calibrate", "doctor", "bench")


def test_help_and_the_plugin_load_without_torch_hypothesis_or_rich() -> None:
    code = """
import sys
{imports}
heavy = [name for name in ("torch", "hypothesis", "rich") if name in sys.modules]
sys.exit(7 if heavy else 0)
"""
    imports = {
        "import tpcheck.pytest_plugin": 0,
        HELP.format(words=[["--help"], *([verb, "--help"] for verb in VERBS)]): 0,
        "import tpcheck.search.search": 7,  # the twin: this test can fail
    }
    for text, expected in imports.items():
        command = [sys.executable, "-c", code.format(imports=text)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == expected, (text, done.stderr)


@pytest.mark.parametrize("verb", ["", *verbs()])
def test_help_fits_50_lines_of_100_columns(verb: str) -> None:
    wide = {"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
    said = CliRunner().invoke(app, [*verb.split(), "--help"], env=wide)
    lines = said.output.rstrip().splitlines()
    assert said.exit_code == 0 and lines[0].startswith("Usage:")
    assert len(lines) <= 50 and max(map(len, lines)) <= 100


#: What is refused before torch is loaded, and what is said of it.
EARLY = {
    ("verify", "--nosuch"): "No such option",
    ("verify",): "no checks are named, and there is no folder properties: name the files of yours",
    ("fuzz", "--turns", "1"): "no checks are named, and there is no folder properties",
    ("verify", "gone"): "no such file or folder: gone",
    ("verify", "empty"): "has no Python file",
    ("verify", "broken.py"): "broken.py does not import: SyntaxError",
    ("fuzz", "gone"): "no such file or folder: gone",
    ("mutants", "broken.py"): "SyntaxError",
    ("calibrate", "alarms", "gone"): "no such file or folder: gone",
    ("calibrate", "sensitivity", "gone.py::x", "--dims", "{}"): "no such file or folder: gone.py",
}


def test_a_mistake_that_can_be_seen_without_torch_loads_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.py").write_text("def f(:\n")
    code = "import sys\nfrom tpcheck.cli.main import main\n"
    code += "".join(f"try: main({[*words]})\nexcept SystemExit: pass\n" for words in EARLY)
    code += "print([name for name in ('torch', 'hypothesis') if name in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
    lines = done.stderr.splitlines()
    assert len(lines) == len(EARLY)
    assert all(said in line for said, line in zip(EARLY.values(), lines, strict=True)), lines


def test_rank_processes_import_neither_hypothesis_nor_pytest() -> None:
    code = (
        "import sys, tpcheck.ranks.host, tpcheck.specs;"
        "print([m for m in ('hypothesis', 'pytest') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
