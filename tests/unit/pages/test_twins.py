"""The twins of the tests of pages: a broken page is refused, a sample that differs is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.documents import commands, faults, following, samples

RIGHT = """
# A page

[see](#a-page), `tests/candidates.py`, `tpcheck verify FILE --tp 2`

```python
# my_checks.py
check = 1
```

```sh
tpcheck verify my_checks.py --tp 2,4
```
"""
TWINS: list[tuple[Callable[[str], Iterator[str]], str, str]] = [
    (faults.bad_blocks, "check = 1", "check = ..."),
    (faults.bad_blocks, "check = 1", "check = Check(…)"),
    (faults.bad_blocks, "check = 1", "check = "),
    (faults.bad_blocks, "```python", "```"),
    (faults.bad_blocks, "```sh", "```bash"),
    (faults.bad_blocks, "verify my_checks.py", "verify properties"),
    (commands.bad_commands, "--tp 2,4", "--degree 2,4"),
    (commands.bad_commands, "--tp 2,4", "--examples none"),
    (commands.bad_commands, "tpcheck verify my", "tpcheck verfy my"),
    (commands.bad_commands, "tpcheck verify my", "python3 my"),
    (commands.bad_commands, "verify my_checks.py", "verify your_checks.py"),
    (commands.bad_commands, "verify my_checks.py", "verify properties/mlp.py::nlp"),
    (commands.bad_commands, "FILE --tp 2", "FILE --degree 2"),
    (commands.bad_commands, "tpcheck verify FILE", "tpcheck hunt FILE"),
    (commands.bad_commands, "tpcheck verify my_checks.py --tp 2,4", "make tset"),
    (commands.bad_commands, "tpcheck verify my_checks.py --tp 2,4", "pytest --tpcheck-motor x"),
    (faults.bad_paths, "tests/candidates.py", "tests/papers.py"),
    (faults.machine_paths, "check = 1", 'File "/home/x.py"'),
    (faults.foreign, "check = 1", "x\n```\n\nIt prints a verdict a check.\n\n```text"),
    (lambda page: faults.dead_links(ROOT / "README.md", page), "#a-page", "#no-page"),
    (lambda page: faults.dead_links(ROOT / "README.md", page), "(#a-page)", "(no-page.md)"),
]


@pytest.mark.parametrize(("test", "right", "wrong"), TWINS)
def test_a_broken_page_is_refused(
    test: Callable[[str], Iterator[str]], right: str, wrong: str
) -> None:
    assert list(test(RIGHT)) == []
    assert right in RIGHT and list(test(RIGHT.replace(right, wrong))) != []


def test_a_block_that_raises_and_a_sample_that_differs_are_seen(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        list(following.follow("x\n\n```python\n1 / 0\n```\n", "docs/x.md", tmp_path, {}))
    last = raised.traceback[-1]
    assert (str(last.path), last.lineno) == ("docs/x.md", 3)
    page = "```python\n# a.py\nprint(1.0)\n```\n\n```console\n$ python a.py\n{}\n```\n"
    assert list(following.follow(page.format("1.001"), "docs/x.md", tmp_path, {})) == []
    (said,) = following.follow(page.format("1.1"), "docs/x.md", tmp_path, {})
    assert "line 7" in said
    page = "```python\n# a.py\nraise SystemExit(3)\n```\n\n```sh\npython a.py\n```\n"
    (said,) = following.follow(page, "docs/x.md", tmp_path, {})
    assert "exit code 3" in said


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("PASS  row  gloo   0.3 s", "PASS  row  gloo  12.3 s", True),
        ("PASS  row  gloo   0.3 s", "FAIL  row  gloo   0.3 s", False),
        ("tpcheck replay 7f3a91", "tpcheck replay 953bce", False),
        ("case 2 fails in output: dp=2 …", "case 2 fails in output: dp=2 tp=2", True),
        ("case 2 fails in output: dp=2 …", "case 3 fails in output: dp=2 tp=2", False),
        ("off by 0.0675, bound 5.1e-13", "off by 0.0676, bound 5.09e-13", True),
        ("off by 0.0675, bound 5.1e-13", "off by 0.0675, bound 5.9e-13", False),
        ("20 cases", "19 cases", False),
    ],
)
def test_times_are_masked_and_nothing_else(shown: str, printed: str, alike: bool) -> None:
    assert samples.alike(shown, printed) == alike


def test_an_ellipsis_in_a_sample_stands_for_any_lines() -> None:
    assert samples.same(["a", "…", "d"], ["a", "b", "c", "d"])
    assert samples.same(["a", "…"], ["a"])
    assert not samples.same(["a", "…", "d"], ["a", "b", "c"])


def test_a_page_is_written_anew_with_what_is_printed() -> None:
    page = "```console\n$ a\nold\nolder\n$ b\nx\n```\nend\n"
    assert samples.rewritten(page, {2: ["new"]}) == "```console\n$ a\nnew\n$ b\nx\n```\nend\n"
