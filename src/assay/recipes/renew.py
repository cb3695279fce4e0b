"""Our own answer to the selection papers."""

from assay.recipes.recipe import Recipe

RENEW = Recipe(
    name="renew",
    summary="PGD examples made anew against the current model in every round, the least certain picked (ours).",
    mutate="attacked",
    schedule="per_seed(steps=1)",
    score=("gini", "zol"),
    select="top(score=gini)",
    train="plain(epochs=2, schedule=constant)",
)
