"""The report of a run: one page with pictures beside it, readable from a file, asking the network for nothing."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import torch

from assay.core import store
from assay.core.files import make_folder, write_atomic
from assay.core.places import push
from assay.core.store import Store
from assay.engines.stored import identity_of
from assay.outputs.fitted import sheets_of
from assay.outputs.models import models_of
from assay.outputs.report.arena import arena_report, is_arena
from assay.outputs.report.contents import page_of
from assay.outputs.report.gallery import Gallery, gallery_of, with_pictures
from assay.outputs.report.pictures import sheets
from assay.outputs.report.render import rendered
from assay.outputs.report.shown import Shown, shown
from assay.outputs.report.single import single

IMAGES = "images"
_SHEET = re.compile(r"sheet-[0-9a-f]{12}\.png")


def report(run: str | Path, *, single_file: bool = False, out: str | Path | None = None) -> Path:
    """Write the report of a run and return its path: ``report/index.html`` in the run with pictures beside it.

    With ``single_file`` it is ``report/single.html``, at most 10 MB with pictures inside; what does not fit is left out
    and told. ``out`` names another place for the page; pictures go to a folder beside it. The folder of an arena has a
    page too, without pictures.
    """
    if is_arena(run):
        return arena_report(run, out)
    folder = store.read(store.find_run(run))
    path = Path(out) if out is not None else folder.path / "report" / ("single.html" if single_file else "index.html")
    failures = shown(folder)
    page, models = page_of(folder, failures), models_of(identity_of(folder))
    make_folder(path.parent)
    if single_file:
        pictures = {f"{IMAGES}/{name}": content for name, (content, _) in sheets_of(folder).items()}
        write_atomic(path, single(folder, page, failures, models, pictures))
        push(folder.path, "report/")
        return path
    images = path.parent / (IMAGES if out is None else f"{path.stem}-{IMAGES}")
    gallery = None
    if failures is not None:
        gallery = _illustrated(gallery_of(folder, failures, models), failures, images)
    _lay(folder, images)
    write_atomic(path, rendered(page, gallery, where={f"{IMAGES}/": f"{images.name}/"}))
    _sweep(images, gallery)
    push(folder.path, "report/")
    return path


def _illustrated(gallery: Gallery, failures: Shown, images: Path) -> Gallery:
    """The gallery with its pictures, which are laid beside the page."""
    if gallery.layout is None:
        return gallery
    make_folder(images)
    made, places = [], []
    order = torch.tensor([card.found for card in gallery.cards])
    for sheet in sheets(failures, order, gallery.layout):
        # Named by what it holds: a page that is open, or was copied, never shows pictures of a later one.
        name = f"sheet-{hashlib.sha256(sheet.content).hexdigest()[:12]}.png"
        write_atomic(images / name, sheet.content)
        places.append((f"{images.name}/{name}", sheet.across, sheet.down))
        made.append(replace(sheet, content=b""))
    return replace(gallery, cards=with_pictures(gallery.cards, made), sheets=tuple(places))


def _lay(folder: Store, images: Path) -> None:
    """Pictures of what the run fitted, beside the page."""
    for name, (content, _) in sheets_of(folder).items():
        make_folder(images)
        write_atomic(images / name, content)


def _sweep(images: Path, gallery: Gallery | None) -> None:
    """Take away the sheets of earlier reports, which no page shows any more."""
    used = set() if gallery is None else {place.rpartition("/")[2] for place, _, _ in gallery.sheets}
    if images.is_dir():
        for file in images.iterdir():
            if _SHEET.fullmatch(file.name) and file.name not in used:
                file.unlink()
