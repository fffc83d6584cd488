"""Who sets what in the environment."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator

import pytest

from tpcheck.process import environment


@pytest.fixture
def before() -> Iterator[dict[str, str]]:
    environment.watch()
    held = dict(environment.read())
    yield held
    os.environ.pop("TPCHECK_SET_HERE", None)


@pytest.mark.parametrize(
    ("module", "stays"),
    [
        ("torch._inductor.runtime.cache_dir_utils", True),  # where its cache is
        ("torch._dynamo.somewhere", True),
        ("torch.distributed.launcher", False),
        ("my_model", False),
    ],
)
def test_what_torchs_compiler_says_there_stays(
    before: dict[str, str], module: str, stays: bool
) -> None:
    of_module = types.ModuleType(module)
    exec("import os\ndef put(): os.environ['TPCHECK_SET_HERE'] = 'x'", vars(of_module))
    of_module.put()
    assert ("TPCHECK_SET_HERE" in environment.kept(before)) is stays
