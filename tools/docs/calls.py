"""How each kind of name is called, from the command line and from Python."""

from collections.abc import Iterator

from assay.core.entries import Entry
from assay.core.registry import ENGINE_ARGUMENTS

MODEL, DATA = "lenet5@digits.safetensors", "digits/test"
FUZZ = f"assay fuzz {MODEL} --data digits/train --time 5s"
_BALL = {"corruptions": ""}  # of suites
_ADAPTED = {"twinfuzz": " --eps 0.1", "twinfuzz-code": " --eps 0.1", "lbt": " --eps 0.1"}
_WITH = {"regression": " --with lenet5@old.safetensors", "regression-blind": " --with lenet5@old.safetensors"}
_WITH |= {"deepxplore": " --with lenet4@other.safetensors"}


def calls(kind: str, entry: Entry) -> Iterator[str]:
    """The block of commands, and that of Python where there is a call for it."""
    command, python = _command(kind, entry), _python(kind, entry)
    if command:
        yield from ("```bash", *command.splitlines(), "```", "")
    if python:
        yield from ("```python", *python.splitlines(), "```", "")


def example(entry: Entry) -> str:
    """The name with its first parameter that is a number, at its default: ``pgd(steps=40)``."""
    for p in entry.parameters:
        if p.name not in ENGINE_ARGUMENTS and p.type in ("int", "float") and p.default not in (None, "None"):
            return f"{entry.name}({p.name}={p.default})"
    return entry.name


def _command(kind: str, entry: Entry) -> str:
    told, name = example(entry), entry.name
    norms = {p.name: p.default for p in entry.parameters}
    norm = str(norms.get("norm", "")).strip("'")
    ball = "" if "eps" not in norms else " --eps 6" if norm == "l0" else " --eps 1.0" if norm == "l2" else " --eps 0.1"
    ball += f" --norm {norm}" if norm in ("l2", "l0") else ""
    made = {
        "attack": f"assay eval {MODEL} --data '{DATA}[:20]' --suite '{told}'{ball}",
        "suite": f"assay eval {MODEL} --data '{DATA}[:20]' --suite {name}{_BALL.get(name, ' --eps 0.1')}",
        "recipe": f"{FUZZ} --recipe {name}{_ADAPTED.get(name, '')}{_WITH.get(name, '')} --run mine",
        "mutator": f"{FUZZ} --recipe robot --eps 0.1 --set 'mutate={told}'",
        "oracle": f"{FUZZ} --recipe robot --set 'oracle={told}'",
        "filter": f"{FUZZ} --recipe robot --set 'valid={told}'",
        "schedule": f"{FUZZ} --recipe robot --set 'schedule={told}'",
        "seeder": f"{FUZZ} --recipe robot --eps 0.1 --set 'seeds={told}'",
        "score": f"assay prioritise {MODEL} --pool {DATA} --by '{told}' -k 50",
        "criterion": f"assay coverage {MODEL} --data {DATA} --by '{told}'",
        "strategy": f"{FUZZ} --recipe dlfuzz --set 'strategy={told}'",
        "selector": f"assay select first --by '{told}' -k 50",
        "trainer": f"assay train lenet5 --data digits --trainer '{told}' --epochs 2 --out new.safetensors{ball}",
        "extractor": f"{FUZZ} --recipe cagfuzz --set 'mutate.features={told}'",
        "model": f"assay train {name} --data digits --epochs 2 --out new.safetensors",
        "data": f"assay train lenet5 --data {name} --epochs 2 --out new.safetensors",
        "sink": f"{FUZZ} --recipe robot --eps 0.1 --log {name} --run logged",
        "check": f"assay eval {MODEL} --data {DATA} --eps 0.1 --ignore {name}",
    }
    return _exceptions(kind, name) or made[kind]


def _exceptions(kind: str, name: str) -> str:
    """Names that are for one use only."""
    if (kind, name) == ("trainer", "resistant") or name.startswith("dare"):
        recipe = "twinfuzz" if name == "resistant" else name.replace("_", "-")
        if kind == "trainer" or kind == "recipe":
            return f'assay harden {MODEL} --data digits --recipe {recipe} --eps 0.1 --until "pgd>=0.6" --run hard'
    if kind == "recipe" and name in ("renew", "lbt"):
        return f'assay harden {MODEL} --data digits --recipe {name} --eps 0.1 --until "pgd>=0.6" --run hard'
    if kind == "score" and name in ("active", "neurons", "disagreement", "rivals", "lib", "regressing"):
        recipes = {"active": "cagfuzz", "neurons": "dlfuzz", "disagreement": "deepxplore", "lib": "twinfuzz"}
        recipe = recipes.get(name, "regression" if name == "regressing" else "robot")
        return f"{FUZZ} --recipe {recipe}{_ADAPTED.get(recipe, '')}{_WITH.get(recipe, '')}"
    if kind == "selector" and name in ("lbt", "metasel"):
        return f"assay prioritise {MODEL} --pool {DATA} --by {name} -k 50"
    return ""


def _python(kind: str, entry: Entry) -> str:
    told = example(entry)
    return {
        "attack": f'assay.attack("{told}", model, x, y, eps=0.1)',
        "suite": f'assay.evaluate(model, data, suite="{entry.name}", eps=0.1)',
        "recipe": f'assay.fuzz("{entry.name}", model, data, time="5s", run="mine")',
        "criterion": f'assay.coverage(model, data, by="{told}")',
        "selector": f'assay.select("first", by="{told}", k=50)',
        "score": f'assay.prioritise(model, data, by="{told}", k=50)',
    }.get(kind, "")
