"""Our own recipe for a model that holds: what measured best here of the parts that others published."""

from assay.recipes.recipe import Recipe

# TRADES: right on the clean input, the same around it. In a given time five large steps of the search were worth more
# than ten small ones, and a large learning rate under averaged weights more than a small one. Models are
# judged by attacks that the training does not use, epochs by its own. Ten minutes, where nobody says.
ASSAY = Recipe(
    name="assay",
    summary="Train for as long as there is time: TRADES with a short search, and averaged weights (ours).",
    train="trades(attack=pgd(steps=5, step=0.5, early_stop=false), beta=3, batch=64, lr=5e-3, ema=0.999, time=600)",
    control="plain(batch=64, ema=0.999)",
    suite="apgd_ce, apgd_dlr",
    parts=(("trades (adversarial instead)", "adversarial"), ("averaged weights", "ema=0")),
)
