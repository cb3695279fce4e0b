"""ADAPT: learning which neurons to push (Lee et al., ISSTA 2020)."""

from assay.recipes.recipe import Recipe

# Paper: one seed is worked for seconds on end, pass after pass, and all that is made is archived, at any distance.
# Here: a seed has one pass, and its next one when all seeds had theirs, with nothing covered again; failures are those
# no further away than what may be queued, and near-copies are left out, as in robot, so that both are counted alike.
ADAPT = Recipe(
    name="adapt",
    summary="Climb ten neurons less the own class; which ones, a population of scoring vectors learns while it tests.",
    paper="Lee et al., ISSTA 2020",
    mutate="ascend(lr=0.1, low=1, high=1)",
    objective=("0.5 * neurons", "-0.5 * true_logit"),
    valid=("within(relative=0.5)",),
    keep=("gains(within=0.5, by=seed)",),
    coverage="nc(threshold=0.5)",
    strategy="adapt(k=10)",
    schedule="queue(iters=3, order=first, depth=20, steps=150, pops=50, only_kept=false, reopen=true)",
    train="plain(epochs=10, schedule=constant)",
)
