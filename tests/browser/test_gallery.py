"""The gallery as people use it: clicked, typed and paged in a browser, from a file."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import torch
from PIL import Image

from assay.core import store
from assay.core.images import to_bytes
from assay.engines.found import load_failures
from opened import Opened
from report_pages import data_of

Open = Callable[..., Opened]
CLASSES = ("cat", "dog", "bird", "frog")


@pytest.fixture
def page(made: Callable[..., Path]) -> Path:
    return made("gallery", 437, (1, 8, 8), CLASSES, shrunk=40)


@pytest.fixture
def told(page: Path) -> dict[str, Any]:
    return data_of(page)


def chosen(told: dict[str, Any], **wanted: Any) -> list[str]:
    return [card["id"] for card in told["cards"] if all(card[name] == value for name, value in wanted.items())]


def fragment(opened: Opened) -> dict[str, str]:
    return {name: value[0] for name, value in parse_qs(opened.tab.url.partition("#/")[2]).items()}


def test_the_first_page_shows_cards_and_says_how_many(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    assert opened.cards == [card["id"] for card in told["cards"][:60]]
    assert opened.count == "Showing 1–60 of 437 failures"
    assert opened.tab.inner_text("#where") == "Page 1 of 8"
    opened.tab.locator("#gallery").scroll_into_view_if_needed()
    opened.picture("gallery")


def test_a_tile_shows_the_very_pixels_of_its_case(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    failures = load_failures(store.read(page.parents[1]))
    for place in (0, 7):
        card = told["cards"][place]
        svg = opened.tab.locator(f'.card[data-id="{card["id"]}"] svg[aria-label^="case"]')
        svg.scroll_into_view_if_needed()
        opened.tab.wait_for_timeout(300)  # until the sheet is read
        with Image.open(io.BytesIO(svg.screenshot())) as shot:
            grey, (width, height) = shot.convert("L"), shot.size
            middle = [[(int((i + 0.5) * width / 8), int((j + 0.5) * height / 8)) for i in range(8)] for j in range(8)]
            seen = [[grey.getpixel(at) for at in row] for row in middle]
        wanted = to_bytes(failures.x[card["found"]])[0]
        torch.testing.assert_close(torch.tensor(seen), wanted.long(), atol=2, rtol=0)


def test_filters_leave_what_was_asked_for(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    opened.tab.select_option("#true", label=f"dog ({len(chosen(told, true=1))})")
    assert opened.cards == chosen(told, true=1)[:60]
    assert opened.count.startswith(f"Showing 1–60 of {len(chosen(told, true=1))} failures, chosen of 437")
    both = chosen(told, true=1, predicted=2)
    opened.tab.select_option("#predicted", label=f"bird ({len(both)})")
    assert opened.cards == both[:60]
    opened.tab.check("#shrunk")
    left = [card["id"] for card in told["cards"] if card["id"] in both and card["left"]]
    assert opened.cards == left
    opened.picture("filtered")
    opened.tab.click("#clear")
    assert opened.count == "Showing 1–60 of 437 failures"


def test_a_kind_and_a_find_leave_their_own(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    kind = told["cards"][5]["kind"]
    opened.tab.select_option("#kind", str(kind))
    assert opened.cards == chosen(told, kind=kind)[:60]
    assert len(chosen(told, kind=kind)) == told["kinds"][kind]
    opened.tab.click("#clear")
    opened.tab.fill("#find", told["cards"][300]["id"][:10].upper())
    assert opened.cards == [told["cards"][300]["id"]]
    opened.tab.fill("#find", "nothing is called so")
    assert opened.cards == []
    assert "No failure is like that" in opened.tab.inner_text("#cards")
    assert opened.count == "Showing none of 437 failures"


@pytest.mark.parametrize(
    ("sort", "field", "sign"),
    [
        ("size", "size", 1),
        ("-size", "size", -1),
        ("confidence", "confidence", 1),
        ("-confidence", "confidence", -1),
        ("found", "found", 1),
    ],
)
def test_sorting(page: Path, told: dict[str, Any], open_page: Open, sort: str, field: str, sign: int) -> None:
    opened = open_page(page)
    opened.tab.select_option("#sort", sort)
    wanted = sorted(told["cards"], key=lambda card: sign * card[field])
    assert opened.cards == [card["id"] for card in wanted[:60]]


def test_pages_turn_to_the_last_and_back(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    seen = opened.cards
    assert opened.tab.is_disabled("#previous")
    while opened.tab.is_enabled("#next"):
        opened.tab.click("#next")
        seen += opened.cards
    assert seen == [card["id"] for card in told["cards"]]
    assert opened.count == "Showing 421–437 of 437 failures"
    opened.tab.click("#previous")
    assert opened.tab.inner_text("#where") == "Page 7 of 8"
    opened.tab.select_option("#per", "200")
    assert len(opened.cards) == 200
    assert opened.tab.inner_text("#where") == "Page 1 of 3"
    opened.tab.click("#next-below")
    assert opened.cards == [card["id"] for card in told["cards"][200:400]]


def test_keys_go_from_card_to_card_and_page_to_page(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    ids = [card["id"] for card in told["cards"]]

    def here() -> str:
        return str(opened.active("closest('.card').dataset.id"))

    press = opened.tab.keyboard.press
    press("j")
    assert here() == ids[0]
    press("j")
    press("ArrowRight")
    assert here() == ids[2]
    press("k")
    assert here() == ids[1]
    columns = opened.tab.evaluate(
        "getComputedStyle(document.getElementById('cards')).gridTemplateColumns.split(' ').length"
    )
    press("ArrowDown")
    assert here() == ids[1 + columns]
    press("ArrowUp")
    press("ArrowLeft")
    assert here() == ids[0]
    press("n")
    assert opened.cards[0] == ids[60]
    press("p")
    assert opened.cards[0] == ids[0]
    press("/")
    assert opened.active("id") == "find"
    opened.tab.keyboard.type("nj")
    assert opened.tab.input_value("#find") == "nj", "what is typed is no command"


def test_the_large_view_opens_steps_and_closes(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    press = opened.tab.keyboard.press
    shrunk = next(i for i, card in enumerate(told["cards"][:60]) if card["left"])
    opened.tab.locator(".card .open").nth(shrunk).focus()
    press("Enter")
    assert opened.tab.locator("#large").is_visible()
    assert opened.tab.inner_text("#large-title") == f"Failure {told['cards'][shrunk]['id']}"
    names = opened.tab.locator("#large figcaption").all_inner_texts()
    assert [name.partition(" ×")[0] for name in names] == ["seed", "case", "difference", "shrunk", "shrunk difference"]
    assert told["cards"][shrunk]["left"] in opened.tab.inner_text("#large")
    opened.picture("large")
    press("ArrowRight")
    assert told["cards"][shrunk + 1]["id"] in opened.tab.inner_text("#large-title")
    press("k")
    assert fragment(opened)["open"] == str(told["cards"][shrunk]["found"])
    press("Escape")
    assert not opened.tab.locator("#large").is_visible()
    assert "open" not in fragment(opened)
    assert opened.active("closest('.card').dataset.id") == told["cards"][shrunk]["id"], "focus goes back"


def test_stepping_through_the_large_view_turns_the_page_below(
    page: Path, told: dict[str, Any], open_page: Open
) -> None:
    opened = open_page(page)
    opened.tab.locator(".card .open").nth(59).click()
    opened.tab.get_by_role("button", name="Next", exact=True).click()
    assert told["cards"][60]["id"] in opened.tab.inner_text("#large-title")
    opened.tab.keyboard.press("Escape")
    assert opened.cards[0] == told["cards"][60]["id"]


def test_what_is_chosen_stands_in_the_address(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page)
    opened.tab.select_option("#predicted", "3")
    opened.tab.select_option("#sort", "-size")
    opened.tab.click("#next")
    assert fragment(opened) == {"predicted": "3", "sort": "-size", "page": "2"}
    before = opened.cards
    opened.tab.reload()
    assert opened.cards == before
    other = open_page(page, "#/" + opened.tab.url.partition("#/")[2])
    assert other.cards == before
    assert other.tab.input_value("#sort") == "-size"


@pytest.mark.parametrize(
    "bad",
    [
        "#/true=999",
        "#/page=-5&per=1e9",
        "#/page=2.5&sort=toString&per=abc",
        "#/open=<script>",
        "#/true=x&kind=%00&__proto__=1",
        "#/%",
        "#none",
    ],
)
def test_an_address_that_means_nothing_breaks_nothing(page: Path, open_page: Open, bad: str) -> None:
    opened = open_page(page, bad)
    assert opened.count.startswith("Showing")
    assert len(opened.cards) <= 200
    opened.tab.click("#clear")
    assert opened.count == "Showing 1–60 of 437 failures"


def test_commands_are_copied(page: Path, told: dict[str, Any], open_page: Open) -> None:
    opened = open_page(page, permissions=["clipboard-read", "clipboard-write"])
    opened.tab.locator(".card .copy").nth(2).click()
    wanted = f"assay replay {page.parents[1]} {told['cards'][2]['id']}"
    assert opened.tab.evaluate("navigator.clipboard.readText()") in (
        wanted,
        f"assay replay gallery {wanted.split()[-1]}",
    )
    assert opened.tab.locator(".card .copy").nth(2).inner_text() == "Copied"


def test_pictures_are_asked_for_when_they_come_near(made: Callable[..., Path], open_page: Open) -> None:
    path = made("lazy", 900, (3, 32, 32), CLASSES)
    opened = open_page(path)
    assert len(data_of(path)["sheets"]) > 6
    first = len({url for url in opened.asked if url.endswith(".png")})
    opened.tab.select_option("#sort", "-size")
    opened.tab.locator(".card").last.scroll_into_view_if_needed()
    opened.tab.wait_for_timeout(300)
    after = len({url for url in opened.asked if url.endswith(".png")})
    assert first <= 2
    assert after > first


def test_without_scripts_the_first_page_reads_the_same(page: Path, open_page: Open) -> None:
    def texts(opened: Opened) -> list[str]:
        found = opened.tab.eval_on_selector_all(
            "#cards > .card",
            """all => all.map(card => {
              card = card.cloneNode(true);
              card.querySelectorAll('button.copy').forEach(button => button.remove());
              return card.textContent.replace(/\\s+/g, '');
            })""",
        )
        return [str(text) for text in found]

    plain, whole = open_page(page, java_script_enabled=False), open_page(page)
    assert len(texts(whole)) == 60
    assert texts(plain) == texts(whole)
    assert not plain.tab.locator("#filters").is_visible()
    assert plain.tab.locator("noscript").inner_text().startswith("Without JavaScript the first 60 of 437 failures")
    assert plain.tab.locator(".card svg use").first.get_attribute("href") == "#sheet-0"
    plain.picture("without-scripts")


def test_one_file_works_alone(made: Callable[..., Path], open_page: Open, tmp_path: Path) -> None:
    page = made("alone", 437, (1, 8, 8), CLASSES, shrunk=40, single_file=True)
    copy = tmp_path / "sent by mail.html"
    copy.write_bytes(page.read_bytes())
    opened = open_page(copy)
    told = data_of(copy)
    assert opened.count == "Showing 1–60 of 437 failures"
    opened.tab.select_option("#true", "2")
    assert opened.cards == chosen(told, true=2)[:60]
    svg = opened.tab.locator("svg[aria-label^='seed']").first
    svg.scroll_into_view_if_needed()
    with Image.open(io.BytesIO(svg.screenshot())) as shot:
        greys = shot.convert("L").getcolors() or []
    assert len(greys) > 8, "there is a picture"
    assert [url for url in opened.asked if not url.startswith("data:")] == [copy.as_uri()]


def test_vectors_have_tables(made: Callable[..., Path], open_page: Open) -> None:
    path = made("vectors", 70, (9,), CLASSES)
    opened, told = open_page(path), data_of(path)
    cells = opened.tab.locator(".card").first.locator("td").all_text_contents()
    assert cells == [text for row in told["cards"][0]["changes"] for text in row]
    assert opened.tab.locator(".card svg").count() == 0
    opened.tab.locator(".open").first.click()
    assert opened.tab.locator("#large table").is_visible()
    opened.picture("vectors")
