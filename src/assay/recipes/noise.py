"""The plain recipe."""

from assay.recipes.recipe import Recipe

NOISE = Recipe(
    name="noise",
    summary="Bounded random noise around each seed: the control every other recipe must beat.",
    mutate="noise",
)
