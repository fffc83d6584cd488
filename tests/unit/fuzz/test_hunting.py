"""What becomes of turns, which a function says: findings once, what is gone, workers that end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.unit.fuzz.findings import finding
from tpcheck import Argument, Case, InvalidArgument, kernel_check
from tpcheck.figures.hunted import Finding
from tpcheck.fuzz import hunting as room
from tpcheck.fuzz.hunting import Hunting, Listener
from tpcheck.fuzz.shelf import Parent
from tpcheck.fuzz.standing import Saved
from tpcheck.fuzz.state import State
from tpcheck.fuzz.turn import Came, How, Subject, Turn
from tpcheck.search.corpus import Corpus
from tpcheck.search.corpus import Saved as Entry
from tpcheck.search.options import Options
from tpcheck.search.reach import Reach
from tpcheck.search.shared import SharedCorpus
from tpcheck.workers import jobs
from tpcheck.workers.worker import Done, Failed, Message, Told

CASE = Case(dims={"n": 4}, mesh={"tp": 1})
DECIDES = Came([frozenset("x")], reach=Reach(1, frozenset({1})))


@dataclass(eq=False)
class Worker:
    job: Any = None
    opened: bool = False

    def give(self, job: Any) -> None:
        self.job = job


@dataclass
class Crew:
    """Workers whose turns come to what `answer` says: a `Came`, None of one that ends, or what else
    it says."""

    answer: Callable[[Turn], Came | Message | None]
    workers: list[Worker] = field(default_factory=lambda: [Worker(opened=True)])
    replaced: int = 0

    def idle(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is None]

    def hear(self, seconds: float) -> Iterator[tuple[Worker, Message | None]]:
        for worker in self.workers:
            if worker.job is not None:
                came = self.answer(worker.job)
                yield worker, Done(came) if isinstance(came, Came) else came

    def replace(self, worker: Worker) -> None:
        self.replaced += 1
        self.workers[self.workers.index(worker)] = Worker(opened=True)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def hunting(tmp_path: Path, told: list[str]) -> Hunting:
    check = kernel_check(torch.neg, reference=torch.neg, arguments={"x": Argument("n")}, name="a")
    listener = Listener(
        found=lambda f: told.append(f"found {f.id}"),
        gone=lambda f: told.append(f"gone {f.id}"),
        said=lambda title, line: told.append(f"{title}: {line}"),
    )
    return Hunting(
        [Subject("a.py::a", check)],
        Options(corpus=Corpus(tmp_path / "corpus")),
        State(tmp_path / "state"),
        ranks=2,
        time_limit=5.0,
        listener=listener,
    )


def run(hunting: Hunting, answer: Callable[[Turn], Any], *, turns: int) -> Crew:
    crew = Crew(answer)
    hunting.run(crew, turns=turns)  # type: ignore[arg-type]
    return crew


def findings(hunting: Hunting) -> list[Finding]:
    return hunting.so_far().findings


def saved(hunting: Hunting, identity: str) -> None:
    hunting.corpus.save(Entry(identity, "a", ("a.py", "a"), CASE, "gloo", [], {}))


def ids(hunting: Hunting) -> set[str]:
    return {path.stem for path in hunting.corpus.folder.glob("*.json")}


def test_cases_features_and_the_worst_error_add_up(hunting: Hunting) -> None:
    came = [Came([frozenset("xy"), frozenset("x")], worst=0.5), Came([frozenset("xz")], worst=0.1)]
    run(hunting, lambda turn: came.pop(0), turns=2)
    (row,) = hunting.so_far().rows
    assert (row.turns, row.cases, row.features, row.lone, row.worst) == (2, 3, 3, 2, 0.5)


def test_a_finding_is_told_once_and_its_twin_is_forgotten(
    hunting: Hunting, told: list[str]
) -> None:
    one, twin = finding(id="1", shrunk=True), finding(id="2", signatures=("values output y",))
    other = finding(id="3", code="stride-ignored", shrunk=True)
    came = [one, twin, other]
    saved(hunting, "1"), saved(hunting, "2"), saved(hunting, "3")
    run(hunting, lambda turn: Came([frozenset("x")], finding=came.pop(0)), turns=3)
    assert told == ["found 1", "found 3"]
    assert [f.id for f in findings(hunting)] == ["1", "3"]
    assert findings(hunting)[0].signatures == ("race kernel:7", "values output y")
    assert ids(hunting) == {"1", "3"}


def test_what_is_told_is_on_disk_before(hunting: Hunting, tmp_path: Path) -> None:
    seen: list[bool] = []
    text = tmp_path / "state" / "state.jsonl"
    hunting.listener = Listener(found=lambda f: seen.append(f.id in text.read_text()))
    run(hunting, lambda turn: Came(finding=finding(shrunk=True)), turns=1)
    assert seen == [True]


def test_a_finding_that_is_made_smaller_takes_its_own_place(
    hunting: Hunting, told: list[str]
) -> None:
    def answer(turn: Turn) -> Came:
        if turn.how is How.SHRINK:
            assert (turn.id, turn.told) == ("1", frozenset())
            return Came(finding=finding(id="2", shrunk=True, place="kernel:9"))
        return Came([frozenset("x")] * 5, finding=finding(id="1"))

    run(hunting, answer, turns=1)
    (found,) = findings(hunting)
    assert (found.id, found.shrunk, found.place) == ("2", True, "kernel:9")
    assert found.found_after == 3, "where it was first met"
    assert told == ["found 1", "found 2"]


def test_one_that_shrinks_to_another_is_that_other(hunting: Hunting) -> None:
    came = [finding(id="1", shrunk=True), finding(id="2", place="elsewhere")]
    saved(hunting, "1"), saved(hunting, "3")

    def answer(turn: Turn) -> Came:
        shrinks = turn.how is How.SHRINK
        found = finding(id="3", shrunk=True) if shrinks else came.pop(0)
        return Came([frozenset("x")], finding=found)

    run(hunting, answer, turns=2)
    assert [f.id for f in findings(hunting)] == ["1"] and ids(hunting) == {"1"}


def test_one_that_can_not_be_made_smaller_stays(hunting: Hunting) -> None:
    run(hunting, lambda t: Came(finding=finding() if t.how is How.LOOK else None), turns=1)
    assert [(f.id, f.shrunk) for f in findings(hunting)] == [("abc123", True)]


def test_a_saved_case_that_no_longer_fails_is_gone(hunting: Hunting, told: list[str]) -> None:
    standing = hunting.checks[0]
    standing.known.put(finding(id="1", shrunk=True))
    saved(hunting, "1"), saved(hunting, "2")
    standing.again.extend([Saved("1", CASE), Saved("2", CASE)])
    came = {"1": Came(saved=False), "2": Came(saved=True), "": Came([frozenset("x")])}
    run(hunting, lambda turn: came[turn.id], turns=1)
    assert findings(hunting) == [] and ids(hunting) == {"2"} and told == ["gone 1"]


def test_a_saved_case_of_which_nothing_is_known_becomes_a_finding(hunting: Hunting) -> None:
    hunting.checks[0].again.append(Saved("1", CASE))
    came = {"1": Came(saved=True, finding=finding(id="1", shrunk=True, found_after=1))}
    run(hunting, lambda turn: came.get(turn.id, Came([frozenset("x")])), turns=1)
    assert [(f.id, f.found_after) for f in findings(hunting)] == [("1", 0)]


def test_a_turn_that_is_lost_is_told_and_a_check_that_loses_three_is_set_aside(
    hunting: Hunting, told: list[str]
) -> None:
    crew = run(hunting, lambda turn: None, turns=9)
    assert crew.replaced == hunting.so_far().lost == len(told) == 3
    assert "set aside" in told[-1] and hunting.so_far().exit_code == 3


def test_a_worker_that_says_nothing_is_replaced(
    hunting: Hunting, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**6, 10))
    stub = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr(jobs, "time", stub)
    crew = Crew(lambda turn: Came([frozenset("x")]))
    monkeypatch.setattr(crew, "hear", lambda seconds: iter([]))
    hunting.run(crew, turns=9)  # type: ignore[arg-type]
    assert crew.replaced == 3 and hunting.so_far().lost == 3


def test_one_that_counts_its_cases_is_not(hunting: Hunting) -> None:
    said: list[Message | Came | None] = [
        Told(1), Told(2), Came([frozenset("x")] * 2), Told(1), None, Told(1), Came([frozenset("x")])
    ]  # fmt: skip
    cases: list[int] = []

    def answer(turn: Turn) -> Message | Came | None:
        cases.append(hunting.so_far().cases)
        return said.pop(0)

    hunting.checks[0].before = -5
    run(hunting, answer, turns=3)
    assert cases == [0, 1, 2, 2, 3, 2, 3], "those of a turn that is lost are not kept"
    assert (hunting.so_far().cases, hunting.so_far().ran) == (3, 8)


def test_a_session_that_can_not_be_opened_is_an_error(hunting: Hunting) -> None:
    crew = Crew(lambda turn: None, [Worker()])
    crew.hear = lambda seconds: iter([(crew.workers[0], None)])  # type: ignore[method-assign]
    with pytest.raises(InvalidArgument, match="killed"):
        hunting.run(crew, turns=1)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        run(hunting, lambda turn: Failed(ZeroDivisionError()), turns=1)


def test_a_check_that_can_not_run_has_no_more_turns(hunting: Hunting) -> None:
    turns: list[Turn] = []

    def answer(turn: Turn) -> Came:
        turns.append(turn)
        return Came(reason="the reference raised", trouble=True)

    run(hunting, answer, turns=9)
    assert len(turns) == 1 and hunting.so_far().exit_code == 2


def test_a_list_of_cases_that_all_ran_has_no_more_turns(hunting: Hunting) -> None:
    came = [DECIDES, Came()]
    run(hunting, lambda turn: came.pop(0), turns=9)
    assert not came and hunting.so_far().exit_code == 0


def test_cases_that_showed_something_are_near_what_is_drawn_next(hunting: Hunting) -> None:
    given, drawn = list[Turn](), Parent(b"drawn", frozenset({"seen a"}))

    def answer(turn: Turn) -> Came:
        given.append(turn)
        return Came([frozenset("x")], worth=[(1, drawn)], seconds=1.0)

    run(hunting, answer, turns=30)
    near = next(turn for turn in given if turn.how is How.NEAR)
    assert (near.parents, near.degree) == ((drawn,), 1)


def test_what_another_machine_finds_meanwhile_is_run_next(
    hunting: Hunting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SharedCorpus(tmp_path / "other", str(tmp_path / "db"))
    hunting.corpus = SharedCorpus(tmp_path / "corpus", str(tmp_path / "db"))
    monkeypatch.setattr(room, "NEWS", -1.0)  # at each look
    check = hunting.checks[0].subject.check
    mine, large = (Case(dims={"n": 4}, mesh={"tp": tp}) for tp in (1, 64))
    given: list[Turn] = []

    def answer(turn: Turn) -> Came:
        given.append(turn)
        if len(given) == 2:
            other.save(Entry("abcdef", check.title, check.address(), mine, "gloo", [], {}))
            other.save(Entry("123456", check.title, check.address(), large, "gloo", [], {}))
        return Came([frozenset(str(len(given)))], saved=True if turn.saved else None)

    run(hunting, answer, turns=5)
    again = [(number, turn.saved) for number, turn in enumerate(given) if turn.how is How.AGAIN]
    assert again == [(2, mine)], "the other needs more ranks than there are"


def test_what_a_killed_run_left_of_a_save_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "tmpabcdefgh.tmp").write_text("half")
    options = Options(corpus=Corpus(folder))
    Hunting([], options, State(tmp_path / "state"), ranks=2, time_limit=5.0, listener=Listener())
    assert not list(folder.iterdir())
