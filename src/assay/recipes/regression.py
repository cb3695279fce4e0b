"""Regressions between two versions of a model: inputs that the old one gets right and the new one wrong."""

from assay.recipes.recipe import Recipe

# Seeds are inputs that both versions get right: one on which they differ already needs no search, and a comparison of
# the two (assay check --baseline) counts it. One regression a seed, so that a short search reaches many seeds.
REGRESSION = Recipe(
    name="regression",
    summary="Inputs that an older version (--with OLD) is surely right on and the model surely wrong.",
    seeds="agreed",
    mutate="ascend(lr=0.02, low=0.1, high=1.5, scale=rms)",
    objective=("regressing",),
    score=("regressing",),
    valid=("within(relative=0.2)",),
    oracle="regressed(lead=0.5)",
    schedule="queue(iters=60, depth=1, steps=60, pops=1, cases=1, apart=0)",
    train="plain(epochs=10, schedule=constant)",
)

# For versions that give no gradients: the same question about what everyday changes make of the images.
REGRESSION_BLIND = Recipe(
    name="regression-blind",
    summary="The same for models that only answer: DeepHunter's image transforms, and no slope to follow.",
    seeds="agreed",
    mutate="transform",
    valid=("few_or_small",),
    oracle="regressed",
    schedule="per_seed(steps=64, failures=1)",
    train="plain(epochs=10, schedule=constant)",
)
