"""What ranks would import of torch, each by itself, their zygote has imported once."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from tests import candidates
from tests.spare import started_anew
from tpcheck.check import Check
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.training import Training


def _loaded(mesh: object) -> set[str]:
    return set(sys.modules)


def test_ranks_are_forked_with_the_parts_of_torch_that_the_driver_has_and_optimizers_need() -> None:
    from torch.distributed import pipelining  # noqa: F401 - as a file of candidates would

    plain = candidates.check(candidates.Row)
    trains = Check(replace(plain.spec, training=Training(torch.optim.SGD)), plain.candidate)
    part = "torch.contrib"  # stands in for what they import: the driver has not imported it before
    with started_anew(), Engine("gloo", 2) as engine:
        assert Runner(plain, engine).taught.loads == ()
        taught = Runner(trains, engine).taught
        assert taught.loads == ("torch._dynamo",)
        loaded = engine.call(_loaded, mesh={"tp": 2})
        assert all("torch.distributed.pipelining" in modules for modules in loaded)
        assert not any(part in modules for modules in loaded)
        engine.kill()
        engine.renew(replace(taught, loads=(part,)))
        loaded = engine.call(_loaded, mesh={"tp": 2})
        assert all(part in modules for modules in loaded)


def test_ranks_that_others_have_warmed_are_forked_anew_for_what_they_would_import() -> None:
    plain = candidates.check(candidates.Row)
    part = "torch.contrib"
    with Engine("gloo", 2) as engine:
        taught = Runner(plain, engine).taught
        for key, loads, starts in (
            ("first", (), 1),
            ("like it", (), 1),
            ("with a part", (part,), 2),
            ("with the same", (part,), 2),
            ("without", (), 2),
        ):
            engine.teach(replace(taught, key=key, loads=loads))
            assert engine.starts == starts, key
        assert all(part in modules for modules in engine.call(_loaded, mesh={"tp": 2}))
