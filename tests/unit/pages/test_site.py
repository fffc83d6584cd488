"""The site that `make site` builds of docs/: strict, whole, and it loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tpcheck
from tests import ROOT
from tests.commands import environment
from tpcheck import specs

#: What a browser loads by itself, and what a reader follows.
LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}
#: A `<link>` of these is a name, and nothing is loaded.
NAMES = ("canonical", "prev", "next", "alternate")


class Page(HTMLParser):
    """What a page loads and links to, its anchors, and the text of its paragraphs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.links = list[str](), list[str]()
        self.anchors, self.paragraphs = set[str](), list[str]()
        self._inside = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.loads += [v for k, v in given.items() if (tag, k) in LOADS and not self._named(given)]
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.paragraphs += [""] if tag == "p" else []
        self._inside += [tag] if tag in ("p", "code") else []

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside and "code" not in self._inside:
            self.paragraphs[-1] += data

    @staticmethod
    def _named(given: dict[str, str]) -> bool:
        return given.get("rel") in NAMES


def is_elsewhere(target: str) -> bool:
    return bool(re.match(r"[a-z]+:|//", target)) and not target.startswith("data:")


def faults(site: Path) -> Iterator[str]:
    """What is loaded from elsewhere, links that lead nowhere, Markdown that was left as it is."""
    pages = {file: Page(file.read_text()) for file in site.rglob("*.html")}
    for file, page in pages.items():
        told = file.relative_to(site)
        yield from (f"{told} loads {target}" for target in page.loads if is_elsewhere(target))
        for target in {*page.links, *page.loads}:
            path, _, anchor = target.partition("#")
            there = (file.parent / path).resolve() if path else file
            there = there / "index.html" if there.is_dir() else there
            if is_elsewhere(target) or told.name == "404.html":  # its links are from the root
                continue
            if not there.exists():
                yield f"{told}: no {target}"
            elif anchor and there in pages and anchor not in pages[there].anchors:
                yield f"{told}: no heading {target}"
        for text in page.paragraphs:
            if re.search(r"^\s*([-|]|\d+\.) |\*\*\w|\]\(|```", text, re.MULTILINE):
                yield f"{told}: {text[:60]!r}"
    for style in site.rglob("*.css"):
        if found := re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", style.read_text()):
            yield f"{style.relative_to(site)} loads {found[0]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**environment(), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=quiet)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return folder


def test_the_site_builds_without_a_warning_and_nothing_in_it_is_dead_or_elsewhere(
    site: Path,
) -> None:
    assert list(faults(site)) == []
    built = {file.relative_to(site).as_posix() for file in site.rglob("*.html")}
    pages = {p.relative_to(ROOT / "docs").with_suffix(".html") for p in ROOT.glob("docs/**/*.md")}
    named = {p.as_posix().replace("README.html", "index.html") for p in pages}
    assert built >= named | {"about.html", "contributing.html", "changelog.html"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<script src="https://unpkg.com/x.js"></script>', "loads https://unpkg.com/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "loads //fonts.example"),
        ('<a href="gone.html">x</a>', "no gone.html"),
        ('<a href="#gone">x</a>', "no heading #gone"),
        ("<p>a list:\n- that is none</p>", "a list:"),
    ],
)
def test_the_twin_a_fault_of_the_site_is_seen(tmp_path: Path, body: str, said: str) -> None:
    right = '<link rel="canonical" href="https://x.org/"><a href="#a">x</a><p id="a">`x`</p>'
    (tmp_path / "index.html").write_text(right)
    assert list(faults(tmp_path)) == []
    (tmp_path / "index.html").write_text(right + body)
    (found,) = faults(tmp_path)
    assert said in found


def paths() -> list[str]:
    """Where the public names are, as the page writes it: a spec has its module's name."""
    return [
        *(f"tpcheck.{name}" for name in tpcheck.__all__),
        *(f"{getattr(specs, name).__module__}.{name}" for name in specs.__all__),
    ]


def test_the_page_of_the_api_has_each_public_name_once() -> None:
    named = re.findall(r"^::: (tpcheck\.\S+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    others = [name for name in named if name.startswith(("tpcheck.adapters", "tpcheck.strategies"))]
    assert sorted({*named} - {*others}) == sorted(paths()) and len({*named}) == len(named)


def test_the_site_has_each_public_name_with_its_docstring(site: Path) -> None:
    anchors = Page((site / "api.html").read_text()).anchors
    assert {*paths()} <= anchors
