"""MNIST."""

from assay.core.registry import register
from assay.subjects.bench import Splits
from assay.subjects.data import archive, idx


@register("data", paper="LeCun, Cortes, Burges 1998")
def mnist(*, val: int = 5000) -> Splits:
    """Handwritten digits, 28×28 grey: 55000 train, 5000 val, 10000 test."""
    return archive.named(
        "mnist",
        tuple("0123456789"),
        lambda: idx.fetch_all(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            {
                "x_train": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "y_train": "d53e105ee54ea40749a09fcbcd1e9432",
                "x_test": "9fb629c4189551a2d022fa330f9573f3",
                "y_test": "ec29112dd5afa0611ce80d1b7f02629c",
            },
        ),
        val,
    )
