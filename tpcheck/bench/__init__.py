"""`tpcheck bench`: what a check costs here, against a loop by hand and torch's own test classes."""

from tpcheck.bench.measure import bench
from tpcheck.bench.report import BenchReport, render

__all__ = ["BenchReport", "bench", "render"]
