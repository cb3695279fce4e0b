"""What a run stood on."""

import json
import platform
import subprocess
import sys
from importlib.metadata import version

import torch

from assay.core import environment


def test_versions_and_machine_are_told() -> None:
    told = environment.describe()
    assert told["python"] == platform.python_version()
    assert told["cores"] >= 1
    assert told["packages"]["torch"] == version("torch")
    assert told["threads"] == torch.get_num_threads()
    assert json.loads(json.dumps(told)) == told


def test_no_user_path_or_host_is_told() -> None:
    assert set(environment.describe()) == {"python", "platform", "machine", "cores", "packages", "threads", "cuda"}


def test_asking_does_not_load_torch() -> None:
    code = (
        "import sys; from assay.core.environment import describe; told = describe();"
        " print('torch' in sys.modules, 'threads' in told, told['packages']['torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", version("torch")]


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert environment.version_of("assay-nowhere-to-be-found") is None
