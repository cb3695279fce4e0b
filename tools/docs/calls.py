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


_MINED = f"{FUZZ} --recipe twinfuzz --eps 0.1"
_NEAR = f"{_MINED} --set 'seeds=attacked(model=both, count=5000), {{}}(keep=0.6), agreed(on=error)'"
# Names that ask for company: another model, a criterion, a recipe that is made for them.
_IN_COMPANY = {
    ("suite", "seen"): f"assay eval {MODEL} --data '{DATA}[:20]' --suite seen --seen pgd --eps 0.1",
    ("score", "mc_dropout"): "assay prioritise vgg16@weights.safetensors --pool cifar10/test --by mc_dropout -k 50",
    ("oracle", "agreed"): f"{_MINED} --set oracle=agreed",
    ("oracle", "leaves"): f"{_MINED} --set oracle=leaves",
    ("oracle", "leaves_wrong"): _MINED,
    ("oracle", "disagree"): f"{FUZZ} --recipe deepxplore{_WITH['deepxplore']}",
    ("oracle", "regressed"): f"{FUZZ} --recipe regression{_WITH['regression']} --set oracle.lead=0.2",
    ("filter", "gains"): f"{FUZZ} --recipe robot --set coverage=nc --set 'keep=gains(least=0.0)'",
    ("filter", "rises"): f"{FUZZ} --recipe robot --set 'keep=rises(score=fol)'",
    ("filter", "below"): f"{FUZZ} --recipe robot --set 'keep=below(score=fol, level=1e-18)'",
    ("filter", "outdoes"): f"{FUZZ} --recipe cagfuzz --set 'keep=outdoes(score=active)'",
    ("filter", "similar"): f"{FUZZ} --recipe cagfuzz --set valid.similar.least=0.95",
    ("filter", "few_or_small"): f"{FUZZ} --recipe deephunter --set 'valid=few_or_small(alpha=0.02)'",
    ("filter", "tenengrad"): f"{FUZZ} --recipe robot --set 'valid=tenengrad(most=1200.0)'",
    **{("filter", name): _NEAR.format(name) for name in ("close", "quality", "ssim")},
    ("seeder", "agreed"): f"{FUZZ} --recipe deepxplore{_WITH['deepxplore']}",
    ("mutator", "nearest"): f"{FUZZ} --recipe cagfuzz --set mutate.candidates=20",
    ("mutator", "cyclegan"): f"{FUZZ} --recipe cagfuzz --set mutate.of.epochs=16",
    ("mutator", "noise_as"): f"{FUZZ} --recipe cagfuzz-noise",
    ("mutator", "fgsm_as"): f"{FUZZ} --recipe cagfuzz-fgsm",
    ("mutator", "constrained"): f"{FUZZ} --recipe deepxplore{_WITH['deepxplore']} --set mutate.kind=occl",
    ("mutator", "transform"): f"{FUZZ} --recipe deephunter --set mutate.tries=20",
}


def _exceptions(kind: str, name: str) -> str:
    """Names that are for one use only."""
    if (kind, name) in _IN_COMPANY:
        return _IN_COMPANY[kind, name]
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
