"""Fashion-MNIST."""

from assay.core.registry import register
from assay.subjects.bench import Splits
from assay.subjects.data import archive, idx

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@register("data", name="fashion-mnist", paper="Xiao, Rasul, Vollgraf 2017")
def fashion_mnist(*, val: int = 5000) -> Splits:
    """Pictures of clothes, 28×28 grey: 55000 train, 5000 val, 10000 test."""
    return archive.named(
        "fashion-mnist",
        CLASSES,
        lambda: idx.fetch_all(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            {
                "x_train": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "y_train": "25c81989df183df01b3e8a0aad5dffbe",
                "x_test": "bef4ecab320f06d8554ea6380940ec79",
                "y_test": "bb300cfdad3c16e7a12a480ee83cd310",
            },
        ),
        val,
    )
