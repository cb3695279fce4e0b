"""The pool of tests to put in order, and the data that methods compare it with."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from assay.core import store
from assay.core.cases import InputSpec
from assay.core.errors import AssayError, UsageError
from assay.core.registry import names
from assay.core.specs import canonical, sliced
from assay.core.store import Store
from assay.engines.prioritisers import Method, parts_of
from assay.engines.stored import class_names, identity_of, named_by_run, pool_of, stored_cases
from assay.subjects.bench import Data, fitted
from assay.subjects.data.load import load_data, training_of
from assay.subjects.target import START, Target

log = logging.getLogger("assay")


def pool_given(pool: str | Path | Data, *, static: bool, size: str, like: object = None) -> tuple[Data, Store | None]:
    """The pool, whose source is the text of the data that it is, or was made, of; and the run it lies in.

    ``like`` is the model that images are brought to the size of, where it says how.
    """
    if isinstance(pool, Data) or (isinstance(pool, str) and _is_data(pool)):
        if static:
            raise UsageError("--static is for a saved evaluation; the pool is data")
        return load_data(pool, part="test", size=size, like=like), None
    run = store.read(store.find_run(pool))
    every = stored_cases(run)
    cases = every[pool_of(run, every, every=True, static=static).rows]
    spec = InputSpec(tuple(cases.x.shape[1:]), (0.0, 1.0), class_names(run, every))
    source = str(identity_of(run).get("data", {}).get("spec", ""))
    return Data(f"run {run.name}", cases, spec, source), run


def _is_data(text: str) -> bool:
    """Whether a text names data rather than a run."""
    name = sliced(text)[0]
    known = canonical(name.partition("/")[0]) in map(canonical, names("data"))
    return known or name.startswith(("dir:", "hf:")) or ".npz" in name


def training_for(
    methods: Sequence[Method], pool: Data, run: Store | None, given: str | Data | None, target: Target, size: str
) -> Data | None:
    """What the target was trained with, as far as it is told or known; None where no method could ask for it.

    Where nothing is given, it is the ``run`` that the pool lies in that names it.
    """
    parts = [part for method in methods for part in parts_of(method.stage)]
    if not any(part.entry.kind == "criterion" or {"activation", START} & set(part.entry.needs) for part in parts):
        return None
    try:
        with named_by_run(run) if run is not None and given is None else nullcontext():
            known = training_of(pool, given, size=size)
    except AssayError as error:  # a run may outlive its data
        if given is not None:
            raise
        log.warning("the training data of %s are not found: %s; give --training", pool.name, error)
        return None
    return None if known is None else fitted(target, known)
