"""What the paper reports: means over the nine values that its public results have of each cell (TOSEM's raw data)."""

COLUMNS = ("dare", "at-cw", "at-fgsm", "at-jsma", "at-pgd")
WON_ASE = (29, 45)  # scenarios in which Dare has the highest ER
WON_TOSEM = (22, 36)

# ER in %, by (data, net) and the attack that made the examples, in the order of COLUMNS; BIM is not in these data.
ROBUST: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {
    ("cifar10", "vgg16"): {
        "cw": (91.9, 76.0, 54.8, 76.0, 71.2),
        "fgsm": (74.3, 61.4, 55.6, 56.4, 55.7),
        "jsma": (84.9, 73.7, 52.1, 80.6, 72.2),
        "pgd": (83.3, 65.3, 54.2, 75.0, 81.0),
    },
    ("svhn", "vgg16"): {
        "cw": (94.5, 81.6, 82.7, 77.4, 83.6),
        "fgsm": (81.3, 61.0, 74.1, 61.6, 67.4),
        "jsma": (83.7, 65.1, 73.1, 72.0, 73.6),
        "pgd": (85.7, 71.2, 79.8, 74.1, 80.5),
    },
    ("fashion-mnist", "vgg16"): {
        "cw": (81.1, 83.2, 67.4, 81.7, 75.9),
        "fgsm": (65.5, 65.9, 70.8, 66.8, 83.6),
        "jsma": (71.2, 70.6, 74.5, 85.3, 85.0),
        "pgd": (65.3, 64.3, 63.6, 64.8, 69.0),
    },
    ("cifar10", "vgg19"): {
        "cw": (42.7, 67.8, 45.1, 58.4, 61.4),
        "fgsm": (73.2, 60.6, 63.0, 58.3, 63.3),
        "jsma": (72.2, 72.7, 83.6, 73.1, 72.8),
        "pgd": (88.7, 69.8, 67.6, 73.3, 80.9),
    },
    ("svhn", "vgg19"): {
        "cw": (83.1, 61.6, 58.7, 57.0, 60.7),
        "fgsm": (86.3, 61.5, 72.6, 63.5, 67.5),
        "jsma": (87.6, 69.2, 69.3, 68.4, 71.1),
        "pgd": (89.6, 67.6, 79.7, 74.1, 80.4),
    },
    ("fashion-mnist", "vgg19"): {
        "cw": (79.3, 86.1, 66.4, 66.8, 76.2),
        "fgsm": (74.2, 71.5, 77.4, 76.5, 77.1),
        "jsma": (76.0, 82.9, 77.5, 74.9, 76.2),
        "pgd": (71.4, 72.8, 69.3, 76.3, 74.1),
    },
    ("cifar10", "alexnet"): {
        "cw": (46.5, 34.1, 39.5, 36.9, 36.6),
        "fgsm": (67.8, 52.7, 55.5, 55.2, 54.4),
        "jsma": (61.3, 56.5, 56.1, 63.4, 63.9),
        "pgd": (82.4, 60.9, 62.8, 67.4, 69.0),
    },
    ("svhn", "alexnet"): {
        "cw": (67.6, 58.6, 49.9, 69.3, 63.4),
        "fgsm": (71.6, 57.1, 65.5, 68.2, 69.9),
        "jsma": (80.8, 68.3, 71.4, 81.1, 77.8),
        "pgd": (78.4, 68.2, 70.3, 73.8, 77.8),
    },
    ("fashion-mnist", "alexnet"): {
        "cw": (76.7, 54.6, 80.7, 86.1, 86.8),
        "fgsm": (71.4, 66.2, 63.6, 61.8, 66.1),
        "jsma": (85.2, 79.9, 55.5, 81.0, 80.7),
        "pgd": (85.0, 80.8, 54.7, 68.9, 80.2),
    },
}

# Clean accuracy: the original net, then in the order of COLUMNS.
CLEAN: dict[tuple[str, str], tuple[float, ...]] = {
    ("cifar10", "vgg16"): (0.887, 0.889, 0.888, 0.874, 0.885, 0.883),
    ("svhn", "vgg16"): (0.943, 0.937, 0.948, 0.952, 0.950, 0.953),
    ("fashion-mnist", "vgg16"): (0.911, 0.908, 0.851, 0.865, 0.819, 0.871),
    ("cifar10", "vgg19"): (0.906, 0.904, 0.774, 0.840, 0.829, 0.856),
    ("svhn", "vgg19"): (0.939, 0.938, 0.948, 0.947, 0.912, 0.948),
    ("fashion-mnist", "vgg19"): (0.902, 0.914, 0.811, 0.905, 0.892, 0.895),
    ("cifar10", "alexnet"): (0.830, 0.836, 0.811, 0.813, 0.824, 0.812),
    ("svhn", "alexnet"): (0.933, 0.945, 0.858, 0.940, 0.935, 0.933),
    ("fashion-mnist", "alexnet"): (0.900, 0.917, 0.902, 0.881, 0.900, 0.887),
}


def robust(data: str, net: str, attack: str) -> dict[str, float]:
    """The paper's ER of a scenario by arm, as shares; nothing where it has none.

    >>> robust("cifar10", "vgg16", "pgd")["dare"], robust("cifar10", "vgg16", "bim")
    (0.833, {})
    """
    values = ROBUST.get((data, net), {}).get(attack, ())
    return {arm: round(value / 100, 4) for arm, value in zip(COLUMNS, values, strict=False)}
