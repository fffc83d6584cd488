"""What `verify` starts, and when: ranks load torch while the driver does, and none do for a file
that does not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.ranks.cli.commands import complaint
from tpcheck.cli import doctor
from tpcheck.engines import ahead, launched
from tpcheck.errors import EngineUnavailable
from tpcheck.protocol.leftovers import INSIDE

GOOD = """
from tpcheck import Check, specs
def build(case, mesh): raise AssertionError("no ranks are there")
row = Check(specs.row_linear(), build)
"""
BAD = {
    "import nothing_like_it": "ModuleNotFoundError",
    GOOD: "has no check 'wor'",
}


class Started(EngineUnavailable):
    """An engine was."""


def refuse(*_: object) -> NoReturn:
    raise Started("an engine was started")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(INSIDE, raising=False)
    for module in (ahead, launched):
        monkeypatch.setattr(module, "ZygoteProcess", refuse)
    return tmp_path


@pytest.mark.parametrize("verb", [["verify"], ["calibrate", "alarms"]])
@pytest.mark.parametrize("text", BAD)
def test_a_file_that_does_not_import_starts_no_engine(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: list[str], text: str
) -> None:
    file = folder / f"does_not_{len(text)}_{len(verb)}.py"
    file.write_text(text)
    assert BAD[text] in complaint(capsys, *verb, f"{file.name}::wor")


def test_the_twin_a_file_that_does_starts_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "good_checks.py").write_text(GOOD)
    assert "an engine was started" in complaint(capsys, "verify", "good_checks.py::row")


CODE = """
import sys
from tpcheck.engines import ahead
def asked(*_):
    print("torch" in sys.modules)
    raise ahead.EngineUnavailable("enough")
ahead.EngineUnavailable = __import__("tpcheck.errors", fromlist=["x"]).EngineUnavailable
ahead.ZygoteProcess = asked
from tpcheck.cli.main import main
main(["verify", "good_checks.py"])
"""


def test_ranks_load_torch_while_the_driver_does(folder: Path) -> None:
    (folder / "good_checks.py").write_text(GOOD)
    environment = {name: value for name, value in os.environ.items() if name != INSIDE}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert (done.stdout.strip(), done.returncode) == ("False", 2), done.stderr


def test_what_no_engine_takes_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    class Zygote:
        def __init__(self, *_: Any) -> None: ...

        def close(self) -> None:
            ended.append(True)

    monkeypatch.setattr(ahead, "ZygoteProcess", Zygote)
    with ahead.ahead("gloo", ["b", "a"]) as first:
        assert first is not None and first.folder.path.exists()
        assert first.fits("gloo", {"a", "b"})
        assert not first.fits("gloo", []) and not first.fits("threads", ["a", "b"])
    assert ended == [True] and not first.folder.path.exists()
    assert not first.fits("gloo", {"a", "b"}), "it has ended"
    with ahead.ahead("gloo", []) as first:
        assert first is not None
        folder, zygote = ahead.taken(first, "gloo", ())  # as an engine does
        assert (folder, zygote) == (first.folder, first.zygote)
        other, none = ahead.taken(first, "gloo", ())  # which only one can
        assert other.path != folder.path and none is None
        other.remove()
    assert ended == [True] and folder.path.exists()
    folder.remove()
    for kind in ("nccl", "torchrun", "glue", ""):
        with ahead.ahead(kind, []) as first:
            assert first is None


def test_doctor_prints_each_line_as_soon_as_it_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []

    def tried(name: str, ranks: int) -> doctor.Row:
        printed.append(capsys.readouterr().out)
        return doctor.Row(f"engine {name}", name == "gloo", "as it\nis")

    monkeypatch.setattr(doctor, "_engine", tried)
    doctor.doctor(ranks=2)
    assert printed[0].startswith("ok  python ") and "triton" in printed[0]
    assert printed[1] == "ok  engine gloo        as it is\n"
