"""The matrix of environments says what its reports say. The matrix itself is `make adapters`."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.catalogue import adapters
from tests.catalogue.adapters import Environment, Row
from tpcheck.adapters import tiny

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)


def test_the_newest_minor_releases_are_taken_by_number_and_not_by_text() -> None:
    listed = ["5.9.0", "5.10.1", "5.10.4", "5.8.1", "4.57.6", "5.11.0rc1", "5.10.2"]
    assert adapters.last_minors(listed, 2) == ["5.10.4", "5.9.0"]
    assert adapters.last_minors(listed, 9)[-1] == "4.57.6"


@pytest.mark.sweep  # loads every adapter, a quarter of a minute
def test_every_check_of_the_matrix_is_there() -> None:
    """Those of transformers are named by what the installed release has."""
    targets = [t for made in adapters.environments(["5.24.0"]) for t in made.checks]
    for path, name in (target.split("::") for target in targets):
        if name not in adapters.ARCHITECTURES:
            here = rf"^{name} = (Check|replace|tpcheck\.kernel_check)\("
            assert re.search(here, (ROOT / path).read_text(), re.MULTILINE), name
    assert set(adapters.ARCHITECTURES) <= set(tiny.architectures())


def report(**check: Any) -> dict[str, Any]:
    return {"checks": [{"name": "llama", "verdict": "PASS", **check}]}


@pytest.mark.parametrize(
    ("said", "verdict", "why"),
    [
        (report(), "PASS", ""),
        (
            report(verdict="FAIL", counterexample={"diagnosis": {"code": "rank-crash"}}),
            "FAIL",
            "rank-crash",
        ),
        (
            report(known_findings=[{"state": "known", "page": "docs/findings/a-b.md"}]),
            "PASS",
            "known: a-b",
        ),
        (report(known_findings=[{"state": "not met", "page": "docs/findings/a-b.md"}]), "PASS", ""),
        (
            {"checks": [], "skipped": [{"name": "llama", "reason": "too old"}]},
            "SKIPPED",
            "too old",
        ),
    ],
)
def test_a_cell_has_the_verdict_and_what_explains_it(
    said: dict[str, Any], verdict: str, why: str
) -> None:
    assert list(adapters.rows("5.24", said)) == [Row("5.24", "llama", verdict, why)]


def test_a_run_without_a_report_is_unknown_and_says_why(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho no such check >&2\n")
    python.chmod(0o755)
    environment = Environment("old", "old==1", ("a.py::b",))
    found = adapters.verified(environment, python, 1, 60)
    assert found == [Row("old", "", "UNKNOWN", "no such check")]
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    (late,) = adapters.verified(environment, python, 1, 1)
    assert (late.verdict, late.why) == ("UNKNOWN", "took longer than 1 s")


def test_what_cannot_be_installed_is_skipped_with_the_reason(tmp_path: Path) -> None:
    environment = Environment("none", "no such requirement !", ())
    said = adapters.made(environment, tmp_path)
    assert isinstance(said, str) and "can't be installed" in said
    assert not (tmp_path / "none" / adapters.DONE).exists()


@pytest.mark.parametrize(("verdict", "code"), [("PASS", 0), ("SKIPPED", 0), ("FAIL", 1)])
def test_the_exit_code_is_that_of_the_worst_cell(
    verdict: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adapters, "made", lambda environment, folder: Path(sys.executable))
    monkeypatch.setattr(
        adapters,
        "verified",
        lambda environment, *rest: [Row(environment.name, "row", verdict)],
    )
    assert adapters.main(["--releases", "5.24.0", "--only", "fairscale"]) == code
    assert f"| fairscale | row | {verdict} |  |" in capsys.readouterr().out
