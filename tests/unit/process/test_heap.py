"""Memory of large tensors is used again, and not cleared by the kernel each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="memory is kept by glibc's mallopt, which others do not have"
)

#: Many tensors of up to 64 MB, a few at a time: pages that are new, of pages written. What all of
#: them take at once is new in any case, and with few tensors that is half of what is written.
WRITES = """
import random, resource, torch
from tpcheck.process.heap import keep_freed
if {kept}:
    keep_freed()
random.seed(0)
written, live = 0, []
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(120):
    size = random.choice([8 << 20, 4 << 20, 1 << 20, 123457, 1 << 16, 1 << 15])
    live.append(torch.empty(size, dtype=torch.float64).fill_(1))
    written += size * 8 / resource.getpagesize()
    while len(live) > random.choice([2, 8]):
        live.pop(random.randrange(len(live)))
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / written)
"""

#: Cases are posed one after the other: pages that are new, of each but the first ones. They take
#: 14 MB of tensors each.
POSES = """
import resource, torch
from tpcheck.bench.mlp import check, of_size
from tpcheck.oracle.pose import pose
torch.set_num_threads(1)
for seed in range(16):
    if seed == 8:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pose(check.spec, of_size(256, 2, "float32", seed), None)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 8)
"""


def test_posing_a_case_takes_the_memory_of_the_one_before() -> None:
    done = subprocess.run([sys.executable, "-c", POSES], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 300


@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.sweep)])
def test_pages_of_a_tensor_that_was_dropped_are_kept(kept: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES.format(kept=kept)],
        capture_output=True,
        text=True,
        check=True,
    )
    new = float(done.stdout)
    assert new < 0.5 if kept else new > 0.8
