"""Collection: files, folders and names give checks; what can't is refused in one line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tpcheck.cli import signals
from tpcheck.errors import InvalidArgument
from tpcheck.search.collect import checks_in, collect, load
from tpcheck.search.files import heavy_imports

SOURCE = """
from tpcheck import Check, specs

def build(case, mesh):
    raise AssertionError("collecting builds nothing")

{name} = Check(specs.row_linear(), candidate=build)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own; what is imported there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    modules, path = dict(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - set(modules):
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def refused(*targets: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        collect(targets)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_a_file_gives_all_its_checks_named_after_their_variables(folder: Path) -> None:
    both = SOURCE.format(name="row") + "column = Check(specs.column_linear(), candidate=build)\n"
    found = collect([write(folder / "linear_checks.py", both)])
    assert [(c.title, c.spec.name) for c in found] == [
        ("row", "row_linear"),
        ("column", "column_linear"),
    ]


def test_a_given_name_wins_over_the_variable(folder: Path) -> None:
    text = SOURCE.format(name="row").replace("build)", 'build, name="mine")')
    path = write(folder / "named_checks.py", text)
    assert [c.title for c in collect([path])] == ["mine"]
    assert [c.title for c in collect([f"{path}::row"])] == ["mine"]


def test_a_name_selects_one_check_and_targets_keep_their_order(folder: Path) -> None:
    first = write(folder / "first_checks.py", SOURCE.format(name="one") + "two = one.named('')\n")
    second = write(folder / "second_checks.py", SOURCE.format(name="three"))
    found = collect([second, f"{first}::two", f"{first}::one"])
    assert [c.title for c in found] == ["three", "two", "one"]
    assert [c.title for c in collect([f"{first}::two", first])] == ["two", "one"], "each once"


def test_a_folder_gives_the_checks_of_its_files_in_order_of_name(folder: Path) -> None:
    write(folder / "props/b.py", SOURCE.format(name="second"))
    write(folder / "props/a.py", SOURCE.format(name="first"))
    write(folder / "props/deeper/c.py", SOURCE.format(name="third"))
    write(folder / "props/_helper.py", "raise RuntimeError('not to be imported')")
    assert [c.title for c in collect(["props"])] == ["first", "second", "third"]


def test_a_folder_may_hold_files_without_checks(folder: Path) -> None:
    write(folder / "props/a.py", "x = 1")
    write(folder / "props/b.py", SOURCE.format(name="only"))
    assert [c.title for c in collect(["props"])] == ["only"]


def test_hidden_folders_are_not_entered(folder: Path) -> None:
    write(folder / "props/a.py", SOURCE.format(name="only"))
    write(folder / "props/.venv/lib.py", "raise RuntimeError('not to be imported')")
    assert [c.title for c in collect(["props"])] == ["only"]


def test_a_name_is_looked_for_in_all_files_of_a_folder(folder: Path) -> None:
    write(folder / "props/a.py", SOURCE.format(name="first"))
    write(folder / "props/b.py", SOURCE.format(name="second"))
    assert [c.title for c in collect(["props::second"])] == ["second"]


def test_an_unknown_name_suggests_the_near_ones(folder: Path) -> None:
    path = write(folder / "typo_checks.py", SOURCE.format(name="row_linear"))
    assert "'row_liner'" in (text := refused(f"{path}::row_liner")) and "'row_linear'" in text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\n1 / 0\n", ["ZeroDivisionError", "line 2"]),
        ("x = 1\nif x\n    pass\n", ["SyntaxError", "line 2"]),
        ("import no_such_module_anywhere\n", ["no_such_module_anywhere", "line 1"]),
        ("raise RuntimeError('first\\nsecond')\n", ["RuntimeError: first second"]),
        ("raise SystemExit(3)\n", ["SystemExit", "line 1"]),
        ("assert False\n", ["AssertionError", "line 1"]),
        ("x = '\0'\n", ["null bytes"]),
    ],
    ids=["raises", "syntax", "import", "two-lines", "exit", "assert", "null"],
)
def test_a_file_that_does_not_import_says_what_and_where(
    folder: Path, source: str, words: list[str]
) -> None:
    path = write(folder / "broken_checks.py", source)
    before = set(sys.modules)
    text = refused(path)
    assert all(word in text for word in [path, *words])
    assert not any("broken_checks" in name for name in set(sys.modules) - before)


