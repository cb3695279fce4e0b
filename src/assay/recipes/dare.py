"""DARE: hardening by model transformation and mined training history (Zhang et al., ASE 2022; TOSEM 2024)."""

from assay.recipes.recipe import Recipe

# Paper (its public code): ten batches of 128 inputs at a learning rate of 1e-5; inputs are taken from a half the net
# was not trained on. Here: ten full epochs with patience 3, at the rate of 1e-6, 1e-5 and 1e-4 that does best by clean
# accuracy on a tenth of that half, because 1280 inputs are far below one epoch and no rate suits every net; statistics
# of batch normalisation stay as they are, because the weights behind them do. Its numbers are static, by examples that
# lie just across the old boundary. Here: beside fresh ones, beside random noise of the same size on the same weights,
# and beside as many epochs of cross-entropy on the same inputs, the control.
DARE = Recipe(
    name="dare",
    summary="Aim inner outputs at those of the epoch that was surest, and move only the weights that matter.",
    paper="Zhang et al., ASE 2022",
    train="dare",
    control="plain(batch=128, lr=1e-5, schedule=constant)",
)

# TOSEM: its targets of 2048 units meet an output of 10. Here: net and targets are cut at the same place, the softmax.
DARE_LAST = Recipe(
    name="dare-last",
    summary="DARE with the cut at the very end: the class probabilities of the surest epoch are the aim.",
    paper="Jiang et al., TOSEM 2024",
    train="dare_last",
    control="plain(batch=128, lr=1e-5, schedule=constant)",
)

# TOSEM: inputs that were picked meet targets that were not. Here: each input has its own.
DARE_NOSLICE = Recipe(
    name="dare-noslice",
    summary="DARE without a slice: every weight before the cut may move.",
    paper="Jiang et al., TOSEM 2024",
    train="dare_noslice",
    control="plain(batch=128, lr=1e-5, schedule=constant)",
)

DARE_NOTRANSFORM = Recipe(
    name="dare-notransform",
    summary="DARE without a cut: the whole classifier learns the true classes of the inputs that were mined.",
    paper="Jiang et al., TOSEM 2024",
    train="dare_notransform",
    control="plain(batch=128, lr=1e-5, schedule=constant)",
)
