"""Interpreters of earlier releases of Triton compute what that of 3.9 does; under a release that is
not known no kernel runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from tests import ROOT
from tpcheck.kernels import earlier, interpreter

pytest.importorskip("triton")

from tests.unit.kernels import language, unknown_release

SELECTED = "bits are selected"
REFUSED = {"scaled blocks": "tl.dot_scaled", "rounding": "round_f32_to_tf32"}
#: Right in 3.6.0, too, where the language of 3.9 is around it.
RIGHT = {
    *(f"a constant is of the tensor's dtype, {dtype}" for dtype in ("float64", "float32")),
    "a constant is of the tensor's dtype, float16",
    "a fused product is rounded once, bfloat16",
    *(f"an atomic gives what was there, torch.{dtype}" for dtype in ("float64", "float32")),
}


needs_newest = pytest.mark.skipif(
    earlier.of(language.triton.__version__) != interpreter.KNOWN[-1],
    reason="the stand-in is made of the newest release that is known",
)


@cache
def said(program: str, *words: str) -> dict[str, str]:
    """What one of the programs beside this file writes."""
    command = [sys.executable, "-m", f"tests.unit.kernels.{program}", *words]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", language.CASES)
def test_the_language_is_that_of_the_compiler(name: str) -> None:
    assert said("language")[name] == ""


@needs_newest
@pytest.mark.parametrize("name", [*language.CASES, SELECTED])
def test_what_an_earlier_release_computes_otherwise_is_fixed(name: str) -> None:
    assert said("stand_in", "3.6.0")[name] == ""


@needs_newest
def test_the_twin_unfixed_it_is_wrong_there() -> None:
    found = said("stand_in", "3.9.0")
    assert {name for name in found if found[name] == ""} == RIGHT | {"scaled blocks"}


@needs_newest
@pytest.mark.parametrize(("name", "what"), REFUSED.items())
def test_what_an_earlier_release_rounds_otherwise_is_not_modelled(name: str, what: str) -> None:
    assert what in said("stand_in", "3.6.0")[name]


@pytest.mark.parametrize("way", unknown_release.WAYS)
def test_under_a_release_that_is_not_known_nothing_runs_a_kernel(way: str) -> None:
    reason = said("unknown_release")[way]
    assert reason.startswith(f"kernels of Triton {unknown_release.VERSION}: "), reason
    assert reason.endswith("3.6, 3.7, 3.8, 3.9")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("3.6.0", (3, 6)),
        ("3.9", (3, 9)),
        ("3.90.1", (3, 90)),
        ("3.9.0+git1a2b", (3, 9)),
        ("4", None),
        ("main", None),
    ],
)
def test_a_release_is_two_numbers(version: str, release: earlier.Release | None) -> None:
    assert earlier.of(version) == release
