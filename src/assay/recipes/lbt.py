"""LBT: a pool of attacked inputs, those first that mutants of a stand-in are unsure of (Rahman and Eisty 2025)."""

from assay.recipes.recipe import Recipe

# Paper (as far as it was readable): FGSM and JSMA make the pool; of what the attacks were given nothing is said. Here:
# 10000 inputs, right or wrong, each attacked once, and what the attack made is kept whether it fools the model or not,
# because in a pool of failures every order is as good as any other. JSMA goes by --set
# "mutate=attacked(attack=jsma, eps=94, norm=l0)". The stand-in is extracted anew from the model of each round.
LBT = Recipe(
    name="lbt",
    summary="Attack inputs once, keep all, and learn from those that mutants of a stand-in for the model doubt most.",
    paper="Rahman and Eisty 2025",
    seeds=("drawn(count=10000)", "labelled"),
    mutate='attacked(attack="fgsm(early_stop=false)")',
    oracle="every",
    opinions=("wrong_label",),
    schedule="once",
    select="lbt",
    train="plain(epochs=10, batch=64)",
)
