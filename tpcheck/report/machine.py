"""Reports for machines: the JSON object of the public contract, and JUnit XML."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from tpcheck import __version__
from tpcheck.errors import InvalidArgument
from tpcheck.report import as_json, files
from tpcheck.report.text import in_short, notes, page, title, unwritable
from tpcheck.report.visible import in_json, in_xml
from tpcheck.verdict import CheckResult, Verdict, worst
from tpcheck.vocabulary import ON_GPUS

SCHEMA_VERSION = 2


def json_report(
    results: Sequence[CheckResult],
    *,
    started: str,
    seconds: float,
    seed: int,
    engine: str,
    ranks: int,
    unknown: str | None = None,
    skipped: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The report as one JSON-ready object. `unknown` is why the whole run can't be trusted;
    `skipped` says of each check that could not run why."""
    import torch

    verdict = worst(r.verdict for r in results)
    if unknown:
        verdict = max(verdict, Verdict.UNKNOWN)
    device = torch.cuda.get_device_name(0) if engine in ON_GPUS else "cpu"
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict.value,
        "started": started,
        "seconds": round(seconds, 3),
        "environment": {
            "tpcheck": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "device": device,
            "engine": engine,
            "ranks": ranks,
            "cpus": os.cpu_count(),
        },
        "seed": seed,
        "reason": unknown,
        "checks": [_check(result) for result in results],
        "skipped": [{"name": name, "reason": reason} for name, reason in skipped.items()],
    }


def as_junit(
    results: Sequence[CheckResult],
    *,
    seconds: float,
    unknown: str | None = None,
    skipped: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """JUnit XML: one test case per check; FAIL is a failure, UNKNOWN an error. Known findings are
    properties of the suite; what stands below a check's line is its test case's output. A check
    that can't run here is skipped.
    `unknown`, why the whole run can't be trusted, is an error in a test case of its own."""
    bad = {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error"}
    counts = {v: sum(r.verdict is v for r in results) for v in bad}
    suite = ElementTree.Element(
        "testsuite",
        name="tpcheck",
        tests=str(len(results) + len(skipped) + (unknown is not None)),
        skipped=str(len(skipped)),
        failures=str(counts[Verdict.FAIL]),
        errors=str(counts[Verdict.UNKNOWN] + (unknown is not None)),
        time=f"{seconds:.3f}",
    )
    if rows := [(result, row) for result in results for row in result.findings]:
        properties = ElementTree.SubElement(suite, "properties")  # the schemas have none of a case
        for result, row in rows:
            value = f"{row.state}: {row.code}, {row.package} {row.releases}, {row.page}"
            about = f"known-finding {title(result)}"
            ElementTree.SubElement(properties, "property", name=about, value=value)
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_classname(result),
            name=result.name,
            time=f"{result.seconds:.3f}",
        )
        if result.verdict in bad:
            element = ElementTree.SubElement(case, bad[result.verdict], _fate(result))
            element.text = page(result)
        if lines := notes(result):
            ElementTree.SubElement(case, "system-out").text = "\n".join(lines)
    if unknown is not None:
        case = ElementTree.SubElement(suite, "testcase", classname="tpcheck", name="the run")
        ElementTree.SubElement(case, "error", message=unknown)
    for name, reason in skipped.items():
        case = ElementTree.SubElement(suite, "testcase", classname="tpcheck", name=name)
        ElementTree.SubElement(case, "skipped", message=reason)
    root = ElementTree.Element("testsuites")
    root.append(in_xml(suite))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _fate(result: CheckResult) -> dict[str, str]:
    """The attributes of a failure or an error: what a dashboard shows without its text, and by what
    it groups."""
    found = result.counterexample
    return {"message": in_short(result)} | ({"type": found.diagnosis.code} if found else {})


def _check(result: CheckResult) -> dict[str, Any]:
    """A check's object; without its evidence where that can't be written."""
    try:
        return as_json.check(result)
    except Exception as error:
        bare = replace(result, counterexample=None, findings=[])
        return as_json.check(replace(bare, reason=unwritable(result, error)))


def _classname(result: CheckResult) -> str:
    """`tpcheck.gloo.properties.linear`: the file is in it, so that checks of one name are told
    apart."""
    file = (result.address or "").partition("::")[0].removesuffix(".py")
    return ".".join(["tpcheck", result.engine, *filter(None, file.split("/"))])


def write(path: Path, text: str) -> None:
    """Writes a report; a reader of a regular file sees the old report or the new one.

    A link, a device or a pipe (`/dev/stdout`) is written to and stays what it is.

    Raises:
        InvalidArgument: it can't be written.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, text)
    except OSError as error:
        raise InvalidArgument(f"can't write the report {path}: {error.strerror}") from None


def add(path: Path, text: str) -> None:
    """Writes at the end of a file that others write to, too.

    Raises:
        InvalidArgument: it can't be written.
    """
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"can't write the report {path}: {why}") from None


def dumps(report: dict[str, Any]) -> str:
    """Strict JSON, whatever is quoted: no bare NaN or Infinity, no half of a surrogate pair."""
    return json.dumps(in_json(report), indent=1, allow_nan=False, default=repr) + "\n"
