"""Files of checks whose names no import can have, and checks without a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpcheck.errors import InvalidArgument
from tpcheck.search.collect import collect, passed_over

SOURCE = "from properties.linear import row_linear\n\nmine = row_linear.named('mine')\n"


@pytest.mark.parametrize("name", ["layer.v2.py", "a-b.py", "2.py", "class.py", "sp ace.py"])
def test_they_are_collected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SOURCE)
    assert "mine" in [check.title for check in collect([str(tmp_path / name)])]


def test_checks_in_a_list_are_told_of(tmp_path: Path) -> None:
    file = tmp_path / "several.py"
    more = "both = [mine, mine.named('other')]\nby_name = {'a': mine}\nnone = (1, 'two')\n"
    file.write_text(SOURCE + more)
    assert len(collect([str(file)])) == 2  # `row_linear` and `mine`
    assert passed_over([str(file)]) == [(str(file), "both", 1)]
    assert passed_over([f"{file}::mine"]) == []  # which asks for no other


@pytest.mark.parametrize(
    "line",
    [
        "from collections import OrderedDict\nheld = OrderedDict(a=mine.named('other'))",
        "from collections import deque\nheld = deque([mine.named('other')])",
        "from collections import defaultdict\nheld = defaultdict(list, a=[mine.named('other')])",
        "from types import SimpleNamespace\nheld = SimpleNamespace(a=mine.named('other'))",
        "from typing import NamedTuple\nclass P(NamedTuple):\n    a: object\n"
        "held = P(mine.named('other'))",
        "class held:\n    a = mine.named('other')",
        "class List(list):\n    def __iter__(self):\n        raise ValueError('not yet')\n"
        "held = List([mine.named('other')])",
    ],
    ids=["ordered", "deque", "default", "namespace", "tuple", "class", "own"],
)
def test_so_are_those_in_other_containers(tmp_path: Path, line: str) -> None:
    file = tmp_path / "several.py"
    file.write_text(f"{SOURCE}{line}\n")
    assert len(collect([str(file)])) == 2
    assert passed_over([str(file)]) == [(str(file), "held", 1)]


def test_where_there_are_no_others_the_error_says_so(tmp_path: Path) -> None:
    file = tmp_path / "lists.py"
    more = "made = [[row_linear.named('a')], {'b': row_linear.named('b')}]\ndel row_linear\n"
    file.write_text(SOURCE.replace("mine =", "_ =").replace("'mine')", "'mine') and None") + more)
    held = "lists.py: made holds 2 checks that no variable has by itself"
    with pytest.raises(InvalidArgument, match=f"no Check found in .*{held}"):
        collect([str(file)])
    with pytest.raises(InvalidArgument, match="no check 'made': it holds checks; give the one"):
        collect([f"{file}::made"])
