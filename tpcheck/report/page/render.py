"""A report as one HTML file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tpcheck import __version__
from tpcheck.errors import InvalidArgument
from tpcheck.report import machine
from tpcheck.report.page import contract, views, words
from tpcheck.report.visible import in_json

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
    page = _environment().get_template(f"{kind}.html")
    styles, script = _asset("page.css"), _asset("page.js")
    shown = page.render(
        **_VIEWS[kind](in_json(fields)),
        kind=kind,
        version=__version__,
        styles=styles,
        script=script,
        digests={"style": _digest(styles), "script": _digest(script)},
    )
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


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
    made.filters |= {"number": words.number, "value": words.value, "visible": words.value}
    return made


def _asset(name: str) -> Markup:
    """The page's own style or script."""
    text = resources.files("tpcheck.report.page").joinpath("templates", name).read_text("utf-8")
    return Markup(text)


def _digest(text: str) -> str:
    """By which the page's policy knows its own style and script from any other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
