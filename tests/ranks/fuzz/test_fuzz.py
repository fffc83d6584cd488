"""`tpcheck fuzz` over a right and a wrong kernel: found, confirmed, made smaller, gone on with."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests import commands
from tests.ranks.fuzz.checks import CHECKS, folder_of, fuzz, ids


def test_the_wrong_one_is_found_once_and_made_smaller_and_a_later_run_goes_on(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path)
    code, text, report = fuzz(folder, "--turns", "4")
    assert code == 1, text
    (found,) = report["findings"]
    assert found["check"] == "kernels.py::wrong" and found["shrunk"]
    assert found["place"] == "output" and found["case"]["dims"] == {"rows": 1, "width": 17}
    assert ids(folder) == {found["id"]}
    assert f"tpcheck replay {found['id']}" in text and "made smaller" in text
    cases = {row["title"]: row["cases"] for row in report["checks"]}
    assert cases["right"] >= 10 and report["verdict"] == "FAIL"

    code, text, again = fuzz(folder, "--turns", "1")
    assert code == 1 and "and 1 finding;" in text
    assert [f["id"] for f in again["findings"]] == [found["id"]]
    assert again["cases"] > report["cases"] and again["cases_of_this_run"] < again["cases"]

    folder_of(folder, CHECKS.replace("* 3", "* 2"))
    code, text, fixed = fuzz(folder, "--turns", "2")
    assert code == 0 and "no longer fails" in text
    assert fixed["findings"] == [] and ids(folder) == set()


@pytest.mark.sweep
def test_two_checks_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "more.py").write_text((folder / "kernels.py").read_text())
    code, text, report = fuzz(folder, "more.py", "--turns", "4")
    assert code == 1, text
    assert {row["title"] for row in report["checks"]} >= {"wrong (more.py::wrong)"}
    for found in report["findings"]:
        assert f"FAIL  wrong ({found['check']})" in text, text


def test_what_is_found_outlives_a_kill(tmp_path: Path) -> None:
    """Killed as soon as the corpus has it: it may not be in the state yet."""
    folder = folder_of(tmp_path)
    words = ["fuzz", "kernels.py::wrong", "--jobs", "1", "--turns", "50"]
    process = commands.started(words, folder, leads=True)
    while not (before := ids(folder)):
        assert process.exitcode is None, "it ended by itself"
    os.killpg(process.pid or 0, signal.SIGKILL)
    assert commands.ended(process) == -signal.SIGKILL
    code, text, report = fuzz(folder, "--turns", "1")
    assert code == 1, text
    assert {found["check"] for found in report["findings"]} == {"kernels.py::wrong"}
    assert "first again: " in text and before


def test_it_ends_as_verify_does(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        CHECKS.replace("* 3", "* 2")
        + """
def stop(x):
    raise ValueError("no reference")

odd = tpcheck.kernel_check(double, reference=stop, arguments=ROWS)
""",
    )
    code, text, report = fuzz(folder, "--turns", "3")
    assert code == 2, text
    assert "no reference" in text and report["verdict"] == "UNKNOWN"
    assert fuzz(folder, "--turns", "1", "--fresh", "--engine", "no-such")[0] == 2
    code, text = commands.tpcheck(["fuzz", "kernels.py::right", "--turns", "1"], folder)
    assert code == 0 and "the next case may show something new: chance" in text


def test_a_file_that_does_not_import_costs_no_other_its_turns(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, CHECKS.replace("* 3", "* 2"))
    (folder / "broken.py").write_text("raise RuntimeError('no GPU here')\n")
    code, text, report = fuzz(folder, "broken.py", "--turns", "2")
    assert code == 2 and "broken.py: does not import: RuntimeError: no GPU here" in text
    rows = {row["title"]: row["troubled"] for row in report["checks"]}
    assert "no GPU here" in rows.pop("broken.py") and set(rows.values()) == {None}
    assert report["verdict"] == "UNKNOWN" and report["cases"] > 0
