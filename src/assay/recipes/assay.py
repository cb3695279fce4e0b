"""Our own recipe for a model that holds: what measured best here of the parts that others published."""

from assay.recipes.recipe import Recipe

# TRADES: right on the clean input, the same around it. Perturbed weights and averaged ones are each known to put off
# robust overfitting. Epochs are judged by attacks that the training does not use. Ten minutes, where nobody says.
ASSAY = Recipe(
    name="assay",
    summary="Train for as long as there is time: TRADES, perturbed weights, averaged weights (ours).",
    train="trades(batch=128, ema=0.999, awp=0.005, time=600)",
    control="plain(batch=128, ema=0.999)",
    suite="apgd_ce, apgd_dlr",
    parts=(
        ("trades (adversarial instead)", "adversarial"),
        ("perturbed weights", "awp=0"),
        ("averaged weights", "ema=0"),
    ),
)
