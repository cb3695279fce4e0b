"""The page for everyone: dark and light, on a phone, on paper, by keyboard, and full of hostile names."""

import shlex
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import pytest

import assay
from assay.outputs.report.build import report
from assay.outputs.report.compare import compare
from bad_strings import NAMES
from opened import Opened
from report_pages import data_of

Open = Callable[..., Opened]
OLD = Path(__file__).parents[1] / "faults" / "old_runs"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(13, 17, 23)"
# Every piece of text that is seen, with its colour and the ground it stands on.
COLOURS = """() => {
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/^rgba\\(.*, 0\\)$|transparent/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const seen = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest('script, style, noscript, svg, .skip')) continue;
    seen.push([text.slice(0, 40), getComputedStyle(element).color, ground(element)]);
  }
  return seen;
}"""
NAMELESS = """() => {
  const named = element => element.getAttribute('aria-label')
    || (element.labels && [...element.labels].map(l => l.textContent).join(' ').trim())
    || element.getAttribute('alt') || element.textContent.trim()
    || document.getElementById(element.getAttribute('aria-labelledby'))?.textContent.trim();
  return [...document.querySelectorAll('a, button, input, select, img, [role=img], [role=group], nav, section, form')]
    .filter(element => element.checkVisibility() && !named(element)).map(element => element.outerHTML.slice(0, 200));
}"""


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture
def page(made: Callable[..., Path]) -> Path:
    return made("page", 137, (1, 8, 8), ("cat", "dog", "bird"), shrunk=10)


def paper(opened: Opened) -> str:
    return str(opened.tab.evaluate("getComputedStyle(document.body).backgroundColor"))


