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


def test_ranks_are_forked_with_the_parts_of_torch_that_the_driver_has() -> None:
    import torch.distributed.pipelining  # noqa: F401 - as a file of candidates would

    with started_anew(), Engine("gloo", 2) as engine:
        loaded = engine.call(_loaded, mesh={"tp": 2})
    assert all("torch.distributed.pipelining" in modules for modules in loaded)


def test_ranks_are_forked_with_what_torchs_optimizers_import_where_they_make_some() -> None:
    plain = candidates.check(candidates.Row)
    trains = Check(replace(plain.spec, training=Training(torch.optim.SGD)), plain.candidate)
    part = "torch.contrib"  # stands in for it: the driver has not imported it before
    for check, loads in ((plain, ()), (trains, ("torch._dynamo",))):
        with started_anew(), Engine("gloo", 2) as engine:
            taught = Runner(check, engine).taught
            assert taught.loads == loads
            engine.renew(replace(taught, loads=(part,) if loads else ()))
            loaded = engine.call(_loaded, mesh={"tp": 2})
        assert all((part in modules) is bool(loads) for modules in loaded)
