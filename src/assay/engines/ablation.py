"""What each part of a training contributed: the same training without it, as long, from the same start."""

import json

from assay.core.store import Store
from assay.engines.hardened import Ablated
from assay.engines.round_book import Book
from assay.subjects.sources.module import ModuleTarget

KIND = "ablation"


def ablations_of(folder: Store) -> list[Ablated]:
    """Those that a run holds, in the order they were made."""
    return [Ablated.of_json(json.loads(folder.file(line.meta["told"]))) for line in folder.commits(KIND)]


def ablate(book: Book) -> list[Ablated]:
    """Train and measure without each part of the recipe in turn; what is there already is not done again."""
    there = {done.part for done in ablations_of(book.folder)}
    for place, part in enumerate(book.setting.system.after.parts, 1):
        if part not in there:
            _without(book, place, part)
    return ablations_of(book.folder)


def _without(book: Book, place: int, part: str) -> None:
    s, original, fit = book.setting, book.models.original, book.setting.system.after.parts[part]
    name, say = f"without-{place:03d}", book.tell(phase="ablate", round=1, part=part)
    training = {**s.training, "trainer": fit.text, "recipe": s.system.recipe.name, "without": part}
    rng = book.rng.at("train", 1)  # the randomness of the whole: the part is all that differs
    made = book.models.trained(name, original, fit, s.splits, None, rng, training, say)
    target = ModuleTarget(made.module, original.spec, original.device)
    measured = book.yardstick.measure(target, s.val, book.tell(phase="measure", round=1))
    done, told = Ablated(part, fit.text, len(made.log), measured), f"state/{name}.json"
    weights = book.models.encoded(made.module, training=training | made.facts(), hardening={"without": part})
    files = {f"models/{name}.safetensors": weights, told: json.dumps(done.to_json(), allow_nan=False).encode()}
    book.folder.commit(files, kind=KIND, part=part, told=told)
    book.models.forget(name)
