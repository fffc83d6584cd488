"""A report as one HTML file."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tpcheck import __version__
from tpcheck.errors import InvalidArgument, counted
from tpcheck.report import machine
from tpcheck.report.page import contract, views, words
from tpcheck.report.visible import in_json

#: Bytes of a page: what mail and issue trackers take of an attachment.
LARGEST = 5_000_000 - 100_000

#: Of how many counterexamples a page that is larger has the pictures.
FEWER = (32, 8, 2, 0)

#: The fields of a counterexample that are drawn.
PICTURES = ("error_maps", "boundaries", "collectives", "source")

_VIEWS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "verify": views.of_verify,
    "fuzz": views.of_fuzz,
    "mutants": views.of_mutants,
    "alarms": views.of_alarms,
    "sensitivity": views.of_sensitivity,
}


def html(report: Any) -> str:
    """The page of a report as data, of whatever verb.

    Raises:
        InvalidArgument: it is not a report.
    """
    kind, fields = contract.known(report)
    fields = in_json(fields)
    page = _page(kind, fields)
    for number in FEWER:
        if len(page) <= LARGEST:
            break
        page = _page(kind, _pictured(fields, number))
    return page.decode()


def _page(kind: str, fields: dict[str, Any]) -> bytes:
    styles, script = _asset("page.css"), _asset("page.js")
    page = _environment().get_template(f"{kind}.html")
    shown = page.render(
        **_VIEWS[kind](fields),
        kind=kind,
        version=__version__,
        styles=styles,
        script=script,
        digests={"style": _digest(styles), "script": _digest(script)},
    )
    return shown.encode("utf-8", "backslashreplace")


def _pictured(fields: dict[str, Any], number: int) -> dict[str, Any]:
    """The report with the pictures of so many of its counterexamples, the first ones."""
    left = itertools.count()

    def bare(value: Any) -> Any:
        if isinstance(value, list):
            return [bare(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "error_maps" in value and next(left) >= number:
            return value | {**dict.fromkeys(PICTURES), "unpictured": True}
        return {key: bare(one) for key, one in value.items()}

    found: dict[str, Any] = bare(fields)
    return found


def of_data(report: dict[str, Any]) -> str:
    """The page of a report that was not written: of what its file would hold, and no more."""
    return html(json.loads(machine.dumps(report)))


def of_file(path: Path) -> str:
    """The page of a JSON report.

    Raises:
        InvalidArgument: the file can't be read, or is not a report.
    """
    report = contract.read(path)
    try:
        return html(report)
    except InvalidArgument as error:
        raise InvalidArgument(f"the report {path} is malformed: {error}") from None
    except RecursionError:
        raise InvalidArgument(f"the report {path} is malformed: it is nested too deep") from None


@cache
def _environment() -> Environment:
    """Whatever a template shows is escaped; a name that it does not have is a fault of ours."""
    made = Environment(
        loader=PackageLoader("tpcheck.report.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "counted": counted,
        "number": words.number,
        "value": words.value,
        "visible": words.value,
    }
    return made


def _asset(name: str) -> Markup:
    """The page's own style or script."""
    text = resources.files("tpcheck.report.page").joinpath("templates", name).read_text("utf-8")
    return Markup(text)


def _digest(text: str) -> str:
    """By which the page's policy knows its own style and script from any other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
