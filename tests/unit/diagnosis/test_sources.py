"""The user's code that a page shows."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests import candidates
from tpcheck import Argument, kernel_check
from tpcheck.check import Check
from tpcheck.diagnosis import sources as module
from tpcheck.diagnosis.pictures import callables
from tpcheck.diagnosis.sources import sources
from tpcheck.evidence import Died, Raised, Scene, Stray
from tpcheck.vocabulary import Access

LAYERS = """\
WHOLE = ("norm.bias",)


def reduced(x):
    return x.sum()


class Row:
    def forward(self, x):
        return reduced(x)


def build(case, mesh):
    return Row()
"""

Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Imports a text as a file of the user's, of this name."""
    names = []

    def load(name: str, text: str) -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(name.replace("/", "_"), file)
        assert spec is not None and spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        names.append(spec.name)
        spec.loader.exec_module(made)
        return made

    yield load
    for name in names:
        del sys.modules[name]


def check_of(build: Any) -> Check:
    return replace(candidates.check(candidates.Row), candidate=build, overrides={})


def test_a_short_file_is_shown_whole_with_the_lines_that_are_named(load: Load) -> None:
    check = check_of(load("my_layers", LAYERS).build)
    (one,) = sources(check, "nothing", ["all_reduce at my_layers.py:5"], ["my_layers.py:9"])
    assert (one.file, one.first, one.lines) == ("my_layers.py", 1, tuple(LAYERS.splitlines()))
    assert (one.marks, one.named) == ((5,), ())


def test_a_line_that_the_diagnosis_names_is_told_from_one_that_entered_a_collective(
    load: Load,
) -> None:
    check = check_of(load("my_layers", LAYERS).build)
    (one,) = sources(check, "overwritten at my_layers.py:10", ["my_layers.py:5"], [])
    assert (one.marks, one.named) == ((5, 10), (10,))


def test_where_a_rank_raised_is_a_line_of_the_diagnosis(load: Load) -> None:
    made = load("my_layers", LAYERS)
    inner = f'  File "{torch.nn.__file__}", line 7, in f'
    frames = [f'  File "{made.__file__}", line {line}, in f' for line in (13, 5)]
    raised = Raised("KeyError", "'x'", Scene(stack="\n".join([*frames, inner])))
    died = Died(-9, scene=Scene(stack=frames[0]))
    (one,) = sources(check_of(made.build), "", [], [], [None, raised, died])
    assert one.named == (5,)


def test_a_kernels_line_is_that_of_the_one_file_that_has_the_function(load: Load) -> None:
    made = load("my_layers", LAYERS)
    check = check_of(made.build)
    stray = Stray("reduced", 5, (0, 0, 0), Access.STORE, "x", 8, 1)
    assert [one.named for one in sources(check, "", [], [], [stray])] == [(5,)]
    other = replace(stray, kernel="elsewhere"), replace(stray, line=10)
    assert [one.named for one in sources(check, "", [], [], other)] == [()]
    load("my_second", LAYERS)
    assert [one.named for one in sources(check, "", [], [], [stray])] == [()]


def test_the_candidates_own_file_is_shown_though_nothing_names_it(load: Load) -> None:
    (one,) = sources(check_of(load("my_layers", LAYERS).build), "", [], [])
    assert (one.file, one.marks) == ("my_layers.py", ())


def test_of_a_long_file_what_is_meant_and_what_stands_between(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WHOLE", 3)
    check = check_of(load("my_layers", LAYERS).build)
    found = sources(check, "", ["my_layers.py:10"], ["my_layers.py:13"])
    assert [one.lines[0] for one in found] == [
        'WHOLE = ("norm.bias",)',
        "class Row:",
        "def build(case, mesh):",
    ]
    assert [one.marks for one in found] == [(), (10,), ()]


def test_of_a_long_class_the_method(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE", 2)
    check = check_of(load("my_layers", LAYERS).build)
    _, one = sources(check, "", ["my_layers.py:10"], [])
    assert (one.first, one.lines[0].strip()) == (9, "def forward(self, x):")


def test_no_more_lines_than_a_page_holds(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", len(LAYERS.splitlines()) + 1)
    check = check_of(load("my_layers", LAYERS).build)
    load("my_second", LAYERS)
    found = sources(check, "my_second.py:5", ["my_layers.py:5"], [])
    assert [one.file for one in found] == ["my_second.py"]


def test_of_two_files_of_one_name_neither(load: Load, tmp_path: Path) -> None:
    load("a/helper", LAYERS)
    load("b/helper", LAYERS)
    check = check_of(load("my_layers", LAYERS).build)
    assert [one.file for one in sources(check, "", ["helper.py:5"], [])] == ["my_layers.py"]


def test_what_is_gone_or_no_text_is_left_out(load: Load, tmp_path: Path) -> None:
    check = check_of(load("my_layers", LAYERS).build)
    (tmp_path / "my_layers.py").write_bytes(b"\xff\xfe\x00")
    assert sources(check, "", ["my_layers.py:5"], []) == ()
    (tmp_path / "my_layers.py").unlink()
    assert sources(check, "", ["my_layers.py:5"], []) == ()


def test_a_kernels_function_is_the_users_code(load: Load) -> None:
    made = load("my_kernel", "def twice(x):\n    return 2 * x\n")
    check = kernel_check(
        made.twice, reference=lambda x: 2 * x, arguments={"x": Argument("rows", "width")}
    )
    assert callables(check)["candidate()"] == "my_kernel.py:1"
    (one,) = sources(check, "", [], callables(check).values())
    assert one.lines == ("def twice(x):", "    return 2 * x")


def test_installed_packages_are_not_shown() -> None:
    assert sources(check_of(torch.nn.Linear), "linear.py:10", ["module.py:1700"], []) == ()
