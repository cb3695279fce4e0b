"""What a campaign with a pool or a fitted mutator does before its clock starts."""

from dataclasses import replace

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.store import Store
from assay.engines.lanes import Lanes

FITTED = "fitted"  # the kind of the commit that names what the mutator fitted


def scores_of_seeds(lanes: Lanes) -> dict[str, Tensor]:
    """The recipe's scores of all seeds, with which what is made of them is compared."""
    # In every session anew and all of them in the same batches, so that a resumed run has the same to the bit.
    if not lanes.stages.score:
        return {}
    look, size = replace(lanes.look, objective={}, chooser=None), lanes.bench.chunks.size
    blocks = (lanes.seeds[start : start + size] for start in range(0, len(lanes.seeds), size))
    seen = [look(lanes.bench, lanes.at(block)) for block in blocks]
    return {name: torch.cat([part.info[name].cpu() for part in seen]) for name in lanes.stages.score}


def try_mutator(lanes: Lanes, folder: Store) -> None:
    """One mutation that is thrown away: what the mutator fits before it can work, it fits now, and the run names it."""
    one = lanes.at(lanes.seeds[:1])
    lanes.stages.mutate(lanes.bench, one, rng=lanes.rng.at("try").rows(one.origin))
    facts, known = lanes.bench.told(), next(folder.commits(FITTED), None)
    if known is None and facts:
        folder.commit({}, kind=FITTED, facts=facts)
    elif known is not None and known.meta["facts"] != facts:
        rows = [f"  {name}: {known.meta['facts'].get(name)} then, {facts.get(name)} now" for name in facts]
        raise UsageError(f"run {folder.name} began with other nets; start another run\n" + "\n".join(rows))
