"""Suites by name."""

from assay.recipes.suite import Suite

FAST = Suite(
    name="fast",
    summary="FGSM and PGD-20: seconds, for a first look and for CI.",
    attacks=("fgsm", ("pgd", {"steps": 20})),
)

STANDARD = Suite(
    name="standard",
    summary="APGD-CE, APGD-DLR and Square with 1000 queries: an honest number in minutes.",
    attacks=("apgd_ce", "apgd_dlr", ("square", {"queries": 1000})),
)

AUTOATTACK = Suite(
    name="autoattack",
    summary="AutoAttack, standard version: APGD-CE, APGD-T, FAB-T and Square with 5000 queries.",
    paper="Croce and Hein 2020",
    attacks=("apgd_ce", "apgd_t", "fab_t", ("square", {"rescale": False})),
)

AUTOATTACK_RAND = Suite(
    name="autoattack-rand",
    summary="AutoAttack for randomised models: APGD-CE and APGD-DLR over 20 draws of the model a step.",
    paper="Croce and Hein 2020",
    attacks=(("apgd_ce", {"eot": 20}), ("apgd_dlr", {"eot": 20})),
)

BLACK_BOX = Suite(
    name="black-box",
    summary="Square and HopSkipJump with 1000 queries each: for targets that answer with probabilities only.",
    attacks=(("square", {"queries": 1000}), ("hop_skip_jump", {"queries": 1000})),
)

LABEL_ONLY = Suite(
    name="label-only",
    summary="HopSkipJump with 1000 queries: for targets that answer with labels only.",
    attacks=(("hop_skip_jump", {"queries": 1000}),),
)

SEEN = Suite(
    name="seen",
    summary="What the model was trained with: training-specific robustness.",
    relative=True,
)

UNSEEN = Suite(
    name="unseen",
    summary="What the model was not trained with: generalised robustness, in a column of its own beside seen.",
    attacks=(
        "fgsm",
        "bim",
        "mim",
        "pgd",
        "apgd_ce",
        "apgd_dlr",
        "deepfool",
        ("fab_t", {"targets": 3}),
        ("square", {"queries": 1000}),
    ),
    relative=True,
)

# All kinds of `corrupt` but saturate, which grey images do not have.
CORRUPTIONS = Suite(
    name="corruptions",
    summary="Thirteen common corruptions at five severities each: noise, blur, contrast, brightness, pixelation, JPEG.",
    paper="Hendrycks and Dietterich 2019",
    attacks=tuple(
        ("corrupt", {"kind": kind, "severity": severity})
        for kind in (
            "gaussian_noise",
            "shot_noise",
            "impulse_noise",
            "speckle_noise",
            "defocus_blur",
            "gaussian_blur",
            "motion_blur",
            "zoom_blur",
            "elastic",
            "contrast",
            "brightness",
            "pixelate",
            "jpeg",
        )
        for severity in (1, 2, 3, 4, 5)
    ),
    each=True,
)
