"""The file that `tpcheck init` writes, run as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpcheck import CheckFailed, Verdict, verify
from tpcheck.check import Check
from tpcheck.cli.start import write
from tpcheck.engines.engine import Engine
from tpcheck.search import collect

HERE = "tests.first_modules"


def check(folder: Path, target: str, plan: str | None, reference: str | None) -> Check:
    """The one that is written."""
    named = [None if name is None else f"{HERE}:{name}" for name in (plan, reference)]
    file, _ = write(f"{HERE}:{target}", *named, (), folder / f"check_{target}_{plan}.py")  # type: ignore[arg-type]
    (module,) = collect.modules([str(file)])
    (found,) = [value for value in vars(module).values() if isinstance(value, Check)]
    return found


@pytest.mark.parametrize(
    ("target", "plan", "reference"),
    [
        ("MLP", "PLAN", None),
        pytest.param("Normed", "PLAN", None, marks=pytest.mark.sweep),
        ("Normed", "SEQUENCE", None),
        ("Parallel", None, None),
        ("by_mesh", None, "MLP"),
        ("llama", None, None),
    ],
)
def test_it_gives_a_verdict(
    gloo: Engine, tmp_path: Path, target: str, plan: str | None, reference: str | None
) -> None:
    held = check(tmp_path, target, plan, reference)
    (result,) = verify(held, engine=gloo, examples=2, degrees=(2,), dtypes=("float64",))
    assert (result.verdict, result.examples) == (Verdict.PASS, 2)


@pytest.mark.parametrize(
    ("target", "plan", "code"),
    [("MLP", "MISSPELT", "plan-entry-unmatched"), ("Wrong", None, "missing-all-reduce")],
)
def test_a_wrong_one_behind_the_same_file_fails(
    gloo: Engine, tmp_path: Path, target: str, plan: str | None, code: str
) -> None:
    held = check(tmp_path, target, plan, "MLP" if plan is None else None)
    with pytest.raises(CheckFailed) as caught:
        verify(held, engine=gloo, examples=2, degrees=(2,), dtypes=("float64",))
    (result,) = caught.value.results
    assert result.counterexample is not None
    assert result.counterexample.diagnosis.code == code
