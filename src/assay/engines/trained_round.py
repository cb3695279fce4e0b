"""Hardening with a recipe that finds no cases: one round, and it trains."""

import time
from dataclasses import replace

from assay.core.randomness import Stream
from assay.engines.hardened import TRAINED
from assay.engines.hardening_models import Models
from assay.engines.round_book import Book, round_name
from assay.stages.trainers.shaken import shaken
from assay.subjects.sources.module import ModuleTarget

NOISE = "noise-{:03d}"  # its name in a run folder, by the round it belongs to
ONCE = "the recipe trains once"


class TrainedRound:
    """A hardening run under way whose recipe only trains."""

    def __init__(self, book: Book) -> None:
        self.book = book

    def over(self) -> str:
        """Why there is no round after those that are done, "" where there is one."""
        return ONCE if len(self.book.done) > 1 else ""

    def step(self) -> str:
        """Round 1: what the trainer makes of the original."""
        book, name, began = self.book, round_name(1), time.monotonic()
        s, original = book.setting, book.models.original
        training = {**s.training, "recipe": s.system.recipe.name, "round": 1}
        rng, say = book.rng.at("train", 1), book.tell(phase="train", round=1)
        made = book.models.trained(name, original, s.system.after.train, s.splits, None, rng, training, say)
        done, state = book.judged(ModuleTarget(made.module, original.spec, original.device), 1)
        done = replace(done, made=TRAINED, epochs=len(made.log), training=made.seconds, notes=made.notes)
        weights = book.models.encoded(made.module, training=training | made.facts(), hardening={"round": 1})
        book.commit(replace(done, seconds=time.monotonic() - began), weights, state)
        book.models.forget(name)
        return ""


def noise_beside(models: Models, number: int, rng: Stream) -> ModuleTarget:
    """The original with random noise on the weights that the round changed, as much of it; made and committed once."""
    name = NOISE.format(number)
    if number not in {line.meta["round"] for line in models.folder.commits("noise")}:
        made = shaken(models.original.module, models.target(round_name(number)).module, rng.at("noise", number))
        facts = {"round": number, "noise": True}
        models.folder.commit(
            {f"models/{name}.safetensors": models.encoded(made, hardening=facts)}, kind="noise", round=number
        )
    return models.target(name)
