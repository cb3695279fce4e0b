"""The digits that come with scikit-learn: no file, no network."""

from assay.core.registry import register
from assay.subjects.bench import Splits, cut
from assay.subjects.data.arrays import to_data

TEST, VALIDATION = 360, 237


@register("data", paper="Alpaydin and Kaynak 1998")
def digits() -> Splits:
    """Handwritten digits, 8×8 grey, embedded: 1200 train, 237 val, 360 test."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    whole = to_data("digits", (raw.images / 16.0).astype("float32"), raw.target, tuple("0123456789"))
    rest, test = cut(whole, ("digits", "digits/test"), TEST, seed=1)
    train, val = cut(rest, ("digits/train", "digits/val"), VALIDATION)
    return Splits("digits", train, val, test)
