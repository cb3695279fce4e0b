"""Assay: find the inputs on which a classifier fails, harden it, and measure the result honestly.

>>> import assay
>>> data = assay.load_data("digits/test[:8]")
>>> len(data), data.spec.shape
(8, (1, 8, 8))
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names and where they live; imported when first used, so that `import assay` costs next to nothing.
_HOME = {
    "Aeg": "assay.stages.aeg",
    "Arena": "assay.engines.arena",
    "Bench": "assay.subjects.bench",
    "Cases": "assay.core.cases",
    "Covered": "assay.engines.coverage",
    "Data": "assay.subjects.bench",
    "Evaluation": "assay.engines.evaluation",
    "Found": "assay.engines.found",
    "Gate": "assay.engines.gate_result",
    "Hardened": "assay.engines.hardened",
    "InputSpec": "assay.core.cases",
    "Prioritised": "assay.engines.prioritise",
    "Recipe": "assay.recipes.recipe",
    "Suite": "assay.recipes.suite",
    "Target": "assay.subjects.target",
    "UsageError": "assay.core.errors",
    "arena": "assay.engines.arena",
    "attack": "assay.engines.attack",
    "check": "assay.engines.gate",
    "compare": "assay.outputs.report.compare",
    "coverage": "assay.engines.coverage",
    "evaluate": "assay.engines.evaluate",
    "export": "assay.outputs.export",
    "transfer": "assay.engines.transfer",
    "fuzz": "assay.engines.fuzz",
    "harden": "assay.engines.harden",
    "load_data": "assay.subjects.data.load",
    "load_target": "assay.subjects.sources.load",
    "make_aeg": "assay.engines.aeg",
    "prioritise": "assay.engines.prioritise",
    "register": "assay.core.registry",
    "replay": "assay.engines.replay",
    "Replayed": "assay.engines.replay",
    "report": "assay.outputs.report.build",
    "select": "assay.engines.select",
    "shrink": "assay.engines.shrink",
    "tracked": "assay.outputs.track.stream",
    "train": "assay.engines.train",
}

if TYPE_CHECKING:
    from assay.core.cases import Cases as Cases
    from assay.core.cases import InputSpec as InputSpec
    from assay.core.errors import UsageError as UsageError
    from assay.core.registry import register as register
    from assay.engines.aeg import make_aeg as make_aeg
    from assay.engines.arena import Arena as Arena
    from assay.engines.arena import arena as arena
    from assay.engines.attack import attack as attack
    from assay.engines.coverage import Covered as Covered
    from assay.engines.coverage import coverage as coverage
    from assay.engines.evaluate import evaluate as evaluate
    from assay.engines.evaluation import Evaluation as Evaluation
    from assay.engines.found import Found as Found
    from assay.engines.fuzz import fuzz as fuzz
    from assay.engines.gate import check as check
    from assay.engines.gate_result import Gate as Gate
    from assay.engines.harden import harden as harden
    from assay.engines.hardened import Hardened as Hardened
    from assay.engines.prioritise import Prioritised as Prioritised
    from assay.engines.prioritise import prioritise as prioritise
    from assay.engines.replay import Replayed as Replayed
    from assay.engines.replay import replay as replay
    from assay.engines.select import select as select
    from assay.engines.shrink import shrink as shrink
    from assay.engines.train import train as train
    from assay.engines.transfer import transfer as transfer
    from assay.outputs.export import export as export
    from assay.outputs.report.build import report as report
    from assay.outputs.report.compare import compare as compare
    from assay.outputs.track.stream import tracked as tracked
    from assay.recipes.recipe import Recipe as Recipe
    from assay.recipes.suite import Suite as Suite
    from assay.stages.aeg import Aeg as Aeg
    from assay.subjects.bench import Bench as Bench
    from assay.subjects.bench import Data as Data
    from assay.subjects.data.load import load_data as load_data
    from assay.subjects.sources.load import load_target as load_target
    from assay.subjects.target import Target as Target

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    import importlib

    thing = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return __all__
