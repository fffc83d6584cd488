"""Scripts as text: what is refused, and that what a saved case says stays a comment."""

from __future__ import annotations

import ast
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import CaseError
from tpcheck.script.parts import model
from tpcheck.script.write import script
from tpcheck.search.collect import collect
from tpcheck.search.corpus import Saved
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

SOURCE = """
import torch, tpcheck
from tpcheck import Argument, Case, Check, Layout, Spec

def double(x):
    return x + x

class Model(torch.nn.Linear):
    pass

def build(case, mesh):
    return Model(case["n"], case["n"])

def forward(module, inputs):
    return module(inputs["x"])

def spec(**more):
    return Spec(
        name="linear",
        cases=[Case(dims={"n": 3})],
        reference=lambda case: torch.nn.Linear(case["n"], case["n"]),
        inputs=lambda case, draw: {"x": draw("x", 2, case["n"])},
        layout=lambda case: Layout(),
        **more,
    )

kernel = tpcheck.kernel_check(
    double, reference=double, arguments={"x": Argument("rows", "n")}, overwrites=("x",)
)
large = tpcheck.kernel_check(double, reference=double, arguments={"x": Argument("n", "n", "n")})
model = Check(spec(forward=forward), build)
hidden = Check(spec(forward=lambda module, inputs: module(inputs["x"])), build)
scheduled = Check(spec(), build, schedule=lambda *given: [])
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Check]:
    folder = tmp_path_factory.mktemp("written")
    (folder / "written.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        return {check.title: check for check in collect(["written.py"])}


@pytest.fixture(autouse=True)
def inside(checks: dict[str, Check], monkeypatch: pytest.MonkeyPatch) -> None:
    address = checks["kernel"].address()
    assert address is not None
    monkeypatch.chdir(Path(address[0]).parent)


def saved(check: str, *kinds: Kind, engine: str = "gloo", n: int = 3, tp: int = 1) -> Saved:
    case = Case(dims={"rows": 2, "n": n}, mesh={"tp": tp})
    found = [Mismatch("output", kind, 0) for kind in kinds]
    return Saved("abc123", check, ("written.py", check), case, engine, found, {"code": "race"})


def test_a_script_names_the_candidate_and_the_case(checks: dict[str, Check]) -> None:
    text = script(saved("kernel", Kind.OUTPUT), checks["kernel"])
    assert "# candidate  written.double" in text and "rows=2 n=3 seed=0" in text
    assert "candidate('written', 'double', CARRIED, folder='.')" in text
    assert "habits" not in text and "CARRIED: dict[str, str] = {}" in text, "no Triton in there"


def test_habits_are_looked_at_where_they_were_found(checks: dict[str, Check]) -> None:
    text = script(saved("kernel", Kind.DISCIPLINE), checks["kernel"])
    assert "habits(subject, inputs, upstream, overwrites=('x',))" in text


def test_what_was_found_on_a_gpu_is_made_there(checks: dict[str, Check]) -> None:
    text = script(saved("kernel", Kind.OUTPUT, engine="nccl"), checks["kernel"])
    assert "device='cuda'" in text and "TRITON_INTERPRET" not in text


def test_a_models_own_forward_is_imported(checks: dict[str, Check]) -> None:
    text = script(saved("model", Kind.PARAM_GRAD, tp=2), checks["model"])
    assert "forward=candidate('written', 'forward', CARRIED, folder='.')" in text
    assert "torchrun --nproc-per-node 2 THIS_FILE" in text
    compile(text, "script", "exec")


@pytest.mark.parametrize(
    ("check", "kind", "more", "says"),
    [
        ("kernel", Kind.HANG, {}, "evidence of hang"),
        ("model", Kind.COLLECTIVE, {}, "evidence of collective"),
        ("model", Kind.DISCIPLINE, {}, "evidence of discipline"),
        ("hidden", Kind.OUTPUT, {}, "forward of 'hidden' has no name"),
        ("scheduled", Kind.OUTPUT, {}, "a schedule of its own"),
        ("model", Kind.OUTPUT, {"engine": "nccl"}, "GPUs"),
    ],
)
def test_what_can_not_be_shown_is_refused_in_one_line(
    checks: dict[str, Check], check: str, kind: Kind, more: dict[str, str], says: str
) -> None:
    with pytest.raises(CaseError) as caught:
        script(saved(check, kind, **more), checks[check])  # type: ignore[arg-type]
    assert says in str(caught.value) and "abc123" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_what_a_saved_case_says_stays_a_comment(checks: dict[str, Check]) -> None:
    evil = "x\nimport os\r\x0c\x85\u2028os.abort()'''"
    given = replace(saved("kernel", Kind.RACE), id=evil, check=evil)
    given.diagnosis.update(code=evil, message=evil)
    given.mismatches[0] = replace(given.mismatches[0], tensor=evil)
    text = script(given, checks["kernel"])
    head = text.partition("\nfrom __future__")[0]
    assert all(line.startswith("#") for line in head.splitlines() if line)
    assert "abort" not in ast.unparse(ast.parse(text))


def test_a_script_has_all_of_a_case() -> None:
    own = {f.name: f.default for f in fields(model.Case) if f.default is not MISSING}
    cases = {f.name: f.default for f in fields(Case) if f.name in own}
    assert own == cases
    assert {f.name for f in fields(model.Case)} == {f.name for f in fields(Case)}
