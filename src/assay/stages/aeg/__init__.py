"""The adversarial example generator of CAGFuzz: a CycleGAN whose reconstruction of an image is the test case."""

from assay.stages.aeg.generator import Aeg
from assay.stages.aeg.making import Making
from assay.stages.aeg.training import aeg_of, trained

__all__ = ["Aeg", "Making", "aeg_of", "trained"]
