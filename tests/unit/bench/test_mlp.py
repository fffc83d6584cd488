"""The bare loop's cases: every rank draws the same numbers, ranks that are threads, too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from tpcheck.bench import mlp


@pytest.fixture
def eager() -> Iterator[None]:
    """Threads that take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_ranks_that_are_threads_draw_the_same(eager: None) -> None:
    case = mlp.of_size(16, 2, "float32", seed=3)
    group = SimpleNamespace(size=lambda: 2)

    def numbers(_: int) -> torch.Tensor:
        plain, _candidate, x, cotangent = mlp.drawn(case, group)
        parameters = [p.detach().flatten() for p in plain.parameters()]
        return torch.cat([*parameters, x.flatten(), cotangent.flatten()])

    with ThreadPoolExecutor(4) as ranks:
        found = list(ranks.map(numbers, range(40)))
    assert all(torch.equal(one, found[0]) for one in found)
