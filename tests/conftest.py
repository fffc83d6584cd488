"""One warm engine of each kind for the whole suite; every test keeps its corpus to itself."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# One thread per process, as ranks have. The tensors here are small: with more, processes that share
# the cores wait for each other's threads, twenty times as long as they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests import commands
from tests.spare import Nursery, install
from tpcheck.engines.engine import Engine
from tpcheck.plan.unknown_style import fake_mesh, quiet
from tpcheck.search.corpus import Corpus

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

pytest_plugins = ["pytester"]

# A busy machine fails no test that draws, and no run meets what another one has saved.
settings.register_profile(
    "tests", deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("tests")

# What is imported stays: to look for garbage among it takes a tenth of the suite's time.
gc.disable()

# A shell that starts the suite in the background has Ctrl-C ignored, which is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what Triton's extension finds alive at the end it calls leaked


# What candidates import, loaded before ranks are forked: after each crash that a test is about,
# new ranks would load it again, seconds each.
HEAVY = (
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch._functorch.aot_autograd",
    "transformers.models.llama.modeling_llama",
    "triton",
    "pytest",  # of candidates in a test's own module
    "fixtures.mutants",  # all four hundred are made when one is imported
)


@pytest.fixture(scope="session", autouse=True)
def zygotes() -> Iterator[None]:
    """Engines of pytest's own process, and of what it forks, have zygotes that need not load torch
    first."""
    nursery = Nursery()
    install(nursery.zygote, lambda: nursery.asked, once=False)
    commands.nursery = nursery
    yield
    commands.nursery = None
    nursery.close()


@pytest.fixture(scope="session")
def gloo() -> Iterator[Engine]:
    """Four ranks, each a process."""
    with Engine("gloo", 4, time_limit=20, preload=HEAVY) as engine:
        yield engine


@pytest.fixture(scope="session")
def threads() -> Iterator[Engine]:
    """Four ranks, each a thread of one process."""
    with Engine("threads", 4) as engine:
        yield engine


@pytest.fixture(autouse=True)
def same_path() -> Iterator[None]:
    """Folders that a test's commands put on the path go with the test.

    A file `kernels.py` that stays there is what transformers imports in a later one.
    """
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """A folder of counterexamples of the test's own."""
    return Corpus(tmp_path / "corpus")


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """A tp mesh of two ranks that are not there: plans are applied to it without any."""
    with fake_mesh(2) as mesh, quiet():
        yield mesh
