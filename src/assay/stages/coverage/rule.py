"""A criterion as a value: how it begins, and what it asks for."""

from collections.abc import Callable
from dataclasses import dataclass

from assay.stages.coverage import Coverage
from assay.stages.coverage.profile import Profile
from assay.subjects.observer import Observer


@dataclass(slots=True)
class Rule:
    """What a function of kind ``criterion`` returns; see ``Criterion``."""

    begin: Callable[[Observer, Profile | None], Coverage]
    ends: bool = False
    profiled: bool = False