def sideways(opened: Opened) -> int:
    """By how many pixels the page is wider than the window."""
    return int(opened.tab.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_colours_follow_the_system_and_the_switch(page: Path, open_page: Open) -> None:
    opened = open_page(page, color_scheme="dark")
    assert paper(opened) == DARK
    opened.picture("dark")
    opened.tab.click("#theme")
    assert opened.tab.inner_text("#theme") == "Colours: light"
    assert paper(opened) == LIGHT
    opened.tab.reload()
    assert paper(opened) == LIGHT, "the choice is kept"
    opened.tab.click("#theme")
    assert paper(opened) == DARK
    bright = open_page(page, color_scheme="light")
    assert paper(bright) == LIGHT
    bright.picture("light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(page: Path, open_page: Open, scheme: str) -> None:
    opened = open_page(page, color_scheme=scheme)
    for details in opened.tab.locator("details").all():
        details.evaluate("element => { element.open = true; }")
    seen = opened.tab.evaluate(COLOURS)
    assert len(seen) > 200
    assert not [(text, ink, ground) for text, ink, ground in seen if contrast(ink, ground) < 4.5]


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_needs_no_scrolling_sideways(page: Path, open_page: Open, width: int) -> None:
    opened = open_page(page, width=width, height=800, has_touch=True, is_mobile=True)
    assert sideways(opened) == 0
    opened.tab.locator(".card .open").first.tap()
    assert opened.tab.locator("#large").is_visible()
    assert sideways(opened) == 0
    opened.picture(f"phone-{width}-large")
    opened.tab.keyboard.press("Escape")
    small = opened.tab.eval_on_selector_all(
        "button, select, input, summary",
        "all => all.filter(e => e.checkVisibility()).map(e => [e.outerHTML.slice(0, 80), e.getBoundingClientRect()])"
        ".filter(([, box]) => box.height < 24 && box.width < 24).map(([text]) => text)",
    )
    assert [text for text in small if 'type="checkbox"' not in text] == []
    heights = opened.tab.eval_on_selector_all(
        ".drawing svg text", "all => all.filter(e => e.textContent).map(e => e.getBoundingClientRect().height)"
    )
    assert heights
    assert min(heights) >= 9, "drawings are scrolled, not made too small to read"
    opened.tab.locator("#filters").scroll_into_view_if_needed()
    opened.picture(f"phone-{width}")


def test_short_numbers_stay_on_one_line(page: Path, open_page: Open) -> None:
    opened = open_page(page, width=1280, height=800)
    styles = opened.tab.eval_on_selector_all(
        "table.few td.short", "all => all.map(e => getComputedStyle(e).whiteSpace)"
    )
    assert set(styles) == {"nowrap"}


def test_paper_has_the_cards_and_none_of_the_controls(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    opened.tab.emulate_media(media="print")
    for control in ("#filters", "#pager", "#theme", "nav", ".card .copy"):
        assert not opened.tab.locator(control).first.is_visible(), control
    assert opened.tab.locator(".card").first.is_visible()


def test_nothing_moves_by_itself_for_who_does_not_want_it(page: Path, open_page: Open) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert open_page(page, reduced_motion="reduce").tab.evaluate(behaviour) == "auto"
    assert open_page(page, reduced_motion="no-preference").tab.evaluate(behaviour) == "smooth"


def test_everything_has_a_name_and_a_place(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    assert opened.tab.evaluate(NAMELESS) == []
    ids = opened.tab.eval_on_selector_all("[id]", "all => all.map(element => element.id)")
    assert len(ids) == len(set(ids))
    levels = opened.tab.eval_on_selector_all("h1, h2, h3", "all => all.map(element => Number(element.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert opened.tab.get_attribute("html", "lang") == "en"
    assert opened.tab.get_attribute("#count", "aria-live") == "polite"
    links = opened.tab.eval_on_selector_all("nav a", "all => all.map(a => a.getAttribute('href'))")
    assert all(opened.tab.locator(link).count() == 1 for link in links)
    assert "#gallery" in links


def test_tab_goes_through_the_page_in_reading_order_and_is_seen(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    press = opened.tab.keyboard.press
    press("Tab")
    assert opened.active("className") == "skip"
    assert opened.tab.evaluate("document.activeElement.getBoundingClientRect().left >= 0"), (
        "it is seen when it is reached"
    )
    places = []
    for _ in range(40):
        press("Tab")
        places.append(opened.tab.evaluate(
            "[...document.querySelectorAll('*')].indexOf(document.activeElement)"
        ))  # fmt: skip
        style = "getComputedStyle(document.activeElement)"
        assert opened.tab.evaluate(f"parseFloat({style}.outlineWidth)") >= 2
        assert opened.tab.evaluate(f"{style}.outlineStyle") != "none"
    assert places == sorted(places)
    assert len(set(places)) == 40
    opened.tab.reload()
    press("Tab")
    press("Enter")
    assert opened.active("id") == "main"


def test_hostile_names_are_text_and_break_nothing(made: Callable[..., Path], open_page: Open) -> None:
    names = tuple(name.encode("utf-8", "backslashreplace").decode() for name in (*NAMES, "x" * 400, "\U0001f600" * 20))
    bad = names[0] + names[1]
    path = made("hostile", 150, (1, 8, 8), names, recipe=bad, model=bad, data=bad, shrunk=5)
    opened, told = open_page(path, width=390), data_of(path)
    assert sideways(opened) == 0
    assert opened.tab.locator("script").count() == 2
    assert opened.tab.locator("img[src=x]").count() == 0
    assert bad in opened.tab.inner_text("header")
    for number, name in enumerate(told["names"][: len(names)]):
        if any(number in (card["true"], card["predicted"]) for card in told["cards"]):
            opened.tab.select_option("#true", str(number))
            said = opened.tab.locator("#cards .says strong:first-child").all_text_contents()
            assert set(said) == {name}
    opened.tab.click("#clear")
    opened.tab.fill("#find", "<script>")
    assert opened.cards
    opened.tab.locator(".open").first.click()
    assert sideways(opened) == 0
    opened.picture("hostile")


def test_a_path_that_is_a_command_stays_a_word(tmp_path: Path, made: Callable[..., Path], open_page: Open) -> None:
    there = tmp_path / "a b'; echo `id` $(id) \"<b>"
    there.mkdir()
    shutil.copytree(made("page", 137).parents[1], there / "run")
    path = report(there / "run")
    opened = open_page(path)
    words = shlex.split(opened.tab.locator(".card .again code").first.text_content())
    assert words == ["assay", "replay", str(there / "run"), data_of(path)["cards"][0]["id"]]
    opened.tab.locator(".card").first.scroll_into_view_if_needed()
    opened.tab.wait_for_selector("svg[aria-label^='case'] use")
    assert [url for url in opened.asked if url.endswith(".png")] == [
        f"{path.parent.as_uri()}/{data_of(path)['sheets'][0][0]}"
    ]


@pytest.mark.parametrize("kind", ["fuzz", "eval", "harden"])
def test_reports_of_older_runs_open(kind: str, open_page: Open, tmp_path: Path) -> None:
    with ZipFile(OLD / f"{kind}.zip") as old:
        old.extractall(tmp_path)
    if kind == "harden":
        shutil.copytree(tmp_path / "run" / "round-001", tmp_path / "run" / "round-002")
    opened = open_page(report(tmp_path / "run"))
    assert opened.count.startswith("Showing 1–")
    opened.picture(f"old-{kind}")
    if kind == "harden":
        opened.tab.select_option("#round", "2")
        said = opened.tab.locator(".card .note:nth-of-type(3)").all_text_contents()
        assert said
        assert all("round 2" in text for text in said)


def test_the_report_of_an_evaluation_is_chosen_by_attack(digits_model: str, open_page: Open) -> None:
    assay.evaluate(digits_model, "digits/test[:80]", suite="fgsm,pgd", eps=0.2, each=True, save="attacked")
    path = report("attacked")
    opened, told = open_page(path), data_of(path)
    assert opened.tab.inner_text("#by-label").startswith("Attack")
    opened.tab.select_option("#by", "1")
    assert opened.cards == [card["id"] for card in told["cards"] if card["maker"] == 1][:60]
    opened.picture("evaluation")


def test_a_page_that_compares_runs_opens(made: Callable[..., Path], open_page: Open, tmp_path: Path) -> None:
    first = made("page", 137, (1, 8, 8), ("cat", "dog", "bird"), shrunk=10).parents[1]
    second = made("other", 60, (1, 8, 8), ("cat", "dog", "bird"), recipe="robot", seed=1).parents[1]
    done = compare(first, second, out=tmp_path / "compared.html")
    opened = open_page(Path(done.to_json()["report"]))
    said = opened.tab.inner_text("main")
    assert "noise" in said
    assert "robot" in said
    assert opened.tab.evaluate(NAMELESS) == []
    assert sideways(opened) == 0
    opened.picture("compared")
