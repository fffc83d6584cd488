"""The zygote of an engine whose ranks have their tensors on GPUs: no fork of it may lose CUDA."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tpcheck.engines.folder import RunFolder
from tpcheck.engines.zygote_process import ZygoteProcess

#: As a module that asks CUDA when it is imported: what is forked afterwards can't use it.
ASKS = "import torch\ntorch.cuda._is_in_bad_fork = lambda: True\n"
TELLS = """
import os, sys
path = os.path.dirname(__file__)
with open(f"{path}/told.tmp", "w") as to:
    by_nvml = os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
    to.write(f"{'asks_cuda' in sys.modules} {by_nvml} {os.environ.get('TRITON_INTERPRET')}")
os.rename(f"{path}/told.tmp", f"{path}/told")
"""


@pytest.mark.parametrize(
    ("engine", "asks", "told"),
    [
        pytest.param("nccl", ASKS, "False 1 None", marks=pytest.mark.sweep),
        ("gloo-cuda", ASKS, "False 1 None"),
        ("nccl", "", "True 1 None"),
        ("gloo", ASKS, "True None 1"),  # nobody there has a GPU
    ],
)
def test_modules_that_ask_cuda_are_left_to_the_ranks(
    engine: str, asks: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asks_cuda.py").write_text(asks)
    (tmp_path / "tells.py").write_text(TELLS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("TRITON_INTERPRET", "PYTORCH_NVML_BASED_CUDA_CHECK"):
        monkeypatch.delenv(name, raising=False)
    folder = RunFolder()
    zygote = ZygoteProcess(engine, ["asks_cuda"], folder)
    try:
        pid = zygote.pid
        zygote.load(["tells"])
        deadline = time.monotonic() + 60.0
        while not (tmp_path / "told").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (tmp_path / "told").read_text() == told
        assert zygote.alive and zygote.pid == pid, "the driver knows it by its number"
    finally:
        zygote.close()
        folder.remove()
