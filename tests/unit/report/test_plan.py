"""An audit as text and as JSON."""

from __future__ import annotations

import json

from torch import nn

from tpcheck import audit
from tpcheck.report import plan as report


def two_layers() -> nn.Module:
    def block() -> nn.Module:
        return nn.ModuleDict({n: nn.Linear(4, 4, bias=False) for n in ("up", "down")})

    return nn.ModuleDict({"layers": nn.ModuleList([block(), block()])})


def test_parameters_that_are_alike_are_one_row() -> None:
    plan = {"layers.0.up": "colwise", "layers.1.up": "colwise", "layers.0.down": "rowwise"}
    text = report.text(audit(two_layers(), plan | {"layers.1.down": "rowwise"}, tp=2))
    rows = [line.split() for line in text.splitlines() if line.startswith("layers.*")]
    assert [row[:2] for row in rows] == [["layers.*.up.weight", "2"], ["layers.*.down.weight", "2"]]
    assert "('layers.*.up')" in text and "PASS  no finding" in text


def test_a_reason_that_points_at_siblings_does_not_split_a_row() -> None:
    text = report.text(audit(two_layers(), {"layers.0.up": "colwise_rep"}, tp=2))
    assert "left out, while layers.*.up.weight of the same kind is sharded" in text
    assert text.splitlines()[-1].startswith("FAIL  2 findings: parameter-not-sharded")


def test_bytes_are_per_rank() -> None:
    plan = {"layers.*.up": "colwise", "layers.*.down": "rowwise"}
    text = report.text(audit(two_layers(), plan, tp=2))
    assert "parameters per rank: 128 B held, 128 B promised, 256 B unsharded (0.500 of it;" in text


def test_json_has_the_fields_that_scripts_read() -> None:
    found = report.to_dict(audit(two_layers(), {"layers.*.upp": "colwise"}, tp=2))
    assert json.loads(json.dumps(found)) == found
    assert list(found) == ["tp", "live", "findings", "entries", "parameters", "bytes"]
    assert found["findings"][0] == {
        "code": "plan-entry-unmatched",
        "message": "'layers.*.upp' matches no module: layers.0 has no 'upp'; there is layers.*.up",
        "names": ["layers.*.upp"],
        "entry": "layers.*.upp",
        "suggestions": ["layers.*.up"],
    }
    assert found["entries"] == [
        {
            "key": "layers.*.upp",
            "style": "colwise",
            "matched": 0,
            "expected": 2,
            "sharded": 0,
            "suggestions": ["layers.*.up"],
        }
    ]
    assert found["parameters"][0] == {
        "name": "layers.0.up.weight",
        "shape": [4, 4],
        "placement": "whole",
        "reason": "no entry names it ('layers.*.upp' matches nothing)",
        "entry": None,
        "bytes": 64,
        "promised_bytes": 32,
    }
    assert found["bytes"] == {"whole": 256, "promised": 128, "held": 256}
