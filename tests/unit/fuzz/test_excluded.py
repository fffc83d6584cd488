"""A finding whose case its check excludes by now: no turn runs it again, and it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.fuzz.findings import finding
from tpcheck import Argument, Case, kernel_check
from tpcheck.fuzz.hunting import Hunting, Listener
from tpcheck.fuzz.state import State
from tpcheck.fuzz.turn import Subject
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.options import Options

FOUND = finding(shrunk=True)
ENTRY = Saved(FOUND.id, "a", ("a.py", "a"), Case.from_dict(FOUND.case), "gloo", [], {})


@pytest.mark.parametrize(("sizes", "stays"), [(None, True), ({"n": [8]}, False)])
def test_it_is_told_and_its_file_stays(
    corpus: Corpus, tmp_path: Path, sizes: Any, stays: bool
) -> None:
    told: list[str] = []
    state = State(tmp_path / "state")
    state.of("a.py::a").findings.append(FOUND)
    file = corpus.save(ENTRY)
    arguments = {"x": Argument("n")}
    check = kernel_check(torch.neg, reference=torch.neg, arguments=arguments, sizes=sizes, name="a")
    hunting = Hunting(
        [Subject("a.py::a", check)],
        Options(corpus=corpus),
        state,
        ranks=2,
        time_limit=5.0,
        listener=Listener(said=lambda title, line: told.append(f"{title}: {line}")),
    )
    (standing,) = hunting.checks
    assert [saved.id for saved in standing.again] == [FOUND.id] * stays
    assert hunting.so_far().findings == [FOUND] * stays and file.exists()
    assert [line.partition(":")[0] for line in told] == ["the corpus"] * (not stays)
    assert stays or "n=4, which is not one of 8: its check excludes that now" in told[0]
