"""One warm gloo engine for the whole suite; every test keeps its corpus to itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tpcheck.engines.engine import Engine
from tpcheck.search.corpus import Corpus

pytest_plugins = ["pytester"]


# What candidates import, loaded before ranks are forked: after each crash that a test is about,
# new ranks would load it again, seconds each.
HEAVY = (
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch._functorch.aot_autograd",
    "transformers.models.llama.modeling_llama",
)


@pytest.fixture(scope="session")
def gloo() -> Iterator[Engine]:
    with Engine("gloo", 4, time_limit=20, preload=HEAVY) as engine:
        yield engine


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "corpus")
