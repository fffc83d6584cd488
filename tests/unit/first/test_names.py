"""What a first check's file calls things: names of the user's are not taken for its own."""

from __future__ import annotations

import keyword
from pathlib import Path

import pytest

from tests.unit.first.test_written import written
from tpcheck.cli.start import write
from tpcheck.errors import InvalidArgument
from tpcheck.first.factory import OURS, Imported

SOURCE = """
from torch import nn
from tests import first_modules as given

class MLP(given.MLP):
    pass

PLAN = given.PLAN
"""


def modules(folder: Path, stem: str, more: str = "") -> str:
    (folder / f"{stem}.py").write_text(SOURCE + more)
    return f"{folder}/{stem}.py"


def holds(text: str) -> bool:
    """Whether the file runs: its names are all there."""
    exec(compile(text, "check.py", "exec"), {"__name__": "written"})
    return True


@pytest.mark.parametrize("name", ["tpcheck", "strategies", "Spec", "Shard", "case", "candidate"])
def test_a_factory_may_have_any_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = modules(tmp_path, f"mine_{name}", f"def {name}(group): return given.Parallel(group)\n")
    out, _ = write(f"{file}:{name}", None, f"{file}:MLP", (), tmp_path / "check.py")
    text = out.read_text()
    assert f"import MLP, {name} as own_{name}\n" in text
    assert f'return own_{name}(mesh["tp"].get_group())' in text and holds(text)


@pytest.mark.parametrize("name", ["cases", "layout", "inputs", "Layout", "dtensor"])
def test_a_plan_may_have_any_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = modules(tmp_path, f"planned_{name}", f"{name} = PLAN\n")
    out, _ = write(f"{file}:MLP", f"{file}:{name}", None, (), tmp_path / "check.py")
    text = out.read_text()
    assert f"{name} as own_{name}" in text and f"    own_{name},\n" in text and holds(text)


def test_two_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the candidate would be checked against itself."""
    monkeypatch.syspath_prepend(tmp_path)
    whole = modules(tmp_path, "whole")
    split = modules(tmp_path, "split", "class MLP(given.Parallel): pass\n")
    out, _ = write(f"{split}:MLP", None, f"{whole}:MLP", (), tmp_path / "check.py")
    text = out.read_text()
    assert "from split import MLP\nfrom whole import MLP as own_MLP\n" in text
    assert "reference=lambda case: own_MLP()," in text and holds(text)


@pytest.mark.parametrize("name", ["build", "candidate"])
def test_two_of_a_name_of_the_files_own_are_told_apart(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    whole = modules(tmp_path, f"whole_{name}", f"def {name}(): return given.MLP()\n")
    make = f"def {name}(group): return given.Parallel(group)\n"
    split = modules(tmp_path, f"split_{name}", make)
    out, _ = write(f"{split}:{name}", None, f"{whole}:{name}", (), tmp_path / "check.py")
    text = out.read_text()
    assert f"import {name} as own_{name}\n" in text and f"import {name} as other_{name}\n" in text
    assert f"reference=lambda case: other_{name}()," in text and holds(text)
    assert f'return own_{name}(mesh["tp"].get_group())' in text


def test_an_alias_is_no_other_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    more = "def own_layout(): return MLP()\nlayout = PLAN\n"
    file = modules(tmp_path, "both_called", more)
    out, _ = write(f"{file}:own_layout", f"{file}:layout", None, (), tmp_path / "check.py")
    text = out.read_text()
    assert "import layout as other_layout, own_layout\n" in text and holds(text)


def test_an_axis_may_have_any_name(tmp_path: Path) -> None:
    text, _ = written(tmp_path, "over_mesh_of_its_own", reference="MLP")
    assert '"up.weight": Shard(0)' in text and '"down.weight": Shard(1)' in text


def test_what_is_inside_of_a_class_keeps_its_place() -> None:
    found = Imported("mine", "Spec.Inner")
    assert (found.top, found.top_as, found.called) == ("Spec", "own_Spec", "own_Spec.Inner")
    assert not {name for name in OURS if keyword.iskeyword(name)}


@pytest.mark.parametrize("stem", ["class", "my-mod", "layer.v2"])
def test_a_file_that_no_import_can_name_is_to_have_another(tmp_path: Path, stem: str) -> None:
    file = modules(tmp_path, stem)
    with pytest.raises(InvalidArgument, match=rf"call the file other than {stem}\.py"):
        write(f"{file}:MLP", f"{file}:PLAN", None, (), tmp_path / "check.py")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (("x=tp,8",), "without a _ in front and other than dp, tp"),
        (("x=batch,_h,8",), "'x=batch,_h,8' is not NAME=SIZES"),
        (("x=batch,1000000000000,8",), "each of its check's cases would hold that some 32 times"),
        (("x=99999999999999999999,8",), "give smaller sizes"),
        (("x=batch,8", "x=batch,8"), "--input gives x twice"),
    ],
)
def test_inputs_that_can_not_be_drawn_are_refused(
    tmp_path: Path, inputs: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        written(tmp_path, "MLP", plan="PLAN", inputs=inputs)
