"""The floor plan: the order of the rooms, the side on which each runs, and no import against it.

A file at the top of `tpcheck/` is something that a user may import in a check; a folder is a room
of the machine. Each imports only what stands above it in this list. Imports for type checking and
inside functions count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

DRIVER, RANK, BOTH = "driver", "rank", "both"
ORDER = {
    "errors": BOTH,
    "given": BOTH,
    "case": BOTH,
    "space": BOTH,
    "configurations": BOTH,
    "cleanup": BOTH,
    "axes": BOTH,
    "placement": BOTH,
    "layout": BOTH,
    "vocabulary": BOTH,
    "event": BOTH,
    "process": BOTH,
    "tensors": BOTH,
    "evidence": BOTH,
    "causes": BOTH,
    "verdict": BOTH,
    "failed": BOTH,
    "budget": BOTH,
    "known": BOTH,
    "norm": BOTH,
    "discipline": BOTH,
    "training": BOTH,
    "spec": BOTH,
    "parts": BOTH,
    "check": BOTH,
    "relation": BOTH,
    "strategies": DRIVER,
    "argument": BOTH,
    "kernel": BOTH,
    "mutant": DRIVER,
    "bounds": BOTH,
    "comms": BOTH,
    "figures": BOTH,
    "report": BOTH,
    "plan": BOTH,
    "order": BOTH,
    "specs": BOTH,
    "adapters": BOTH,
    "protocol": BOTH,
    "kernels": RANK,
    "ranks": RANK,
    "oracle": DRIVER,
    "engines": DRIVER,
    "runner": DRIVER,
    "diagnosis": DRIVER,
    "search": DRIVER,
    "script": DRIVER,
    "first": DRIVER,
    "workers": DRIVER,
    "mutation": DRIVER,
    "fuzz": DRIVER,
    "calibrate": DRIVER,
    "bench": DRIVER,
    "cli": DRIVER,
    "pytest_plugin": DRIVER,
    "__main__": DRIVER,
}
#: Rooms with functions that draw cases, which the driver calls and no rank does: these functions,
#: and nothing else in there, import Hypothesis and `strategies`.
DRAW_CASES = ("kernel", "specs", "adapters")
HEAVY = ("hypothesis", "_hypothesis_pytestplugin", "pytest", "_pytest")
#: The lazy namespace, by which any room could be reached; its version is a constant.
ALLOWED = ("tpcheck.__version__",)
Edge = tuple[str, str, int, bool]  # importing module, imported name, line, whether in a function


def edges(package: Path) -> Iterator[Edge]:
    """Every import of the tree: (module below the package, dotted name, line)."""
    for file in sorted(package.rglob("*.py")):
        module = ".".join(file.relative_to(package).with_suffix("").parts)
        for node, in_function in statements(ast.parse(file.read_text()).body):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                home = "." * node.level + (node.module or "")
                names = [f"{home}.{alias.name}" for alias in node.names]
            else:
                continue
            yield from ((module, name, node.lineno, in_function) for name in names)


def statements(body: list[ast.AST], in_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Each, and those in it: no import is in an expression. Whether it is in a function."""
    for node in body:
        yield node, in_function
        inner = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, []), inner)


def unit(name: str) -> str:
    """`ranks.run` → `ranks`, `case` → `case`."""
    return name.partition(".")[0]


def inside(name: str, package: Path) -> str | None:
    """`tpcheck.ranks.run.RankRun` → `ranks.run`, the module that it is in; None outside."""
    top, _, rest = name.partition(".")
    if top != package.name or not rest:
        return None
    parts = rest.split(".")
    while parts and not (package.joinpath(*parts).with_suffix(".py")).is_file():
        if (package.joinpath(*parts) / "__init__.py").is_file():
            return ".".join([*parts, "__init__"])
        parts.pop()
    return ".".join(parts) or None


