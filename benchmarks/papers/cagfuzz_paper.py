"""What the paper prints: accuracy in % of Tables 3 and 4, errors of 2000 images of Table 5, and two bars of Fig. 7."""

RQ1: dict[str, dict[str, dict[str, float]]] = {
    "mnist": {
        "lenet1": {"original": 59, "fgsm-lenet1": 70.6, "fgsm-lenet4": 66.6, "fgsm-lenet5": 68.6, "cagfuzz": 72.6},
        "lenet4": {"original": 62.6, "fgsm-lenet1": 66.6, "fgsm-lenet4": 71.6, "fgsm-lenet5": 68.2, "cagfuzz": 72},
        "lenet5": {"original": 60.6, "fgsm-lenet1": 69.3, "fgsm-lenet4": 64.6, "fgsm-lenet5": 71, "cagfuzz": 74.3},
    },
    "cifar10": {
        "vgg16": {"original": 19, "fgsm-vgg16": 28.2, "fgsm-vgg19": 21.8, "fgsm-resnet20": 24, "cagfuzz": 30.2},
        "vgg19": {"original": 10, "fgsm-vgg16": 18.4, "fgsm-vgg19": 25.6, "fgsm-resnet20": 21.4, "cagfuzz": 27},
        "resnet20": {"original": 15, "fgsm-vgg16": 33.8, "fgsm-vgg19": 36.8, "fgsm-resnet20": 40, "cagfuzz": 39.2},
    },
}

# Its DeepHunter is the eight transforms alone; strengths of FGSM and of transforms are not told.
RQ2: dict[str, dict[str, int]] = {
    "mnist": {"fgsm-eps": 162, "deephunter": 670, "deepxplore": 34, "cagfuzz": 894},
    "cifar10": {"fgsm-eps": 69, "deephunter": 193, "deepxplore": 20, "cagfuzz": 284},
}

MIXED = ("mnist", "lenet5", 98.63, 93.02)  # clean, and on test images and tests, both before retraining
RETRAINED = ("cifar10", "vgg19", 93.2, 97.96)  # before and after, on the mixed set
