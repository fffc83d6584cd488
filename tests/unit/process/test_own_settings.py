"""What a file of checks sets when it is imported holds while its own checks run; what a module sets
stays."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tpcheck.process import own_settings, surroundings


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path) -> Iterator[None]:
    environment, path = dict(os.environ), list(sys.path)
    modules, filters = set(sys.modules), list(warnings.filters)
    sys.path.append(str(tmp_path))
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path
    warnings.filters[:] = filters  # type: ignore[index]
    os.environ.clear()
    os.environ.update(environment)


def load(file: Path, text: str) -> ModuleType:
    """The file, imported as one of checks."""
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"of_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with own_settings.noted(str(file)):
        spec.loader.exec_module(module)
    return module


def test_a_variable_of_the_file_is_its_own_and_one_of_a_module_stays(tmp_path: Path) -> None:
    (tmp_path / "sets_one.py").write_text("import os; os.environ['OF_MODULE'] = '1'")
    (tmp_path / "sets_on_call.py").write_text(
        "def now():\n    import os; os.environ['CALLED'] = '1'"
    )
    a = tmp_path / "a.py"
    load(a, "import os, sets_one, sets_on_call\nos.environ['OF_FILE'] = '1'\nsets_on_call.now()")
    seen = {name: os.environ.get(name) for name in ("OF_MODULE", "OF_FILE", "CALLED")}
    assert seen == {"OF_MODULE": "1", "OF_FILE": None, "CALLED": None}
    with own_settings.in_force(str(a)):
        assert (os.environ["OF_FILE"], os.environ["CALLED"]) == ("1", "1")
    assert "OF_FILE" not in os.environ and "CALLED" not in os.environ


def test_a_variable_that_it_takes_away_is_there_for_others(tmp_path: Path) -> None:
    os.environ["OF_ALL"] = "1"
    load(tmp_path / "a.py", "import os; del os.environ['OF_ALL']")
    assert os.environ["OF_ALL"] == "1"
    with own_settings.in_force(str(tmp_path / "a.py")):
        assert "OF_ALL" not in os.environ


def test_what_the_file_puts_on_the_path_is_its_own_and_what_a_module_does_stays(
    tmp_path: Path,
) -> None:
    (tmp_path / "paths.py").write_text("import sys; sys.path.insert(0, '/of/module')")
    before = list(sys.path)
    load(tmp_path / "a.py", "import sys, paths\nsys.path.insert(0, '/of/file')")
    assert sys.path == ["/of/module", *before]
    with own_settings.in_force(str(tmp_path / "a.py")):
        assert sys.path == ["/of/file", "/of/module", *before]
    assert sys.path == ["/of/module", *before]


def test_warnings_that_it_makes_errors_are_so_for_its_own_checks(tmp_path: Path) -> None:
    load(tmp_path / "a.py", "import warnings; warnings.simplefilter('error')")
    is_error = [one[0] == "error" for one in surroundings.filters()]
    with own_settings.in_force(str(tmp_path / "a.py")), pytest.raises(UserWarning):
        warnings.warn("a note", stacklevel=1)
    assert [one[0] == "error" for one in surroundings.filters()] == is_error


def test_folder_and_umask_are_put_back(tmp_path: Path) -> None:
    before = (Path.cwd(), surroundings.umask())
    load(tmp_path / "a.py", "import os; os.chdir('/'); os.umask(0o777)")
    assert (Path.cwd(), surroundings.umask()) == before


BESIDE = """
SCALE = 1

class Scaled:
    def by(self):
        return SCALE
"""


def test_names_of_a_module_beside_it_are_put_back_and_hold_for_its_own(tmp_path: Path) -> None:
    (tmp_path / "beside_a.py").write_text(BESIDE)
    a = tmp_path / "a.py"
    load(a, "import beside_a as b\nb.SCALE = 2\nb.Scaled.by = lambda self: 3\nb.new = 4\n")
    beside = sys.modules["beside_a"]
    assert (beside.SCALE, beside.Scaled().by(), hasattr(beside, "new")) == (1, 1, False)
    with own_settings.in_force(str(a)):
        assert (beside.SCALE, beside.Scaled().by(), beside.new) == (2, 3, 4)
        beside.SCALE = 5  # by a reference
    assert beside.SCALE == 1
    with own_settings.in_force(str(a)):
        assert beside.SCALE == 5


def test_what_a_module_sets_in_another_when_it_is_imported_stays(tmp_path: Path) -> None:
    (tmp_path / "beside_b.py").write_text(BESIDE)
    (tmp_path / "patches_b.py").write_text("import beside_b; beside_b.SCALE = 7")
    load(tmp_path / "a.py", "import beside_b\nbeside_b.new = 1\nimport patches_b")
    beside = sys.modules["beside_b"]
    assert (beside.SCALE, hasattr(beside, "new")) == (7, False)


def test_a_file_that_does_not_import_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        load(tmp_path / "a.py", "import os; os.environ['OF_FILE'] = '1'; 1 / 0")
    assert "OF_FILE" not in os.environ


def test_of_a_file_that_was_not_imported_so_nothing_is_in_force() -> None:
    before = dict(os.environ)
    with own_settings.in_force("/no/such.py"), own_settings.in_force(None):
        assert dict(os.environ) == before
