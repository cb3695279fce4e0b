"""A row of an arena: a recipe or a trainer by name, and what a hardening with it makes of the model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.core import store
from assay.core.errors import Interrupted, UsageError
from assay.core.files import sha256
from assay.core.registry import ENGINE_ARGUMENTS, entry, lookup, names
from assay.core.specs import Params, canonical, did_you_mean, python_file, step, written
from assay.engines.harden import harden
from assay.engines.hardened import ALL_DONE, Hardened
from assay.engines.round_book import round_name
from assay.recipes.recipe import Recipe, finds_cases
from assay.recipes.steps import maybe
from assay.subjects.sources import checkpoint
from assay.subjects.sources.hub_specs import split_weights

NONE = "none"  # the row of the model as it is
# The model as it is, two controls (as long trained without an attack; cases of random noise), what papers harden with,
# and training under attack.
USUAL = (
    *(NONE, "plain", "noise"),
    *("robot", "twinfuzz", "dare", "lbt", "cagfuzz", "renew"),
    *("assay", "adversarial", "trades", "mart", "dynamic", "fast", "replay"),
)
ROUNDS = 4  # of a recipe that finds cases, where all have the same time
FUZZ_CASES = 2000  # a round tries, where all have the same passes
MOST_ROUNDS = 200  # then


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
    def is_timed(self) -> bool:
        """Whether its trainer can be told how long to train."""
        return any(p.name == "time" for p in lookup("trainer", step(self.recipe().train)[0])[0].parameters)

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


def shared_by_trainers(trainers: str) -> Params:
    """Parameters that a text gives to all trainers; each must be one of some trainer's."""
    params = step(f"trainers({trainers})")[1]
    every = {p.name for name in names("trainer") for p in lookup("trainer", name)[0].parameters}
    known = sorted(every - set(ENGINE_ARGUMENTS))
    for name in params:
        if name not in known:
            raise UsageError(f"no trainer has a parameter {name!r}; {did_you_mean(name, known)}")
    return params


@dataclass(frozen=True, slots=True)
class Contest:
    """What all rows of an arena share: the model they start from, the data, the ball, and what each may spend.

    That is ``time`` in seconds or a number of ``passes``; the other one is None.
    """

    model: str
    data: str
    eps: str | float
    norm: str | None
    time: float | None
    passes: int | None
    val_cases: int
    trainers: Params  # of every row that is a trainer and does not say otherwise
    how: Mapping[str, Any]  # size, mean, std, device, amp, deterministic: options that the hardenings share

    def harden(self, row: Row, seed: int, run: str, progress: Any, **more: Any) -> Hardened:
        """A hardening by that row, in the run folder of that name; one that exists is continued."""
        changes = self._shared(row) | row.changes() | more.pop("changes", {})
        told = harden(
            row.recipe(),
            self.model,
            self.data,
            eps=self.eps,
            norm=self.norm,
            run=run,
            changes=changes,
            val_cases=self.val_cases,
            seed=seed,
            control=False,
            look=False,
            progress=progress,
            **more,
            **self.how,
        )
        if told.interrupted:
            raise Interrupted(f"stopped in row {row.text}, seed {seed}; the same command goes on")
        return told

    def _shared(self, row: Row) -> Params:
        """What all trainers have in common, as far as this one knows it."""
        if row.kind != "trainer":
            return {}
        known = {p.name for p in lookup("trainer", row.name)[0].parameters} - row.params.keys()
        return {f"train.{name}": value for name, value in self.trainers.items() if name in known}


def made_by(row: Row, seed: int, contest: Contest, progress: Any) -> dict[str, Any]:
    """Harden the model as the row says, and tell what came of it.

    A run that exists is continued. ``weights`` is where those to measure are, from the folder of the runs' folder.
    """
    if row.kind == NONE:
        return {"seconds": 0.0, "passes": 0}
    run = f"{row.slug}-seed-{seed}"
    work = _in_time if contest.time is not None else _in_passes
    told = work(row, seed, contest, run, progress)
    weights = f"models/{round_name(told.compared)}.safetensors"
    return {"weights": f"{told.run.parent.name}/{told.run.name}/{weights}", **_facts(told)}


