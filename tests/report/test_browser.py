"""The page in a real browser: what is drawn, what is asked of the network, and how it looks on a phone and at night."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from report import test_label_issues as suspects
from report.synthetic import picture, result
from report.test_studies import RESULT
from widemargin.report import label_issues, page, png, studies
from widemargin.report import picture as pictures

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chromium-headless-shell")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium here: none of {', '.join(NAMES)} is on the PATH")

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
LABELS = ("cross-entropy", "hinge", "large margin")
HOSTILE = ("<script>alert(1)</script>", "</script>", '"><img src=x onerror=alert(1)>')
DRAWN = "() => [...document.querySelectorAll('.chart')].every(chart => chart.dataset.drawn)"


@dataclass
class Opened:
    """A page that was opened, and what went wrong meanwhile."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def marks(self, chart: str, kind: str) -> int:
        """How many SVG paths of the marks of a kind the chart has that are not empty."""
        paths = f"#{chart} svg .mark-{kind} path"
        count: int = self.page.evaluate(
            "s => [...document.querySelectorAll(s)].filter(p => p.getAttribute('d')).length", paths
        )
        return count


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    bad = result(HOSTILE, places=("<b>place</b>",))
    bad["title"] = HOSTILE[0]
    bad["arms"][0]["hardest"][0] |= {"label": HOSTILE[0], "prediction": HOSTILE[2]}
    results = {
        "full": result(LABELS, places=("input", "conv1")),
        "hostile": bad,
        "one": result(("my network",), places=("input",)),
        "losses": result(("cross-entropy", "WideMargin"), places=("input",)),
    }
    planes = pictures.write(folder / "planes.html", {**picture(HOSTILE[::2]), "title": HOSTILE[0]})
    studied = dict(zip(("scoreboard", "holds", "study"), studies.write(folder / "studies", [RESULT])))
    item = {"index": 1234, "given": "9", "suggested": "5", "margin": -10.5, "wrong": 0.998, "values": []}
    items = [{**item, "image": png.data_uri([[[0.0, 1.0], [1.0, 0.0]]])}] * 9
    studied["labels"] = label_issues.write(folder / "labels.html", suspects.values(items=items, columns=[]))
    written = {name: page.write(folder / f"{name}.html", shown) for name, shown in results.items()}
    return written | {"planes": planes} | studied


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def open_(browser: Any, files: dict[str, Path]) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def opened(name: str, *, width: int = 1280, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        seen = Opened(context.new_page())
        address = files[name].as_uri()

        def route(request: Any) -> None:
            seen.requests.append(request.request.url)
            request.continue_() if request.request.url == address else request.abort()

        seen.page.route("**/*", route)
        seen.page.on("console", lambda said: seen.complaints.append(f"{said.type}: {said.text}"))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.on("dialog", lambda dialog: seen.complaints.append("a dialog"))
        seen.page.goto(address)
        seen.page.wait_for_function(DRAWN, timeout=30_000)
        return seen

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", ["full", "hostile", "one", "planes"])
def test_nothing_is_requested_and_nothing_complains(open_: Callable[..., Opened], name: str) -> None:
    seen = open_(name)
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [seen.page.url]
    assert seen.page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert seen.page.locator(".failed").count() == 0


def test_the_policy_stops_scripts_and_requests(open_: Callable[..., Opened]) -> None:
    seen = open_("one")
    with pytest.raises(sync_api.Error):
        seen.page.evaluate("fetch('https://example.org/')")
    seen.page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.ran = 1';
            document.body.append(script);
        }"""
    )
    assert seen.page.evaluate("window.ran === undefined")
    assert any("Content Security Policy" in complaint for complaint in seen.complaints)


def test_every_chart_has_a_line_for_every_network(open_: Callable[..., Opened]) -> None:
    seen = open_("full")
    charts = seen.page.evaluate("[...document.querySelectorAll('.chart')].map(chart => chart.id)")
    assert len(charts) == 7  # two densities, one attack, two distances, accuracy, data
    for chart in charts:
        lines = 6 if chart.startswith("chart-training") else 3  # training and validation
        assert seen.marks(chart, "line") == lines, chart
    assert seen.marks("chart-margins-0", "area") == 3
    assert seen.page.locator("#chart-margins-0 svg .mark-rule line").count() >= 4  # three means and the boundary
    assert seen.marks("chart-attack", "symbol") == 39
    assert "Means: cross-entropy" in seen.page.locator("#chart-margins-0").get_attribute("aria-label")


@pytest.mark.parametrize("chart", ["chart-margins-0", "chart-training-0"])
def test_the_point_nearest_to_the_pointer_is_told(open_: Callable[..., Opened], chart: str) -> None:
    seen = open_("one")
    seen.page.locator(f"#{chart} svg").hover(position={"x": 400, "y": 200})
    seen.page.wait_for_selector("#vg-tooltip-element.visible")
    told = seen.page.locator("#vg-tooltip-element tr").all_inner_texts()
    assert told[0].split("\t") == ["network", "my network"]
    assert len(told) == (3 if chart == "chart-margins-0" else 4)
    numbers = [line.split("\t")[1] for line in told if not line.startswith(("network", "samples"))]
    assert all(float(number) > 0 for number in numbers)


def test_hostile_names_are_text(open_: Callable[..., Opened]) -> None:
    seen = open_("hostile")
    assert seen.page.locator("h1").inner_text() == HOSTILE[0]
    assert [chip.inner_text() for chip in seen.page.locator(".chip").all()] == list(HOSTILE)
    rows = [head.inner_text() for head in seen.page.locator("#overview tbody th").all()]
    assert rows == list(HOSTILE)
    assert [h.inner_text() for h in seen.page.locator(".gallery h3").all()] == list(HOSTILE)
    assert seen.page.locator("#h-margins ~ .cards h3").first.inner_text() == "At <b>place</b>"
    # Sorted from the left, the last point of the curve of the first network has its tooltip.
    seen.page.locator("#chart-attack svg .mark-symbol path").first.hover(force=True)
    seen.page.wait_for_selector("#vg-tooltip-element.visible")
    assert any(name in seen.page.locator("#vg-tooltip-element").inner_text() for name in HOSTILE)
    assert seen.page.locator("#vg-tooltip-element script, #vg-tooltip-element img").count() == 0
    assert seen.complaints == []


def test_a_picture_is_drawn_and_tells_what_is_pointed_at(open_: Callable[..., Opened]) -> None:
    seen = open_("planes", width=375, scheme="dark")
    assert seen.page.locator("h1").inner_text() == HOSTILE[0]
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 375
    assert seen.marks("chart-plane-0", "line") == 4  # two parts, an ellipse, a curve
    assert seen.page.locator("#chart-plane-0 svg .mark-rule.role-mark line").count() == 1
    assert seen.page.locator("#chart-plane-0 svg image").count() == 1
    assert seen.page.locator(".caption").inner_text() == "In two halves."
    seen.page.locator("#chart-plane-0 svg .mark-line path").nth(1).hover(force=True)
    seen.page.wait_for_selector("#vg-tooltip-element.visible")
    assert HOSTILE[2] in seen.page.locator("#vg-tooltip-element").inner_text()
    assert seen.complaints == []


def test_the_legend_works_from_the_keyboard(open_: Callable[..., Opened]) -> None:
    seen = open_("full")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    chip = seen.page.locator(".chip").nth(1)
    chip.focus()
    seen.page.keyboard.press("Space")
    assert chip.get_attribute("aria-pressed") == "false"
    seen.page.wait_for_function("() => document.querySelectorAll('#chart-attack svg .mark-line path[d]').length === 2")
    assert seen.marks("chart-margins-1", "line") == 2
    assert not seen.page.locator(".gallery").nth(1).is_visible()
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_function("() => document.querySelectorAll('#chart-attack svg .mark-line path[d]').length === 3")
    assert seen.page.locator(".gallery").nth(1).is_visible()


def test_the_numbers_of_a_chart_open_from_the_keyboard(open_: Callable[..., Opened]) -> None:
    seen = open_("full")
    seen.page.locator("#attack summary").focus()
    seen.page.keyboard.press("Enter")
    assert seen.page.locator("#attack table").is_visible()
    assert seen.page.locator("#attack tbody tr").count() == 3


@pytest.mark.parametrize(("name", "scheme"), [("full", "light"), ("hostile", "dark"), ("one", "dark")])
def test_a_phone_does_not_scroll_sideways(open_: Callable[..., Opened], name: str, scheme: str) -> None:
    seen = open_(name, width=375, scheme=scheme)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 375
    for chart in seen.page.locator(".chart svg").all():
        box = chart.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 375
        assert box["width"] > 250


@pytest.mark.parametrize("name", ["scoreboard", "study"])
def test_a_phone_shows_verdicts_and_text_that_can_be_read(open_: Callable[..., Opened], name: str) -> None:
    seen = open_(name, width=400)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 400
    cells = seen.page.locator("tbody tr > *:has(> .verdict), tbody td[data-head]:not(:empty)").all()
    assert len(cells) > 2
    for cell in cells:
        box = cell.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 400
    for image in seen.page.locator("img").all():
        assert image.bounding_box()["width"] > 600
    wide = open_(name, width=1280)
    heads = wide.page.locator("thead").first
    assert heads.bounding_box()["height"] > 20
    assert wide.page.locator("tbody tr").first.evaluate("row => getComputedStyle(row).display") == "table-row"


def test_a_phone_breaks_no_names_and_captions_have_a_line_each(open_: Callable[..., Opened]) -> None:
    def lines(seen: Opened, selector: str) -> set[float]:
        measure = "all => all.map(e => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight))"
        return {round(count, 1) for count in seen.page.locator(selector).evaluate_all(measure)}

    labels = open_("labels", width=400)
    assert lines(labels, ".gallery .margin") == {1.0}
    tops = labels.page.locator(".gallery li").evaluate_all("all => all.map(e => e.getBoundingClientRect().top)")
    assert tops.count(tops[0]) == 3
    losses = open_("losses", width=400)
    word = """head => {
        const range = document.createRange();
        range.selectNodeContents(head.lastChild);
        return range.getClientRects().length;
    }"""
    assert losses.page.locator("#overview tbody th").last.evaluate(word) == 1  # "WideMargin" is one line
    assert losses.page.locator("#facts dl div").first.evaluate("row => getComputedStyle(row).flexWrap") == "wrap"


def test_charts_follow_the_width_of_the_window(open_: Callable[..., Opened]) -> None:
    seen = open_("one")
    wide = seen.page.locator("#chart-margins-0 svg").bounding_box()["width"]
    seen.page.set_viewport_size({"width": 500, "height": 800})
    seen.page.wait_for_function(
        "() => document.querySelector('#chart-margins-0 svg').getBoundingClientRect().width < 500"
    )
    assert wide > 700


def test_the_charts_turn_dark_with_the_page(open_: Callable[..., Opened]) -> None:
    seen = open_("one")
    text = "getComputedStyle(document.querySelector('#chart-margins-0 svg .role-axis-label text')).fill"
    ink = "getComputedStyle(document.body).color"
    light, light_ink = seen.page.evaluate(text), seen.page.evaluate(ink)
    seen.page.emulate_media(color_scheme="dark")
    seen.page.wait_for_function(
        "() => [...document.querySelectorAll('.chart')].every(chart => chart.dataset.drawn === 'dark')", timeout=30_000
    )
    assert (light, light_ink) == ("rgb(92, 98, 112)", "rgb(27, 29, 34)")
    assert (seen.page.evaluate(text), seen.page.evaluate(ink)) == ("rgb(163, 169, 184)", "rgb(236, 238, 243)")
    assert seen.complaints == []


def test_a_chart_can_be_saved_from_the_page(open_: Callable[..., Opened]) -> None:
    seen = open_("hostile")
    with seen.page.expect_download() as waiting:
        seen.page.locator("#attack [data-save=svg]").click()
    assert waiting.value.suggested_filename == "chart-attack.svg"
    shown = {element.text for element in ElementTree.parse(waiting.value.path()).iter()}
    assert {*HOSTILE, "Accuracy over ε"} <= shown  # with the legend that the page has outside
    with seen.page.expect_download() as waiting:
        seen.page.locator("#attack [data-save=png]").click()
    assert waiting.value.path().read_bytes().startswith(b"\x89PNG")
    assert seen.complaints == []