def faults(package: Path, order: dict[str, str] = ORDER) -> list[str]:
    """What in the tree stands against the floor plan."""
    place = {name: i for i, name in enumerate(order)}
    found = []
    units = {unit(".".join(f.relative_to(package).with_suffix("").parts))
             for f in package.rglob("*.py")} - {"__init__"}  # fmt: skip
    found += [f"{name} is not in the order" for name in sorted(units - set(order))]
    found += [f"{name} is in the order and not in the tree" for name in sorted(set(order) - units)]
    known = list(edges(package))
    for module, name, line, in_function in known:
        at, home = f"{module}:{line}", unit(module)
        if home == "__init__" or home not in place:
            continue  # the lazy namespace of public names
        if name.startswith("."):
            found.append(f"{at} imports {name}: write its full name")
        lazy = unit(name) == package.name and not inside(name, package)
        if lazy and name not in ALLOWED:
            found.append(f"{at} imports {name}, past the floor plan")
        draws = in_function and home in DRAW_CASES
        if order[home] != DRIVER and unit(name) in HEAVY and not draws:
            found.append(f"{at} imports {name}, and runs on ranks")
        target = inside(name, package)
        if target is None or unit(target) not in place or unit(target) == home:
            continue
        if place[unit(target)] > place[home]:
            found.append(f"{at} imports {target}, which stands below it")
        elif order[home] != DRIVER and order[unit(target)] == DRIVER and not draws:
            found.append(f"{at} imports {target}, which is the driver's")
    return found + circles(package, known)


def circles(package: Path, edges: list[Edge]) -> list[str]:
    """Modules that import each other, whatever the rooms."""
    graph: dict[str, set[str]] = {}
    for module, name, _, _ in edges:
        target = inside(name, package)
        if target and module != "__init__" and target != module:
            graph.setdefault(module, set()).add(target)
    found: list[str] = []
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            found.append(" → ".join([*path[path.index(module) :], module]))
            return
        if module not in done:
            for target in sorted(graph.get(module, ())):
                visit(target, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())
    return found


def test_every_import_stands_by_the_floor_plan() -> None:
    assert faults(ROOT / "tpcheck") == []


def tree(folder: Path, **files: str) -> Path:
    package = folder / "tpcheck"
    for name, text in files.items():
        file = package.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        (file.parent / "__init__.py").touch()
    return package


SMALL = {"case": BOTH, "ranks": RANK, "oracle": DRIVER}
RIGHT = {"case": "", "ranks__run": "from tpcheck.case import Case", "oracle__pose": "import torch"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"case": "from tpcheck.ranks import run"}, "which stands below it"),
        ({"case": "def f():\n    from tpcheck.ranks.run import g"}, "which stands below it"),
        (
            {"case": "if TYPE_CHECKING:\n    import tpcheck.oracle.pose"},
            "case:2 imports oracle.pose, which stands below it",
        ),
        ({"ranks__run": "import hypothesis.strategies"}, "and runs on ranks"),
        ({"case": "from pytest import fixture"}, "and runs on ranks"),
        ({"case": "def f():\n    import hypothesis"}, "and runs on ranks"),
        ({"case": "from .ranks import run"}, "case:1 imports .ranks.run: write its full name"),
        ({"case": "from . import ranks"}, "write its full name"),
        ({"case": "from tpcheck import verify"}, "case:1 imports tpcheck.verify, past the floor"),
        ({"case": "import tpcheck"}, "case:1 imports tpcheck, past the floor plan"),
        ({"case": "async def f():\n    import pytest"}, "and runs on ranks"),
        ({"new": ""}, "new is not in the order"),
        (
            {
                "ranks__run": "from tpcheck.ranks.two import x",
                "ranks__two": "import tpcheck.ranks.run",
            },
            "ranks.run → ranks.two → ranks.run",
        ),
    ],
)
def test_what_stands_against_it_is_seen(
    tmp_path: Path, change: dict[str, str], says: str | None
) -> None:
    found = faults(tree(tmp_path, **(RIGHT | change)), SMALL)
    assert found == [] if says is None else any(says in fault for fault in found), found


def test_only_functions_that_draw_cases_may_import_hypothesis(tmp_path: Path) -> None:
    package = tree(tmp_path, specs__mlp="def cases(space):\n    import hypothesis")
    assert faults(package, {"specs": BOTH}) == []
    tree(tmp_path, specs__mlp="import hypothesis")
    assert faults(package, {"specs": BOTH}) == ["specs.mlp:1 imports hypothesis, and runs on ranks"]


def test_a_rank_that_imports_a_drivers_room_is_seen(tmp_path: Path) -> None:
    order = {"case": BOTH, "oracle": DRIVER, "ranks": RANK}
    package = tree(tmp_path, **(RIGHT | {"ranks__run": "from tpcheck.oracle.pose import pose"}))
    assert faults(package, order) == ["ranks.run:1 imports oracle.pose, which is the driver's"]


def test_a_room_that_is_gone_is_seen(tmp_path: Path) -> None:
    package = tree(tmp_path, case="", oracle__pose="")
    assert faults(package, SMALL) == ["ranks is in the order and not in the tree"]
