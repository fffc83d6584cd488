"""What the site has besides docs/: the pages beside that folder, and the source files that pages
link to, each as a page; links to them are turned to these."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
#: Pages beside docs/, and what they are called in the site.
BESIDE = {
    "README.md": "about.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def _place(target: str) -> str | None:
    """Where the site has a path of the checkout; None where it has none."""
    if target in BESIDE:
        return BESIDE[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target.endswith(".py"):
        return f"source/{target}.md"
    return None


def _turned(text: str, page: str) -> str:
    """A page of the checkout with links as the site has them."""
    here = posixpath.dirname(_place(page) or page)

    def turn(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1]))
        place = _place(target)
        if place is None or not (ROOT / target).is_file():
            return match[0]  # a link that leads nowhere is the build's to tell
        return f"]({posixpath.relpath(place, here or '.')}{match[2] or ''})"

    return _LINK.sub(turn, text)


def _linked(text: str, page: str) -> set[str]:
    """The source files that a page links to."""
    found = (posixpath.join(posixpath.dirname(page), m[1]) for m in _LINK.finditer(text))
    files = {posixpath.normpath(target) for target in found if target.endswith(".py")}
    return {file for file in files if not file.startswith("docs/") and (ROOT / file).is_file()}


def on_files(files: Files, *, config: Any) -> Files:
    sources: set[str] = set()
    for page in [f"docs/{file.src_uri}" for file in files.documentation_pages()] + [*BESIDE]:
        sources |= _linked((ROOT / page).read_text(), page)
    for page, name in BESIDE.items():
        text = _turned((ROOT / page).read_text(), page)
        files.append(File.generated(config, name, content=text))
    for source in sorted(sources):
        text = f"# `{source}`\n\n```python\n{(ROOT / source).read_text()}```\n"
        files.append(File.generated(config, f"source/{source}.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    uri = page.file.src_uri
    return markdown if page.file.generated_by else _turned(markdown, f"docs/{uri}")


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    return _own_shim(output, page.url)


def on_post_template(output: str, *, template_name: str, **_: Any) -> str:
    return _own_shim(output, template_name)


def _own_shim(output: str, url: str) -> str:
    """What makes the search work in pages that are opened from a folder, from the site itself."""
    own = get_relative_url("_site/iframe-worker.js", url)
    return output.replace("https://unpkg.com/iframe-worker/shim", own)