def net_of(model: str) -> str:
    """A model without its weights."""
    return split_weights(model)[0]


def _in_time(row: Row, seed: int, contest: Contest, run: str, progress: Any) -> Hardened:
    """A row that only trains has all the time; of a round that finds cases half is for that, half for training.

    A resistant model may take as long to build as a round. What takes longer has fewer rounds.
    """
    assert contest.time is not None
    if not row.finds:
        # One that cannot be told when to end trains as long as it does: a limit on the run would count measuring too.
        changes = {"train.time": contest.time} if row.is_timed else {}
        return contest.harden(row, seed, run, progress, rounds=1, changes=changes)
    twins = bool(maybe(row.recipe().resistant)[0])
    one = contest.time / (row.rounds + twins)
    changes = {"train.time": one / 2} | ({"resistant.time": one} if twins else {})
    work = partial(contest.harden, row, seed, run, progress, fuzz_time=one / 2, changes=changes)
    return _until_spent(work, row.rounds, contest.time, seconds_of)


def _in_passes(row: Row, seed: int, contest: Contest, run: str, progress: Any) -> Hardened:
    """A row that only trains has as many epochs as fit, going by one that is counted; of one that finds cases, rounds
    of one epoch are done.
    """
    assert contest.passes is not None
    if not row.finds:
        one = {"train.epochs": 1, **({"train.time": 0.0} if row.is_timed else {})}
        tried = contest.harden(row, 0, f"{run}-one-epoch", progress, rounds=1, changes=one)
        log = checkpoint.read_meta(tried.run / f"models/{round_name(1)}.safetensors")["training"]["log"]
        epochs = max(1, round(contest.passes / max(sum(row["passes"] for row in log), 1)))
        return contest.harden(row, seed, run, progress, rounds=1, changes=one | {"train.epochs": epochs})
    work = partial(contest.harden, row, seed, run, progress, fuzz_cases=FUZZ_CASES, changes={"train.epochs": 1})
    return _until_spent(work, MOST_ROUNDS, contest.passes, lambda told: told.passes)


def _until_spent(
    work: Callable[..., Hardened], most: int, limit: float, spent: Callable[[Hardened], float]
) -> Hardened:
    """Round after round, as long as another one as large brings what is spent nearer to the limit."""
    before = 0.0
    for rounds in range(1, most + 1):
        told = work(rounds=rounds)
        now = spent(told)
        if told.stopped != ALL_DONE or now + (now - before) / 2 > limit:
            break
        before = now
    return told


def seconds_of(told: Hardened) -> float:
    """What a hardening took, less the measuring."""
    return sum(done.seconds - done.measuring for done in told.rounds[1:])


def _facts(told: Hardened) -> dict[str, Any]:
    """What a hardening did, for the row's file."""
    stages = store.read(told.run).config["recipe"]
    facts: dict[str, Any] = {"stages": stages, "rounds": len(told.rounds) - 1, "kept": told.compared}
    facts |= {"epochs": sum(done.epochs for done in told.rounds), "stopped": told.stopped, "passes": told.passes}
    facts["seconds"] = round(seconds_of(told), 2)
    return facts if told.alone else facts | {"found": _found(told)}


def _found(told: Hardened) -> dict[str, int | None]:
    """Cases tried, failures, and how many of these differ by seed or wrong class, over all rounds.

    A recipe that keeps cases that do not fail does not tell which failures differ.
    """
    rounds = [path for done in told.rounds if (path := told.run / round_name(done.number)).is_dir()]
    totals = [store.read(path).totals("fuzz") for path in rounds]
    found: dict[str, int | None] = {k: sum(t.get(k, 0) for t in totals) for k in ("cases", "failures", "distinct")}
    failing = [done.failing for done in told.rounds if done.failing is not None]
    return found | {"failures": sum(failing), "distinct": None} if failing else found
