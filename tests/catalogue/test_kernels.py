"""Our Triton kernels pass, in every dtype and memory format that is drawn for them."""

from __future__ import annotations

import pytest

from tests import ROOT
from tpcheck.case import DTYPES
from tpcheck.engines.engine import Engine
from tpcheck.report import as_json
from tpcheck.search.collect import collect
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.verdict import Verdict

CHECKS = {check.title: check for check in collect([str(ROOT / "properties" / "_kernels")])}


@pytest.mark.parametrize("name", CHECKS)
def test_a_kernel_passes(gloo: Engine, name: str) -> None:
    options = Options(examples=8, seed=7, dtypes=DTYPES, corpus=None)
    result = Search(CHECKS[name], gloo, options).run()
    assert result.verdict is Verdict.PASS, as_json.check(result)
    assert result.tp_degrees == ([1] if CHECKS[name].kernel else [2, 4])
