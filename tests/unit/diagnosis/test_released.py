"""Faults of released packages are recognised by the package's own line, and by what it does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT
from tpcheck.causes import Cause, OnlyInMode
from tpcheck.causes.microbatches import FirstPassRepeated, ReducedWithEach, SomePassesOnly
from tpcheck.causes.where import Subject
from tpcheck.comms import frames
from tpcheck.diagnosis import released
from tpcheck.errors import InvalidArgument
from tpcheck.event import Event
from tpcheck.evidence import Raised, Scene
from tpcheck.evidence.known import KnownAs, Likeness
from tpcheck.search.trouble import why
from tpcheck.vocabulary import Kind, Phase

TEXT = """
class Router:
    def forward(self):
        return not_there is None


def elsewhere():
    return not_there is None
"""
ROUTER = released.Released(
    "torch", ">=1", "x.md", "a_package.inside.router", "Router",
    ("NameError", "name 'not_there' is not defined"),
)  # fmt: skip
REDUCES = replace(ROUTER, raises=None)
#: A line of the class.
WHERE = "router.py:4"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a package that is installed: of this test's, not of one before it."""
    folder = tmp_path / "a_package" / "inside"
    folder.mkdir(parents=True)
    (folder / "router.py").write_text(TEXT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(released, "RELEASED", (ROUTER, REDUCES))
    for name in ("a_package", "a_package.inside", "a_package.inside.router"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("a_package.inside.router")


def met(function: Callable[[], object]) -> NameError:
    with pytest.raises(NameError) as caught:
        function()
    return caught.value


def test_a_reference_that_meets_one_says_so(package: Any) -> None:
    known = released.raised(met(package.Router().forward))
    assert known is not None
    assert (known.page, known.how, known.at) == ("x.md", Likeness.SEEN, "router.py:4 in Router")
    error = met(package.Router().forward)
    assert "known finding: x.md: a fault of torch >=1 (" in why(error)
    told = InvalidArgument("the reference raised it")
    told.__cause__ = error
    assert why(told).startswith("the reference raised it; known finding: x.md: a fault of torch")


def test_the_same_elsewhere_is_not_the_finding(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert released.raised(met(package.elsewhere)) is None
    assert released.raised(met(lambda: not_there)) is None  # type: ignore[name-defined] # noqa: F821
    assert "known finding" not in why(met(package.elsewhere))
    other = replace(ROUTER, raises=("NameError", "name 'another' is not defined"))
    monkeypatch.setattr(released, "RELEASED", (other,))
    assert released.raised(met(package.Router().forward)) is None
    monkeypatch.setattr(released, "RELEASED", (replace(ROUTER, releases="<1"),))
    assert released.raised(met(package.Router().forward)) is None


def facts(*, raised: BaseException | None = None, **event: Any) -> Any:
    """Of a failing case in which a rank raised, or entered one collective."""
    mismatches = []
    if raised is not None:
        scene = Scene(stack=frames.stack(raised))
        mismatches = [SimpleNamespace(detail=Raised("NameError", str(raised), scene=scene))]
    given: dict[str, Any] = {"phase": Phase.BACKWARD, "where": WHERE, "module": "layers.0.norm"}
    numbers = ("all_reduce", "sum", (0, 1), "float32", (4,), 4, 16)
    entered = Event(*numbers, **(given | event))
    again = SimpleNamespace(trace=[[], [entered]])
    return SimpleNamespace(result=SimpleNamespace(causes=mismatches), again=again)


OF = Subject(Kind.PARAM_GRAD, "layers.0.norm.weight")
AGAIN = ReducedWithEach(OF, 4, 3)


def test_a_rank_that_meets_one_says_so(package: Any) -> None:
    known = released.recognised(facts(raised=met(package.Router().forward)), AGAIN)
    assert known is not None and known.at == "router.py:4 in Router"


@pytest.mark.parametrize(
    "cause", [AGAIN, FirstPassRepeated(OF, 1.0), OnlyInMode(AGAIN, "eval")], ids=lambda c: type(c)
)
def test_a_collective_of_the_package_that_adds_up_too_often_is_one(
    package: Any, cause: Cause
) -> None:
    known = released.recognised(facts(), cause)
    assert known is not None and known.at == "router.py:4 in Router"


@pytest.mark.parametrize(
    ("cause", "event"),
    [
        (SomePassesOnly(OF, (0,), 2), {}),
        (replace(AGAIN, subject=Subject(Kind.INPUT_GRAD, "x")), {}),
        (replace(AGAIN, subject=Subject(Kind.PARAM_GRAD, "layers.1.norm.weight")), {}),
        (AGAIN, {"module": ""}),
        (AGAIN, {"phase": Phase.FORWARD}),
        (AGAIN, {"where": "router.py:8"}),
        (AGAIN, {"where": "others.py:4"}),
        (AGAIN, {"where": ""}),
    ],
)
def test_what_could_be_anybodys_is_not(package: Any, cause: Cause, event: dict[str, Any]) -> None:
    assert released.recognised(facts(**event), cause) is None


@pytest.mark.parametrize("one", released.RELEASED, ids=lambda one: one.page)
def test_each_has_a_page_and_its_place_is_where_it_is_installed(one: released.Released) -> None:
    text = (ROOT / one.page).read_text()
    assert one.within in text and (one.raises is None or one.raises[1] in text)
    if not released.is_among(one.package, one.releases):
        pytest.skip(f"{one.package} {one.releases} is not installed")
    file = released._file(one)
    assert file is not None and f"class {one.within}(" in file.read_text()


def test_each_likeness_has_a_sentence() -> None:
    from tpcheck.report.known_as import as_json, sentence

    for how in Likeness:
        known = KnownAs("x.md", "torch", "==2.*", "2.13", how, "a.py:3 in f")
        assert sentence(known).startswith("x.md")
        assert as_json(known)["message"] == sentence(known)
    assert sentence(replace(known, how=Likeness.SEEN)) == (
        "x.md: a fault of torch ==2.* (2.13 is installed), seen at a.py:3 in f"
    )