def test_an_interrupt_while_importing_is_no_error_of_the_file(folder: Path) -> None:
    path = write(folder / "stopped_checks.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        collect([path])


def test_a_mended_file_imports_the_next_time(folder: Path) -> None:
    path = write(folder / "mended_checks.py", "1 / 0")
    refused(path)
    write(folder / "mended_checks.py", SOURCE.format(name="row"))
    assert [c.title for c in collect([path])] == ["row"]


def test_no_check_no_file_and_an_empty_folder_are_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "no Check found" in refused(write(folder / "plain.py", "x = 1"))
    assert "nowhere.py" in refused("nowhere.py")
    assert "empty" in refused("empty")
    assert "notes.txt" in refused(write(folder / "notes.txt", "text"))


def test_a_file_called_like_an_imported_module_of_python_does_not_shadow_it(folder: Path) -> None:
    path = write(folder / "random.py", SOURCE.format(name="row"))
    assert [c.title for c in collect([path])] == ["row"]
    assert hasattr(importlib.import_module("random"), "randint")


def test_a_file_called_like_a_module_of_python_not_yet_imported_does_not_shadow_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    path = write(folder / "colorsys.py", SOURCE.format(name="row"))
    assert [c.title for c in collect([path])] == ["row"]
    assert hasattr(importlib.import_module("colorsys"), "rgb_to_hsv")


def test_a_file_is_imported_once_and_can_import_its_neighbours(folder: Path) -> None:
    write(folder / "sub/neighbour_of_checks.py", "VALUE = 7")
    path = write(folder / "sub/importing_checks.py", "from neighbour_of_checks import VALUE")
    first = load(Path(path))
    assert first.VALUE == 7
    assert load(Path("sub/importing_checks.py")) is first


def test_two_files_of_one_name_are_two_modules(folder: Path) -> None:
    first = write(folder / "a/same_name.py", SOURCE.format(name="one"))
    second = write(folder / "b/same_name.py", SOURCE.format(name="two"))
    assert [c.title for c in collect([first, second])] == ["one", "two"]


def test_a_collected_check_knows_its_address(folder: Path) -> None:
    path = write(folder / "addressed_checks.py", SOURCE.format(name="row"))
    (found,) = collect([path])
    assert found.address() == (path, "row")


@pytest.mark.parametrize(
    "head",
    [
        "import tpcheck\ncheck = tpcheck.Check(tpcheck.specs.row_linear(), build)",
        "import tpcheck as tp\ncheck = tp.Check(tp.specs.row_linear(), build)",
        "from making_checks import make\ncheck = make()",
    ],
)
def test_a_collected_check_knows_its_address_however_it_was_made(folder: Path, head: str) -> None:
    write(
        folder / "making_checks.py",
        "from tpcheck import Check, specs\ndef build(case, mesh): ...\n"
        "def make(): return Check(specs.row_linear(), build)\n",
    )
    build = "from making_checks import build\nimport tpcheck.specs\n"
    path = write(folder / "addressed_otherwise.py", build + head.replace("\\n", "\n"))
    (found,) = collect([path])
    assert found.address() == (path, "check")


def test_an_empty_name_does_not_mean_the_working_folder(folder: Path) -> None:
    write(folder / "some_checks.py", SOURCE.format(name="row"))
    for target in ("", "::row"):
        assert "an empty name was given" in refused(target)
        assert heavy_imports([target]) == []


@pytest.mark.parametrize("package", ["checks_package", "json"])
@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_file_of_a_package_is_collected_wherever_the_package_lies(
    folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, where: str
) -> None:
    inside = folder / "elsewhere" / package
    write(inside / "__init__.py", "")
    (folder / "work").mkdir()
    monkeypatch.chdir(inside.parent if where == "inside" else folder / "work")
    path = write(inside / "packaged.py", SOURCE.format(name="row"))
    assert [c.title for c in collect([path])] == ["row"]
    assert hasattr(importlib.import_module("json"), "dumps")


def test_what_is_no_file_in_a_folder_is_passed_over_and_not_waited_for(folder: Path) -> None:
    write(folder / "props/a.py", SOURCE.format(name="only"))
    props = folder / "props"
    (props / ".#b.py").symlink_to("user@host.1234")
    (props / "dangling.py").symlink_to("nowhere.py")
    (props / "loop.py").symlink_to("loop.py")
    (props / "around").symlink_to(props)
    (props / "folder.py").mkdir()
    os.mkfifo(props / "pipe.py")
    assert heavy_imports(["props"]) == []
    assert [c.title for c in collect(["props"])] == ["only"]


@pytest.mark.parametrize("kind", ["dangling", "loop", "pipe", "device", "folder", "long", "null"])
def test_what_is_no_file_is_refused_in_one_line(folder: Path, kind: str) -> None:
    place = folder / "x.py"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind in ("dangling", "loop", "device"):
        place.symlink_to({"dangling": "gone.py", "loop": "x.py", "device": "/dev/zero"}[kind])
    target = {"long": "x" * 300, "null": "a\0b.py"}.get(kind, "x.py")
    assert heavy_imports([target]) == []
    refused(target)


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.modules[__name__] = 3\n",
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E\n",
        "raise BaseException('\\n\\n')\n",
    ],
    ids=["replaced", "no text", "blank"],
)
@pytest.mark.parametrize("name", ["__init__", "inner"])
def test_a_package_that_does_what_it_likes_is_refused_in_one_line(
    folder: Path, source: str, name: str
) -> None:
    package = f"odd_{name}_{abs(hash(source))}"
    for file in ("__init__", "inner"):
        write(folder / package / f"{file}.py", source if file == name else "")
    refused(str(folder / package / "inner.py"))


def test_an_object_that_answers_for_another_class_stops_nothing(folder: Path) -> None:
    source = SOURCE.format(name="only") + (
        "class Odd:\n    @property\n    def __class__(self): raise RuntimeError\nodd = Odd()\n"
    )
    path = write(folder / "odd_checks.py", source)
    assert [c.title for c in collect([path])] == ["only"]
    assert checks_in(path) == {"only"}


def test_what_a_file_sets_of_torch_when_it_is_imported_ends_with_it(folder: Path) -> None:
    """The checks of the next file are not to begin in it."""
    source = "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\n"
    collect([write(folder / "sets.py", source + SOURCE.format(name="one"))])
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()


def test_an_empty_name_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"checks\.py:: names no check"):
        collect([f"{write(folder / 'checks.py', SOURCE.format(name='one'))}::"])


def test_a_file_that_raises_an_interrupt_does_not_import(folder: Path) -> None:
    (folder / "stops.py").write_text("raise KeyboardInterrupt")
    with signals.heard(), pytest.raises(InvalidArgument, match="import: KeyboardInterrupt"):
        collect(["stops.py"])
