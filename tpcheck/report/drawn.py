"""What a page draws of a counterexample, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tpcheck.event import Event
from tpcheck.evidence.pictures import Collectives, Pictures


def as_json(drawn: Pictures | None) -> dict[str, Any]:
    """The fields of a counterexample; each is there, though nothing be known of it."""
    drawn = drawn or Pictures()
    return {
        "error_maps": [asdict(one) for one in drawn.maps],
        "boundaries": None if drawn.boundaries is None else asdict(drawn.boundaries),
        "collectives": None if drawn.collectives is None else _collectives(drawn.collectives),
        "code": dict(drawn.code),
        "source": [asdict(one) for one in drawn.source],
    }


def _collectives(found: Collectives) -> dict[str, Any]:
    return {
        "events": [_event(event) for event in found.events],
        "ranks": {str(rank): list(own) for rank, own in found.ranks.items()},
        "left_out": found.left_out,
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "op": event.op,
        "group": list(event.group),
        "bytes": event.bytes,
        "phase": event.phase.value,
        "module": event.module,
        "where": event.where,
        "said": event.describe(),
    }
