"""Where a script finds a candidate again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.script import subject
from tpcheck.script.parts import candidate as part
from tpcheck.script.subject import Subject
from tpcheck.search.collect import collect

CASE = Case(mesh={"tp": 1})
SOURCE = """
import functools, torch, tpcheck
from tpcheck import Argument, kernel_check

ROW = {"x": Argument("n")}

def plain(x):
    return x

class Fn(torch.autograd.Function):
    pass

class Callable:
    def __call__(self, x):
        return x

def make():
    def inner(x):
        return x
    return inner

held = make()
partial = functools.partial(plain)
instance = Callable()

def helper(fn):
    return kernel_check(fn, reference=plain, arguments=ROW)

a = helper(plain)
b = helper(Fn.apply)
c = helper(held)
d = helper(partial)
e = helper(instance)
f = helper(torch.relu)
g = kernel_check(lambda x: x + 1, reference=plain, arguments=ROW)
h = helper(make())
i = helper(lambda x: x)
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Check]:
    folder = tmp_path_factory.mktemp("subjects")
    (folder / "subjects.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        return {check.title: check for check in collect(["subjects.py"])}


@pytest.fixture(autouse=True)
def inside(checks: dict[str, Check], monkeypatch: pytest.MonkeyPatch) -> None:
    address = checks["a"].address()
    assert address is not None
    monkeypatch.chdir(Path(address[0]).parent)


@pytest.mark.parametrize(
    ("name", "path"),
    [("a", "plain"), ("b", "Fn.apply"), ("c", "held"), ("d", "partial"), ("e", "instance")],
)
def test_a_function_is_found_by_its_name(checks: dict[str, Check], name: str, path: str) -> None:
    check = checks[name]
    function = check.candidate(CASE, None)  # type: ignore[arg-type]
    assert subject.named(function, check) == Subject("subjects", path)


def test_one_of_another_module_is_found_there(checks: dict[str, Check]) -> None:
    function = checks["f"].candidate(CASE, None)  # type: ignore[arg-type]
    found = subject.named(function, checks["f"])
    assert found is not None and found.path == "relu"


def test_one_without_a_name_is_taken_from_its_check(checks: dict[str, Check]) -> None:
    check = checks["g"]
    assert subject.named(check.candidate(CASE, None), check) is None  # type: ignore[arg-type]
    assert subject.of_check(check, ("kernel_check",)) == Subject("subjects", "g")


@pytest.mark.parametrize("name", ["h", "i"])
def test_a_closure_that_a_helper_is_given_is_not_found(checks: dict[str, Check], name: str) -> None:
    check = checks[name]
    assert subject.named(check.candidate(CASE, None), check) is None  # type: ignore[arg-type]
    assert subject.of_check(check, ("kernel_check",)) is None


def test_a_standin_keeps_what_a_check_was_given() -> None:
    made = part.Standin("tpcheck.kernel_check")(len, reference=max)
    assert made._given == (len,) and made._named == {"reference": max}
    assert list(made.anything) == []


def test_a_standin_may_be_replaced_as_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = part.Standin("tpcheck.Check")(part.Standin("tpcheck.specs.mlp")(), candidate=len)
    again = replace(made, spec=replace(made._given[0], reference=max), name="other")
    assert again._name == "tpcheck.Check" and again._named["candidate"] is len
    assert replace(again, candidate=max)._named["candidate"] is max


def test_a_candidate_that_calls_tpcheck_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part.Standin, "running", True)
    with pytest.raises(part.NeedsTpcheck, match="matmul"):
        part.Standin("tpcheck.specs.reference.matmul")(1, 2)
