"""The verbs as a user types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli import run
from assay.core import store
from report_pages import data_of


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


def test_train_eval_fuzz_status_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way, each verb on what the one before it left."""
    weights = tmp_path / "w.safetensors"
    train = ["train", "lenet5", "--data", "digits", "--out", str(weights), "--epochs", "6", "--batch", "32", "--json"]
    trained = json.loads(out_of(train, capsys))
    assert trained["epochs"] == 6
    assert trained["val_accuracy"] > 0.5

    model = f"lenet5@{weights}"
    table = out_of(["eval", model, "--data", "digits/test[:80]", "--eps", "0.1"], capsys)
    assert "worst case" in table
    assert "white box" in table
    assert "95 % intervals" in table

    fuzz = ["fuzz", model, "--data", "digits/train[:120]", "--recipe", "noise", "--eps", "0.3", "--run", "first"]
    found = json.loads(out_of([*fuzz, "--cases", "2000", "--json"], capsys))
    assert {"run", "seeds", "cases", "failures", "gradient_steps", "seconds", "stats"} <= set(found)
    assert found["cases"] >= 2000
    assert found["failures"] > 0

    status = json.loads(out_of(["status", "first", "--json"], capsys))
    assert status["failures"] == found["failures"]
    assert status["alive"] is False
    assert "first" in out_of(["status", "first"], capsys)

    page = Path(json.loads(out_of(["report", "first", "--json"], capsys))["report"])
    assert page.name == "index.html"
    assert "Failures" in page.read_text()


