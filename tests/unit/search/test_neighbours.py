"""A check's file gets the modules beside it, or is refused: never those beside another file."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch

from tests.unit.search.test_collect import SOURCE, folder, refused, write  # noqa: F401
from tpcheck.search.collect import collect

MODEL = "def build(case, mesh): ...\n"


def check(name: str, first: str) -> str:
    return f"{first}\n" + SOURCE.format(name=name)


@pytest.mark.parametrize(
    "first",
    [
        "import model",
        "from model import build as other",
        "def later():\n    import model",
        "import helper",
    ],
)
def test_a_module_of_the_same_name_beside_another_file_is_not_taken(
    folder: Path,  # noqa: F811
    first: str,
) -> None:
    for place in ("one", "two"):
        write(folder / place / "model.py", MODEL)
        helper = f"helper{'' if place == 'two' else '_of_one'}"
        write(folder / place / f"{helper}.py", "import model\n")
    one = write(folder / "one" / "checks.py", check("a", "import model"))
    two = write(folder / "two" / "checks.py", check("b", first))
    said = refused(one, two)
    importing = "helper.py" if "helper" in first else "checks.py"
    assert f"two/{importing} imports model" in said and "one/model.py" in said


def test_what_a_file_does_not_import_may_have_any_name(folder: Path) -> None:  # noqa: F811
    for place in ("one", "two"):
        write(folder / place / "model.py", MODEL)
        write(folder / place / "json.py", MODEL)
    one = write(folder / "one" / "checks.py", check("a", "import model, json"))
    two = write(folder / "two" / "checks.py", check("b", "import json"))
    assert [c.title for c in collect([one, two])] == ["a", "b"]


def test_files_of_one_folder_share_what_is_beside_them(folder: Path) -> None:  # noqa: F811
    write(folder / "one" / "model.py", MODEL)
    files = [write(folder / "one" / f"{n}.py", check(n, "import model")) for n in ("a", "b")]
    assert [c.title for c in collect(files)] == ["a", "b"]


def test_the_working_folder_comes_first(folder: Path) -> None:  # noqa: F811
    for place in (folder, folder / "one", folder / "two"):
        write(place / "model.py", MODEL)
    files = [write(folder / n / "checks.py", check(n, "import model")) for n in ("one", "two")]
    assert [c.title for c in collect(files)] == ["one", "two"]


@pytest.mark.parametrize(
    "patch",
    [
        "torch.nn.functional.linear = lambda *args, **options: 0",
        "torch.nn.Module.train = lambda self, mode: self",
        "torch.Tensor.sum = lambda self: self",
        "import math\nmath.prod = sum",
    ],
)
@pytest.mark.parametrize("where", ["the file", "beside it"])
def test_what_a_file_replaces_of_torch_holds_for_no_reference(
    folder: Path,  # noqa: F811
    patch: str,
    where: str,
) -> None:
    before = [torch.nn.functional.linear, torch.nn.Module.train, torch.Tensor.sum, math.prod]
    source = f"import torch\n{patch}\n"
    if where == "beside it":
        write(folder / "patches_of_mine.py", source)
        source = "import patches_of_mine"
    collect([write(folder / "checks.py", check("a", source))])
    now = [torch.nn.functional.linear, torch.nn.Module.train, torch.Tensor.sum, math.prod]
    assert now == before


def test_what_an_installed_package_replaces_stays(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = folder / "site-packages"
    write(home / "patching_package.py", "import torch\ndef own(): ...\ntorch.addmm = own\n")
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(torch, "addmm", torch.addmm)
    collect([write(folder / "checks.py", check("a", "import patching_package"))])
    assert torch.addmm is sys.modules["patching_package"].own
