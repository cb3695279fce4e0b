"""The gate as tests. The fixture ``robustness`` comes with Assay; nothing has to be imported."""

MODEL, DATA = "model.py:net@weights.safetensors", "dir:tests/images"


def test_model_is_robust(robustness):
    robustness(MODEL, DATA).require("robust>=0.40, robust[*]>=0.20", suite="fast", eps="8/255")


def test_model_got_no_worse(robustness):
    new = robustness(MODEL, DATA, baseline="model.py:net@released.safetensors")
    new.require("clean_drop<=0.02, robust_drop<=0.05", suite="fast", eps="8/255")