def test_config_file_reproduces_a_run(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["fuzz", digits_model, "--data", "digits/train[:64]", "--eps", "0.4", "--seed", "5", "--json"]
    first = json.loads(out_of([*base, "--run", "a", "--set", "schedule.steps=20"], capsys))
    again = json.loads(out_of(["fuzz", "--config", f"{first['run']}/campaign.toml", "--run", "b", "--json"], capsys))
    shards = [sorted((Path(r["run"]) / "cases").iterdir()) for r in (first, again)]
    assert [p.read_bytes() for p in shards[0]] == [p.read_bytes() for p in shards[1]]
    shown = out_of(["fuzz", "--config", f"{first['run']}/campaign.toml", "--show-config", "--seed", "9"], capsys)
    assert "seed = 9" in shown, "a flag comes over the file"
    assert "per_seed(failures=1, steps=20)" in shown


def test_without_a_name_each_run_is_new(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["fuzz", digits_model, "--data", "digits/train[:16]", "--eps", "0.4", "--json"]
    names = {json.loads(out_of(base, capsys))["run"] for _ in range(2)}
    assert len(names) == 2


def test_static_column(digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.safetensors"
    out_of(["train", "mlp", "--data", "digits", "--out", str(other), "--epochs", "3", "--quiet"], capsys)
    arguments = ["eval", digits_model, "--data", "digits/test[:60]", "--eps", "0.1", "--static-from", f"mlp@{other}"]
    told = json.loads(out_of([*arguments, "--json"], capsys))
    assert told["static"]["worst"]["accuracy"] >= told["worst"]["accuracy"]
    assert "static, made on" in out_of(arguments, capsys)


def test_list_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(out_of(["list", "--json"], capsys))
    assert {"attack", "recipe", "model", "data", "trainer", "suite"} <= set(told)
    assert {"fast", "standard", "autoattack", "seen", "unseen"} <= {e["name"] for e in told["suite"]}
    pgd = next(e for e in told["attack"] if e["name"] == "pgd")
    assert {"name": "steps", "type": "int", "default": "40"} in pgd["parameters"]
    assert "fashion-mnist" in out_of(["list", "data"], capsys)
    assert "pgd" in out_of(["list", "attacks"], capsys), "the plural does as well"
    assert [
        e["name"] for e in json.loads(out_of(["list", "attack", "pgd", "apgd-ce", "--json"], capsys))["attack"]
    ] == [
        "pgd",
        "apgd_ce",
    ]
    assert run(["list", "attack", "pdg"]) == 4
    assert "no attack 'pdg'; did you mean 'pgd'?" in capsys.readouterr().err


def test_env_tells_versions(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(out_of(["env", "--json"], capsys))
    assert told["packages"]["torch"].startswith("2.")


def test_demo_shows_the_whole_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "warning" not in err, "nothing to puzzle over in a first look"
    told = json.loads(out)
    table = told["table"]
    assert table["clean"]["before"]["accuracy"] > 0.9
    # Fine-tuning on what was found must help on failures of seeds it did not see, beyond the same noise unselected.
    fixed = table["failures not trained on"]
    assert fixed["before"]["accuracy"] == 0.0
    assert fixed["after"]["ci95"][0] > fixed["control: random noise"]["ci95"][1]
    page = Path(told["report"]).read_text()
    assert "Before and after" in page
    assert len(data_of(Path(told["report"]))["cards"]) > 10
    assert store.new_folder("demo").name == "demo-2", "nothing is overwritten by a second one"


@pytest.mark.parametrize("arguments", [["--help"], ["list", "attack"], ["list"], ["fuzz", "--help"], ["--version"]])
def test_quick_verbs_load_neither_torch_nor_scikit_learn(arguments: list[str]) -> None:
    probe = (
        "import sys\nfrom assay.cli import run\n"
        f"code = run({arguments!r})\n"
        "heavy = {'torch', 'sklearn', 'kornia', 'scipy', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_import_assay_is_light_and_lazy() -> None:
    probe = "import sys, assay; sys.exit('torch' in sys.modules or len([m for m in sys.modules if 'assay' in m]) > 1)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_a_reader_that_leaves_early_is_no_error() -> None:
    probe = f"{sys.executable} -m assay list | head -1; test ${{PIPESTATUS[0]}} -eq 0"
    done = subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_the_five_line_api(digits_weights: Path) -> None:
    import assay

    model = assay.load_target(f"lenet5@{digits_weights}")
    data = assay.load_data("digits/test[:64]")
    found = assay.fuzz("noise", model, data, time="1s", eps=0.4, run="first")
    assert len(found) > 0
    assert 0 <= assay.evaluate(model, data, suite="fast", eps=0.1).accuracy("worst") <= 1
    assert assay.report(found.run).is_file()


def test_a_flag_comes_over_the_file_also_inside_a_stage(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["fuzz", digits_model, "--data", "digits/train[:16]", "--json"]
    first = json.loads(out_of([*base, "--eps", "0.4", "--run", "a"], capsys))
    config = f"{first['run']}/campaign.toml"
    out_of(["fuzz", "--config", config, "--eps", "0.25", "--run", "b", "--json"], capsys)
    assert "noise(eps=0.25, norm=linf)" in (Path(first["run"]).parent / "b" / "campaign.toml").read_text()


def test_train_on_parts_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "w.safetensors")
    base = ["train", "mlp", "--out", out, "--epochs", "1", "--quiet", "--json"]
    told = json.loads(out_of([*base, "--train", "digits/train[:300]", "--val", "digits/val[:50]"], capsys))
    assert told["epochs"] == 1
    out_of(base, capsys, code=4)
    out_of([*base, "--data", "digits", "--train", "digits/train"], capsys, code=4)
    out_of([*base, "--data", "digits", "--val", "digits/val"], capsys, code=4)


def test_per_class_table(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = out_of(["eval", digits_model, "--data", "digits/test[:50]", "--eps", "0.1", "--per-class"], capsys)
    assert "class" in table
    assert table.count(" % (") > 20


def test_ctrl_c_is_exit_two_and_the_same_command_continues(tmp_path: Path) -> None:
    import signal
    import time

    out = tmp_path / "w.safetensors"
    arguments = ["train", "mlp", "--data", "digits", "--epochs", "2000", "--out", str(out), "--quiet"]
    child = subprocess.Popen(
        [sys.executable, "-m", "assay", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while child.poll() is None and not (tmp_path / "w.state.safetensors").exists():
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate()
    assert child.returncode == 2, told
    assert "the same command goes on" in told
    assert "Traceback" not in told


def test_help_is_about_options_not_variables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ASSAY_" not in out_of(["eval", "--help"], capsys)
    monkeypatch.setenv("ASSAY_VERSION", "1")
    monkeypatch.setenv("ASSAY_LIST_JSON", "1")
    assert "attack" in json.loads(out_of(["list", "attack"], capsys)), "variables mirror flags, but for --version"


def test_a_users_attack_that_fails_is_named(
    digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text("def crash(target, x, y, *, rng):\n    'Fails.'\n    return 1 / 0\n")
    assert run(["eval", digits_model, "--data", "digits/test[:9]", "--suite", "bad.py:crash"]) == 4
    told = capsys.readouterr().err
    assert "bad.py:crash failed: ZeroDivisionError" in told
    assert "Traceback" not in told


def test_weak_or_stray_attacks_are_said_to_be(
    digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text("def far(target, x, y, *, rng, eps: float):\n    'Far.'\n    return 1 - x\n")
    base = ["eval", digits_model, "--data", "digits/test[:30]", "--eps"]
    assert run([*base, "0.1", "--suite", "pgd(steps=5)"]) == 0
    assert "cannot reach the edge of its ball" in capsys.readouterr().err
    for step, short in ((0.3, True), (0.4, False)):  # five that fall add up to three of the first
        assert run([*base, "0.1", "--suite", f"pgd(steps=5, step={step}, falling=true)"]) == 0
        assert ("cannot reach the edge of its ball" in capsys.readouterr().err) == short
    assert run([*base, "0.1", "--suite", "bad.py:far"]) == 0
    assert "left the ball or the bounds and do not count" in capsys.readouterr().err
    assert run([*base, "10", "--suite", "fgsm"]) == 0
    assert "larger than the whole range" in capsys.readouterr().err


def test_a_history_of_another_training_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["train", "mlp", "--data", "digits", "--epochs", "2", "--history", "hist", "--quiet", "--json"]
    out_of([*base, "--out", "a.safetensors"], capsys)
    kept = {p.name: p.read_bytes() for p in (tmp_path / "hist").iterdir()}
    assert run([*base, "--out", "b.safetensors", "--seed", "5", "--keep", "last:1"]) == 4
    assert "seed: 0 there, 5 asked" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in (tmp_path / "hist").iterdir()} == kept


def test_a_run_on_a_folder_or_file_is_repeated_by_its_campaign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    from assay.subjects.data.load import load_data

    part = load_data("digits/train[:60]").cases
    (tmp_path / "deep").mkdir()
    np.savez(tmp_path / "deep" / "d.npz", x=part.x.numpy(), y=part.y.numpy())
    (tmp_path / "net.py").write_text(
        "import torch\ndef net():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    import torch
    from safetensors.torch import save_file

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    base = ["fuzz", "net.py:net@w.safetensors", "--data", "deep/d.npz[:40]", "--mean", "0.3", "--std", "0.4"]
    first = json.loads(out_of([*base, "--set", "seeds=all", "--run", "a", "--json"], capsys))
    config = f"{first['run']}/campaign.toml"
    again = json.loads(out_of(["fuzz", "--config", config, "--run", "b", "--json"], capsys))
    assert first["failures"] == again["failures"] > 0
    shards = [sorted((Path(r["run"]) / "cases").iterdir()) for r in (first, again)]
    assert [p.read_bytes() for p in shards[0]] == [p.read_bytes() for p in shards[1]]


def test_lost_work_is_announced_and_done_again(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["fuzz", digits_model, "--data", "digits/train[:64]", "--eps", "0.4", "--run", "a"]
    first = json.loads(out_of([*base, "--json"], capsys))
    victim = sorted((Path(first["run"]) / "cases").iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:-1] + b"\x00\x01")
    assert run([*base, "--json"]) == 0
    told = capsys.readouterr()
    assert "missing or changed since it was committed" in told.err
    assert json.loads(told.out)["failures"] == first["failures"]


def test_the_size_of_images_is_part_of_a_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np
    from PIL import Image

    for label in ("dark", "light"):
        (tmp_path / "imgs" / label).mkdir(parents=True)
        for i in range(12):
            pixels = np.full((12, 12), 60 + 10 * i if label == "dark" else 255 - 5 * i, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "imgs" / label / f"{i}.png")
    common = ["--size", "8", "--quiet", "--json"]
    out_of(["train", "mlp", "--data", "dir:imgs", "--out", "w.safetensors", "--epochs", "30", *common], capsys)
    base = ["fuzz", "mlp@w.safetensors", "--data", "dir:imgs", "--eps", "0.5", "--run", "a", *common]
    first = json.loads(out_of(base, capsys))
    again = json.loads(out_of(["fuzz", "--config", f"{first['run']}/campaign.toml", "--run", "b", "--json"], capsys))
    assert again["seeds"] == first["seeds"] > 0
    assert again["failures"] == first["failures"]


def test_a_witness_says_whether_failures_are_real(
    digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(tmp_path / "other.safetensors")
    out_of(["train", "mlp", "--data", "digits", "--epochs", "8", "--out", other, "--quiet", "--json"], capsys)
    base = ["fuzz", digits_model, "--data", "digits/train[:80]", "--recipe", "robot", "--quiet", "--run", "w"]
    table = out_of([*base, "--witness", f"mlp@{other}"], capsys)
    assert "still their label for the witness" in table
    assert "change (median)" in table
    told = json.loads(out_of([*base, "--witness", f"mlp@{other}", "--json"], capsys))
    assert 0 < told["quality"]["witness"]["accuracy"] < 1
    assert told["quality"]["witness"]["n"] == told["failures"]
    own = json.loads(out_of([*base, "--witness", digits_model, "--json"], capsys))
    assert own["quality"]["witness"]["accuracy"] == 0, "the model itself is the one they fail on"


def test_the_recipe_in_the_docs_works_as_printed(
    digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    text = (Path(__file__).parents[2] / "docs" / "fuzzing.md").read_text()
    recipe, strategy = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.py").write_text(recipe)
    (tmp_path / "choice.py").write_text(strategy)
    base = ["fuzz", digits_model, "--data", "digits/train[:60]", "--quiet", "--json"]
    told = json.loads(out_of([*base, "--recipe", f"{tmp_path}/mine.py:MINE", "--run", "m"], capsys))
    assert told["failures"] > 0
    assert told["kept"]["rises"] > 0
    chosen = ["--recipe", "dlfuzz", "--set", f"strategy={tmp_path}/choice.py:strong", "--run", "c"]
    assert json.loads(out_of([*base, *chosen], capsys))["failures"] > 0


def test_a_model_without_gradients_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from safetensors.torch import save_file

    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.end = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n        with torch.no_grad():\n            return self.end(x.flatten(1))\n"
        "def net():\n    torch.manual_seed(0)\n    return Net()\n"
    )
    weights = tmp_path / "w.safetensors"
    save_file({"end.weight": torch.zeros(10, 64), "end.bias": torch.zeros(10)}, weights)
    base = [f"{tmp_path}/net.py:net@{weights}", "--data", "digits", "--eps", "0.1", "--quiet"]
    for verb in (["fuzz", *base, "--recipe", "robot"], ["harden", *base, "--recipe", "noise", "--until", "clean>=0.5"]):
        assert run(verb) == 4
        assert "answers carry none" in capsys.readouterr().err
