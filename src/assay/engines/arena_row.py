"""A row of an arena: a recipe or a trainer by name, and what a hardening with it makes of the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core import store
from assay.core.errors import Interrupted, UsageError
from assay.core.files import sha256
from assay.core.registry import entry, lookup, names
from assay.core.specs import Params, canonical, did_you_mean, python_file, step, written
from assay.engines.harden import harden
from assay.engines.hardened import Hardened
from assay.engines.round_book import round_name
from assay.recipes.recipe import Recipe, finds_cases
from assay.recipes.steps import maybe
from assay.subjects.sources.hub_specs import split_weights

NONE = "none"  # the row of the model as it is
# The model as it is, two controls (as long trained without an attack; cases of random noise), what papers harden with,
# and training under attack.
USUAL = (
    *(NONE, "plain", "noise"),
    *("robot", "twinfuzz", "dare", "lbt", "cagfuzz", "renew"),
    *("adversarial", "trades", "mart", "dynamic", "fast"),
)
ROUNDS = 4  # of a recipe that finds cases


@dataclass(frozen=True, slots=True)
class Row:
    """What a model is hardened with: ``none``, a recipe with changes, or a trainer with parameters."""

    text: str
    kind: str  # none, recipe or trainer
    name: str = NONE
    params: Params = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """A file name of its own."""
        plain = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "-" for c in self.name)[:60].strip("-")
        return (plain or "row") if self.text == plain else f"{plain or 'row'}-{sha256(self.text.encode())[:8]}"

    @property
    def rounds(self) -> int:
        """How many rounds find cases, where any do."""
        return int(self.params.get("rounds", ROUNDS))

    def recipe(self) -> Recipe:
        """What hardening runs; a trainer is a recipe that does nothing else."""
        if self.kind == "recipe":
            found: Recipe = lookup("recipe", self.name)[1]
            return found
        return Recipe(name=self.text, summary="", train=self.text)

    def changes(self) -> Params:
        """Changes of the recipe's stages; a trainer's parameters stand in its own text."""
        return {k: v for k, v in self.params.items() if k != "rounds"} if self.kind == "recipe" else {}

    @property
    def finds(self) -> bool:
        """Whether it looks for cases to learn from."""
        return self.kind == "recipe" and finds_cases(self.recipe(), self.changes())


def row_of(text: str) -> Row:
    """The row that a text names: ``none``, ``robot``, ``trades(beta=6)``, ``robot(rounds=8, train.lr=1e-4)``.

    >>> row_of("trades( beta=6 )").text
    'trades(beta=6)'
    """
    name, params = step(text)
    if name == NONE:
        if params:
            raise UsageError("the row 'none' is the model as it is and takes no parameters")
        return Row(NONE, NONE)
    kind, name = _kind(str(name))
    inside = ", ".join(f"{key}={written(value)}" for key, value in sorted(params.items()))
    return Row(f"{name}({inside})" if inside else name, kind, name, params)


def _kind(name: str) -> tuple[str, str]:
    """Whether a name is that of a recipe or of a trainer, and how it is spelled; recipes go first."""
    if python_file(name) is not None:
        return ("recipe" if isinstance(lookup("recipe", name)[1], Recipe) else "trainer"), name
    for kind in ("recipe", "trainer"):
        if canonical(name) in map(canonical, names(kind)):
            return kind, entry(kind, name).name
    raise UsageError(
        f"no recipe or trainer {name!r}; {did_you_mean(name, [NONE, *names('recipe'), *names('trainer')])}"
    )


@dataclass(frozen=True, slots=True)
class Contest:
    """What all rows of an arena share: the model they start from, the data, the ball, and what each may spend."""

    model: str
    data: str
    eps: str | float
    norm: str | None
    time: float
    val_cases: int
    how: Mapping[str, Any]  # size, mean, std, device, deterministic: options of hardening that rows have in common


def made_by(row: Row, seed: int, contest: Contest, run: str, progress: Any) -> dict[str, Any]:
    """Harden the model as the row says, in a run folder of that name, and tell what came of it.

    A run that exists is continued. ``weights`` is where those to measure are, from the folder of the runs' folder.
    """
    if row.kind == NONE:
        return {"seconds": 0.0}
    told = harden(
        row.recipe(),
        contest.model,
        contest.data,
        until="pgd>=1",
        eps=contest.eps,
        norm=contest.norm,
        run=run,
        rounds=row.rounds if row.finds else 1,
        changes=row.changes() | _limits(row, contest.time),
        val_cases=contest.val_cases,
        test_cases=1,
        seed=seed,
        control=False,
        progress=progress,
        fuzz_time=_share(row, contest.time) / 2 if row.finds else None,
        **contest.how,
    )
    if told.interrupted:
        raise Interrupted(f"stopped in row {row.text}, seed {seed}; the same command goes on")
    weights = f"models/{round_name(told.compared)}.safetensors"
    return {"weights": f"{told.run.parent.name}/{told.run.name}/{weights}", **_facts(told)}


def net_of(model: str) -> str:
    """A model without its weights."""
    return split_weights(model)[0]


def _share(row: Row, time: float) -> float:
    """The seconds of one round: a resistant model takes as long as a round of fuzzing does."""
    return time / (row.rounds + bool(maybe(row.recipe().resistant)[0]))


def _limits(row: Row, time: float) -> Params:
    """How long trainers train, as changes of the recipe: in a round that fuzzes, the other half of its seconds."""
    if not row.finds:
        return {}
    limits = {"train.time": _share(row, time) / 2}
    return limits | ({"resistant.time": _share(row, time)} if maybe(row.recipe().resistant)[0] else {})


def _facts(told: Hardened) -> dict[str, Any]:
    """What a hardening did, for the row's file."""
    stages = store.read(told.run).config["recipe"]
    facts: dict[str, Any] = {"stages": stages, "rounds": len(told.rounds) - 1, "kept": told.compared}
    facts |= {"epochs": sum(done.epochs for done in told.rounds), "stopped": told.stopped}
    facts["seconds"] = round(sum(done.seconds for done in told.rounds[1:]), 2)
    if not told.alone:
        facts["found"] = _found(told)
    return facts


def _found(told: Hardened) -> dict[str, int]:
    """Cases tried, failures among them and how many differ by seed or wrong class, over all rounds."""
    sums = dict.fromkeys(("cases", "failures", "distinct"), 0)
    for done in told.rounds:
        path = told.run / round_name(done.number)
        for name, count in (store.read(path).totals("fuzz") if path.is_dir() else {}).items():
            sums[name] = sums.get(name, 0) + count
    return {name: sums[name] for name in ("cases", "failures", "distinct")}
