"""Image folders with hostile files: left out and listed, within a stated memory; refused where nothing else is."""

from pathlib import Path

import pytest

from assay.core.errors import PASSED, USAGE
from assay.subjects.data.folder import MAX_PIXELS
from bad_images import BAD, GOOD, folder_of, pixels, saved, text_bomb
from commands import MEASURED, Nursery

CAP = 12 * MAX_PIXELS  # bytes of one image while it is read: decoded, turned and converted, 4 bytes a pixel each


@pytest.fixture(scope="module")
def model(home: Nursery, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A net of two classes of 8×8 colour images."""
    place = tmp_path_factory.mktemp("net")
    root = folder_of(place / "images", {f"{i}.png": saved(pixels(i), "PNG") for i in range(12)})
    for i in range(12):
        (root / "b" / f"{i}.png").write_bytes(saved(pixels(100 + i), "PNG"))
    weights = str(place / "w.safetensors")
    home.run("train", "mlp", "--data", f"dir:{root}", "--out", weights, "--epochs", "1", "--quiet").ended(PASSED)
    return f"mlp@{weights}"


def asked(model: str, root: Path) -> tuple[str, ...]:
    return ("eval", model, "--data", f"dir:{root}", "--size", "8", "--suite", "fgsm", "--eps", "0.1")


def test_bad_files_are_left_out_and_listed(home: Nursery, model: str, tmp_path: Path) -> None:
    root = folder_of(tmp_path / "mixed", BAD | {name: make() for name, make in GOOD.items()})
    (root / "b" / "one.png").write_bytes(saved(pixels(5), "PNG"))
    (root / "a" / "pipe.png").unlink(missing_ok=True)
    file = tmp_path / "memory"
    clean = folder_of(tmp_path / "clean", {"x.png": saved(pixels(), "PNG")})
    (clean / "b" / "one.png").write_bytes(saved(pixels(5), "PNG"))
    home.run(*asked(model, clean), before=MEASURED.format(file=str(file))).ended(PASSED)
    ordinary = int(file.read_text())
    done = home.run(*asked(model, root), before=MEASURED.format(file=str(file))).ended(PASSED)
    memory = int(file.read_text())
    assert f"{len(BAD)} files could not be read" in done.err
    for name in BAD:
        assert repr(f"a/{name}") in done.err, name
    for name in GOOD:
        assert repr(f"a/{name}") not in done.err, name
    assert f"n={len(GOOD) + 1}" in done.out
    assert memory - ordinary < CAP
    assert memory - ordinary < 100 << 20  # and none of these comes near it


@pytest.mark.parametrize("verb", ["eval", "fuzz", "train"])
def test_only_bad_files_are_refused(home: Nursery, model: str, verb: str, tmp_path: Path) -> None:
    root = folder_of(tmp_path / "bad", BAD)
    data = ("--data", f"dir:{root}", "--size", "8")
    given = {
        "eval": ("eval", model, *data, "--suite", "fgsm", "--eps", "0.1"),
        "fuzz": ("fuzz", model, *data, "--run", "x"),
        "train": ("train", "mlp", *data, "--out", "w.safetensors"),
    }[verb]
    home.run(*given).ended(USAGE, str(root), "unreadable", "huge-header.png", "PNG, JPEG, WebP or BMP")
    assert not Path("runs").exists()
    assert not Path("w.safetensors").exists()


def test_the_largest_picture_that_is_read_stays_under_the_cap(home: Nursery, model: str, tmp_path: Path) -> None:
    """Fifty million pixels are read, one more row is not."""
    from PIL import Image

    file = tmp_path / "memory"
    root = folder_of(tmp_path / "large", {"large.png": saved(Image.new("RGB", (10_000, 5_000)), "PNG")})
    (root / "a" / "larger.png").write_bytes(saved(Image.new("RGB", (10_000, 5_001)), "PNG"))
    (root / "b" / "one.png").write_bytes(saved(pixels(5), "PNG"))
    done = home.run(*asked(model, root), before=MEASURED.format(file=str(file))).ended(PASSED, "n=2")
    assert "10000×5001 is over the limit" in done.err
    assert int(file.read_text()) < CAP + (1 << 30)  # torch and we ourselves take less than the gigabyte


def test_many_large_pictures_do_not_fill_the_memory(home: Nursery, model: str, tmp_path: Path) -> None:
    """Each of one colour and small on disk: one is read, and the next is one too many."""
    from PIL import Image

    file = tmp_path / "memory"
    large = saved(Image.new("RGB", (7_000, 7_000)), "PNG")
    root = folder_of(tmp_path / "many", {f"{number}.png": large for number in range(6)})
    done = home.run("eval", model, "--data", f"dir:{root}", "--eps", "0.1", before=MEASURED.format(file=str(file)))
    done.ended(USAGE, "over 100 times", "--size")
    assert int(file.read_text()) < CAP + (1 << 30)


def test_packed_comments_are_not_unpacked(home: Nursery, model: str, tmp_path: Path) -> None:
    file = tmp_path / "memory"
    root = folder_of(tmp_path / "text", {"text.png": text_bomb()})
    (root / "b" / "one.png").write_bytes(saved(pixels(5), "PNG"))
    home.run(*asked(model, root), before=MEASURED.format(file=str(file))).ended(PASSED)


def test_links_are_told_of_and_pipes_left_out(home: Nursery, model: str, tmp_path: Path) -> None:
    import os

    private = folder_of(tmp_path / "private", {"secret.png": saved(pixels(9), "PNG")})
    root = folder_of(tmp_path / "data", {"x.png": saved(pixels(), "PNG")})
    (root / "b" / "one.png").write_bytes(saved(pixels(5), "PNG"))
    (root / "b" / "link.png").symlink_to(private / "a" / "secret.png")
    (root / "b" / "inside.png").symlink_to(root / "a" / "x.png")
    (root / "b" / "folder").symlink_to(private / "a")
    (root / "b" / "round").symlink_to(root / "b")
    os.mkfifo(root / "b" / "pipe.png")
    done = home.run("eval", model, "--data", f"dir:{root}", "--suite", "fgsm", "--eps", "0.1").ended(PASSED, "n=4")
    told = next(line for line in done.err.splitlines() if "lead out of the folder" in line)
    assert "'b/link.png'" in told
    assert "inside.png" not in told
    assert "'b/pipe.png': no regular file" in done.err
