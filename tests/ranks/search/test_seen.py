"""What is seen of a run: news on the way, and what the candidate printed in the failing case."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from fixtures.parallel.linear import RowLinear
from tests.candidates import check
from tpcheck import Case, Check, Layout, Shard, Spec
from tpcheck.engines.engine import Engine
from tpcheck.report.text import page
from tpcheck.search.news import Begun, Explains, Follower, Met, News, Ran
from tpcheck.search.options import Options
from tpcheck.search.schedule import Job
from tpcheck.search.session import Session
from tpcheck.search.verify import verify_all


class Prints(RowLinear):
    """Wrong where there are several outputs; says in each case what it sees."""

    def sum_output(self, partial: Any) -> Any:
        outputs = partial.shape[-1]
        print(f"rank {self.rank} has {outputs} outputs")
        return super().sum_output(partial) * (1 if outputs == 1 else 3)


class Notes(Follower):
    def __init__(self) -> None:
        self.news: list[News] = []
        self.ended_jobs = 0

    def told(self, job: Job, news: News) -> None:
        self.news.append(news)

    def ended(self, job: Job) -> None:
        self.ended_jobs += 1


def test_what_happens_is_told_and_what_was_printed_is_kept(gloo: Engine) -> None:
    notes = Notes()
    options = Options(examples=20, degrees=(2,), dtypes=("float64",), corpus=None)
    (result,) = verify_all([check(Prints)], Session(gloo), options, follower=notes)
    found = result.counterexample
    assert found is not None and found.case["out_features"] == 2
    assert {rank: text.splitlines()[0] for rank, text in found.printed.items()} == {
        0: "rank 0 has 2 outputs",
        1: "rank 1 has 2 outputs",
    }
    assert "  rank 1 printed" in page(result) and "    rank 1 has 2 outputs" in page(result)
    assert set(found.trace) == {0, 1} and found.trace[0]
    assert "collectives, each rank" in page(result, verbose=True)

    (met,) = [news for news in notes.news if isinstance(news, Met)]
    before = notes.news[: notes.news.index(met)]
    ran = [news for news in notes.news if isinstance(news, Ran)]
    assert isinstance(notes.news[0], Begun) and isinstance(notes.news[-1], Explains)
    assert met.number == result.examples == sum(isinstance(news, Ran) for news in before)
    # the smallest one once more, closely
    assert result.smaller == len(ran) - result.examples - 1 > 0
    assert notes.ended_jobs == 1


def misspelt(case: Any, mesh: Any) -> Any:
    return parallelize_module(nn.Sequential(nn.Linear(4, 4)), mesh["tp"], {"O": ColwiseParallel()})


def test_a_key_that_the_candidates_own_plan_skips_is_on_the_page(gloo: Engine) -> None:
    left = Spec(
        name="left",
        cases=[Case(mesh={"tp": 2})],
        reference=lambda case: nn.Sequential(nn.Linear(4, 4)),
        inputs=lambda case, draw: {"x": draw("x", 2, 4)},
        layout=lambda case: Layout(params={"0.weight": Shard(0)}),
    )
    options = Options(examples=1, corpus=None)
    (result,) = verify_all([Check(left, misspelt)], Session(gloo), options)
    found = result.counterexample
    assert found is not None and found.diagnosis.code == "parameter-not-sharded"
    said = "parallelize_module skips the plan's key 'O': it matches no module"
    assert f"    {said}" in page(result)
