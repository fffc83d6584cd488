"""`tpcheck doctor`: which engines, devices and optional packages work here, and why not."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass

from tpcheck import engines
from tpcheck.errors import InvalidArgument

_PACKAGES = {
    "torch": "required",
    "hypothesis": "required",
    "safetensors": "required",
    "cloudpickle": "required",
    "transformers": "extra: tpcheck[transformers]",
    "megatron-core": "extra: tpcheck[megatron]",
    "pytest": "extra: tpcheck[test]",
    "pytest-xdist": "extra: tpcheck[test]",
    "triton": "for kernels",
}


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, whether it works, and what was seen."""

    subject: str
    works: bool
    seen: str


def examine(ranks: int = 4) -> list[Finding]:
    """Looks at everything; engines are really started and a canary is run on each."""
    found = [
        Finding("python", True, platform.python_version()),
        Finding("processors", True, f"{os.cpu_count()} for {ranks} ranks"),
    ]
    found += [_package(name, why) for name, why in _PACKAGES.items()]
    found += [_engine(name, ranks) for name in engines.KINDS]
    return found


def _package(name: str, why: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, f"not installed ({why})")


def _engine(name: str, ranks: int) -> Finding:
    subject = f"engine {name}"
    reason = engines.why_not(name, ranks)
    if reason:
        return Finding(subject, False, reason)
    from tpcheck.engines.engine import Engine
    from tpcheck.search.canary import sings

    try:
        with Engine(name, ranks) as engine:
            engine.start()
            reason = sings(engine)
    except InvalidArgument as error:
        reason = str(error)
    cannot = engines.KINDS[name].cannot
    limits = f"; can't do: {', '.join(cannot)}" if cannot else ""
    works = f"{ranks} ranks up, canary found, trace complete{limits}"
    return Finding(subject, reason is None, reason or works)
