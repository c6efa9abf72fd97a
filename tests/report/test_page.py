from __future__ import annotations

import base64
import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from report.synthetic import result
from widemargin.report import page

HOSTILE = ("<script>alert(1)</script>", "</script>", '"><img src=x onerror=alert(1)>', "<!--", "l\u2028s")


class Read(HTMLParser):
    """The elements of a page, the text inside of them, and what its attributes refer to."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.tags[-1][0] if self.tags else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def inside(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


FULL = result(("cross-entropy", "hinge"), places=("input", "conv1"))
LIBRARY = "/* the chart library, which only a browser needs */"


@pytest.fixture(scope="module", autouse=True)
def light() -> Iterator[None]:
    """Pages without the chart library, which takes seconds to make; test_browser.py has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_bundle", lambda: LIBRARY)
        yield


@pytest.fixture(scope="module")
def full() -> str:
    return page.render(FULL)


@pytest.fixture(scope="module")
def hostile() -> str:
    shown = result(HOSTILE, places=("<b>place</b>",))
    shown["title"] = shown["subtitle"] = shown["norm"] = HOSTILE[0]
    shown["attack"]["name"] = HOSTILE[1]
    shown["settings"] |= {HOSTILE[2]: HOSTILE[0], "nested": {HOSTILE[0]: [HOSTILE[1]]}}
    shown["arms"][0]["hardest"][0] |= {"label": HOSTILE[0], "prediction": HOSTILE[2]}
    return page.render(shown)


def test_hostile_names_make_no_elements(full: str, hostile: str) -> None:
    plain, read = Read(full), Read(hostile)
    kinds = {tag for tag, _ in plain.tags}
    assert {tag for tag, _ in read.tags} == kinds
    for tag in ("script", "img"):
        expected = len(plain.all(tag)) if tag == "script" else 12 * len(HOSTILE)
        assert len(read.all(tag)) == expected
    allowed = {attribute for _, attributes in plain.tags for attribute in attributes}
    assert {attribute for _, attributes in read.tags for attribute in attributes} == allowed


def test_hostile_names_are_shown_as_text(hostile: str) -> None:
    read = Read(hostile)
    assert HOSTILE[0] in read.inside("h1")
    for name in HOSTILE:
        assert name in read.inside("span")  # of the legend
        assert name in read.inside("i")  # after the dot of the overview


def test_the_json_inside_a_script_gives_the_names_back(hostile: str) -> None:
    begin = hostile.index('id="widemargin-charts">') + len('id="widemargin-charts">')
    text = hostile[begin : hostile.index("</script>", begin)]
    assert not set("<>&\u2028\u2029") & set(text)
    assert HOSTILE[0] in json.dumps(json.loads(text), ensure_ascii=False)


def test_nothing_refers_to_the_outside(full: str) -> None:
    read = Read(full)
    for tag, attributes in read.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/")), (tag, name, value)
    assert "@import" not in full
    assert "url(" not in full[: full.index("</style>")]


def test_the_policy_allows_the_scripts_of_the_page_and_no_others(full: str) -> None:
    policy = next(a["content"] for a in Read(full).all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    scripts = [part.split("</script>")[0] for part in full.split("<script>")[1:]]
    assert len(scripts) == 2
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == hashes
    assert "connect-src" not in rules


def test_ids_are_unique_and_links_lead_to_them(full: str) -> None:
    read = Read(full)
    ids = [i for _, attributes in read.tags if (i := attributes.get("id"))]
    assert len(ids) == len(set(ids))
    for attribute in ("href", "aria-labelledby"):
        targets = [v.lstrip("#") for _, a in read.tags if (v := a.get(attribute)) and not v.startswith("data:")]
        assert set(targets) <= set(ids)


def test_headings_go_down_one_step_at_a_time(full: str) -> None:
    levels = [int(tag[1]) for tag, _ in Read(full).tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def sections_of(shown: dict[str, Any]) -> list[str]:
    return [str(attributes["id"]) for attributes in Read(page.render(shown)).all("section")]


def test_sections_appear_when_their_data_do(full: str) -> None:
    everything = ["overview", "margins", "attack", "training", "data", "hardest", "facts"]
    assert [a["id"] for a in Read(full).all("section")] == everything
    assert sections_of({"title": "t", "arms": [{"name": "a"}]}) == []
    assert sections_of({"title": "t", "arms": [{"name": "a", "accuracy": 0.5}]}) == ["overview"]
    assert sections_of({"title": "t", "arms": [{"name": "a", "margins": {"input": [0.1, 0.2, 0.4]}}]}) == [
        "overview",
        "margins",
    ]


def test_margins_that_are_all_equal_or_missing_still_make_a_page() -> None:
    arms = [{"name": "a", "margins": {"input": [0.5, 0.5, None]}}, {"name": "b", "margins": {"input": [None]}}]
    assert sections_of({"title": "t", "arms": arms}) == ["overview", "margins"]


def test_a_result_read_from_a_file_makes_the_same_page(full: str, tmp_path: Path) -> None:
    again = json.loads(json.dumps(FULL))
    path = page.write(tmp_path / "new" / "page.html", again)
    assert path.read_text(encoding="utf-8") == full


def test_a_bad_result_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"result.arms\[0\] has no 'name'"):
        page.write(tmp_path / "page.html", {"title": "t", "arms": [{}]})
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_made_without_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from widemargin.report import page\n"
        "page._bundle = str\n"
        "page.render({'title': 't', 'arms': [{'name': 'a', 'margins': {'input': [0.1, 0.2]}}]})"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
