"""The JUnit report, held to what the schemas of those that read it allow."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

from tests.unit.report.test_machine import FAILED, KNOWN, PASSED, UNDECIDED
from tpcheck.report.machine import as_junit

#: What Jenkins' schema (xunit-plugin, junit-10.xsd) and pytest's copy allow, where they differ
#: the less: element → its children, its attributes (required ones with `!`), whether it has text.
SCHEMA: dict[str, tuple[set[str], set[str], bool]] = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "errors"}, False),
    "testsuite": (
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        {"name!", "tests!", "failures!", "errors!", "time", "skipped", "timestamp", "hostname"},
        False,
    ),
    "testcase": (
        {"skipped", "error", "failure", "system-out", "system-err"},
        {"name!", "time", "classname", "group"},
        False,
    ),
    "properties": ({"property"}, set(), False),
    "property": (set(), {"name!", "value!"}, False),
    "failure": (set(), {"type", "message"}, True),
    "error": (set(), {"type", "message"}, True),
    "skipped": (set(), {"type", "message"}, True),
    "system-out": (set(), set(), True),
}


def against_the_schema(root: ElementTree.Element) -> list[str]:
    faults = [] if root.tag == "testsuites" else [f"the root is {root.tag}"]
    for element in root.iter():
        children, attributes, text = SCHEMA[element.tag]
        faults += [f"{c.tag} in {element.tag}" for c in element if c.tag not in children]
        allowed = {name.rstrip("!") for name in attributes}
        faults += [f"{name} of {element.tag}" for name in set(element.attrib) - allowed]
        needed = {name.rstrip("!") for name in attributes if name.endswith("!")}
        faults += [f"no {name} of {element.tag}" for name in needed - set(element.attrib)]
        faults += [f"text in {element.tag}"] if (element.text or "").strip() and not text else []
        if element.tag == "testsuite" and not re.fullmatch(
            r"\d+\.\d{1,3}", element.get("time", "")
        ):
            faults.append("time of testsuite")
    return faults


def test_junit_is_what_the_schemas_of_jenkins_and_pytest_allow() -> None:
    results = [replace(PASSED, findings=[KNOWN], notes=["an orphan"]), FAILED, UNDECIDED]
    text = as_junit(results, seconds=1234.5678, unknown="the canary", skipped={"a": "no triton"})
    root = ElementTree.fromstring(text)
    assert {element.tag for element in root.iter()} == set(SCHEMA)
    assert against_the_schema(root) == []


def test_the_twin_properties_of_a_case_are_seen() -> None:
    root = ElementTree.fromstring(as_junit([PASSED], seconds=1.0))
    case = root.find("testsuite/testcase")
    assert case is not None
    ElementTree.SubElement(case, "properties")
    assert against_the_schema(root) == ["properties in testcase"]
