"""The page of the report: what is on it can be read by everyone, and nothing of it runs or loads."""

import base64
import copy
import hashlib
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import torch

import assay
from assay.core import store
from assay.core.cases import Cases
from assay.outputs.models import Models
from assay.outputs.report.build import report
from assay.outputs.report.parts import Cell, Chart, Commands, Facts, Note, Page, Picture, Section, Table
from assay.outputs.report.render import rendered
from assay.outputs.seeding import labelled_by
from assay.outputs.status import readable, run_status
from assay.subjects.sources.load import load_target, module_of
from made_runs import made_run
from report_pages import Read, data_of, gallery, page_text

HERE = files("assay.outputs.report")
OLD = Path(__file__).parents[1] / "faults" / "old_runs"


def test_a_run_without_failures_has_no_gallery() -> None:
    page = report(made_run("none", 0, (1, 4, 4)))
    assert 'id="cards"' not in page.read_text()


def test_only_its_own_style_and_script_are_let_in() -> None:
    page = Read(report(made_run("strict", 5, (1, 8, 8))).read_text())
    rules = next(value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    parts = dict(part.strip().split(" ", 1) for part in rules.split(";"))
    assert parts["default-src"] == "'none'"
    assert parts["img-src"] == "'self' data: file:"
    for what, tag in (("style-src", "style"), ("script-src", "script")):
        own = page.inside[tag][-1]
        assert parts[what] == f"'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'"
    assert len(page.inside["script"]) == 2, "the data and the script"
    assert not [a for a in page.attributes if a[1].startswith("on") or a[1] == "style"]
    assert all(v.startswith(("#", "images/")) for _, name, v in page.attributes if name in ("src", "href"))


def test_the_script_is_small_and_never_makes_elements_of_text() -> None:
    script = "".join(HERE.joinpath(name).read_text() for name in ("app.js", "gallery.js"))
    assert len(script) < 100_000
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("):
        assert word not in script


def test_text_cannot_end_the_data_of_the_script() -> None:
    bad = '</script><script>alert(1)</script>"><img src=x onerror=alert(1)>{{7*7}}\u202e\x1b[31m'
    page = report(made_run("hostile", 12, (1, 4, 4), (bad, "<!--", "c"), recipe=bad, model=bad, data=bad))
    text = page.read_text()
    read = Read(text)
    assert read.elements["script"] == 2
    assert not [a for a in read.attributes if a[1].startswith("on")]
    assert "{{7*7}}" in text
    assert data_of(page)["names"][0] == bad.replace("\u202e", "\\x202e").replace("\x1b", "\\x1b")
    assert not {"\u202e", "\x1b"} & set(text)


def test_a_drawing_that_could_run_is_refused() -> None:
    table = Table(("a",), (("1",),))
    for svg in (
        "<svg><script>1</script></svg>",
        '<svg onload="1"/>',
        '<svg><g style="x"/></svg>',
        '<svg><image href="http://x"/></svg>',
        '<svg xmlns:x="http://www.w3.org/1999/xlink"><g x:href="#a"/></svg>',
        "<svg><!--><script>1</script>--></svg>",
        "<svg><text><![CDATA[<script>1</script>]]></text></svg>",
    ):
        page = Page("p", Note("v"), (Section("s", "S", (Chart(svg, "t", table),)),))
        with pytest.raises(ValueError, match=r"may not hold|nothing but elements"):
            rendered(page)


def test_every_part_is_rendered_and_the_gallery_stands_before_what_reproduces() -> None:
    numbers = Table(("", "one"), (("clean", Cell("91 %", "n=200", "good")), ("fgsm", Cell("7 %", "n=100"))), "T", "why")
    parts = (
        Note("mind this", "warning", "docs/checks.md#x"),
        Facts({"failures": "3"}),
        numbers,
        Chart("<svg><title>t</title></svg>", "drawn", numbers, "said"),
        Picture("images/a b.png", "a sheet"),
        Commands((("again", "assay report 'a b'"),)),
    )
    page = Page("p", Note("bad news", "bad"), (Section("s", "S", parts), Section("again", "Again", parts[-1:])))
    text = rendered(page, gallery(made_run("few", 3, (5,)))).decode()
    for said in ("mind this", "docs/checks.md#x", "<dt>failures</dt><dd>3</dd>", "drawn", "said", "images/a%20b.png"):
        assert said in text
    assert '<th scope="col">one</th>' in text
    assert 'title="n=200"' in text
    assert "<strong>clean, one:</strong> n=200" in text, "how a number was measured is text too, not only a tooltip"
    assert text.index('id="s"') < text.index('id="gallery"') < text.index('id="again"')


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_defined() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_colours_can_be_read_in_light_and_in_dark() -> None:
    text = HERE.joinpath("style.css").read_text()
    palettes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root[^{]*\{[^}]*--ink[^}]*\}", text)
    ]
    assert len(palettes) == 3, "light, dark by the system, dark by the switch"
    assert palettes[1] == palettes[2]
    for palette in palettes:
        for ground in ("paper", "panel"):
            for ink in ("ink", "soft", "mark", "bad", "warn", "good"):
                assert contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)
            assert contrast(palette["edge"], palette[ground]) >= 3, "of what can be clicked"
        assert contrast(palette["on-mark"], palette["mark"]) >= 4.5


@pytest.mark.parametrize(
    ("recipe", "others", "words"), [("noise", 0, "the model says"), ("deepxplore", 1, "the models say")]
)
def test_made_up_labels_are_told_in_the_verdict(digits_model: str, recipe: str, others: int, words: str) -> None:
    data = assay.load_data("digits/train[:60]")
    bare = replace(data, cases=Cases.of(data.cases.x))
    torch.manual_seed(0)
    net = module_of(load_target(digits_model, data=data))
    for weight in (other := copy.deepcopy(net)).parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    found = assay.fuzz(recipe, net, bare, run="bare", eps=0.4, siblings=[other][:others], cases=200)
    count = found.seeding["seeds"]
    assert 0 < count <= 60
    said = f"{count} of {count} seeds have none, and what {words} of the clean input stands for it"
    page = report(found.run)
    assert said in page_text(page)
    told = readable(run_status(store.read(found.run)))["seeds without a label"]
    assert told.startswith(f"{count}: failures are by what {words} of the clean input")
    assert all(f"the label is what {words} of the clean input" in card["note"] for card in data_of(page)["cards"])


@pytest.mark.parametrize(
    ("steps", "models", "words"),
    [
        (["correct"], Models("a"), "the model says"),
        (["agreed"], Models("a", None, ("b",)), "the models say"),
        (["drawn", "correct"], Models("a", None, ("b",)), "the model says"),
        (["attacked", "quality", "agreed"], Models("r", "v"), "the vulnerable model says"),
        (["correct"], Models("r", "v"), "the resistant model says"),
    ],
)
def test_whose_word_stands_for_a_label(steps: list[str], models: Models, words: str) -> None:
    assert labelled_by({"steps": dict.fromkeys(steps, 1)}, models) == words
