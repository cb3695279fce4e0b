"""Image folders, with friendly and hostile files."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from assay.core.errors import NothingToTest, UsageError
from assay.subjects.bench import Data, Splits
from assay.subjects.data import folder
from assay.subjects.data.folder import from_folder

Array = np.ndarray[Any, Any]

GREY = (np.arange(48, dtype=np.uint8) * 5).reshape(6, 8)
COLOUR = np.stack([GREY, 255 - GREY, np.full_like(GREY, 7)], -1)


def only(splits: Splits) -> Data:
    """The one set of a folder that has no parts."""
    assert splits.whole is not None
    return splits.whole


def put(path: Path, pixels: Array, mode: str | None = None, **settings: Any) -> Path:
    """Save an image, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **settings)
    return path


def with_good(root: Path, bad: Path, content: bytes) -> None:
    """A folder with one good grey image and one file of that content."""
    put(root / "a" / "good.png", GREY)
    bad.parent.mkdir(parents=True, exist_ok=True)
    bad.write_bytes(content)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_head(width: int, height: int) -> bytes:
    """A PNG that declares a size and holds next to nothing."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


def test_classes_are_the_sub_folders_in_order(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    for i, name in enumerate(("zebra", "ant", "mule")):
        put(tmp_path / "d" / name / "1.png", np.full((6, 8), i, np.uint8))
        put(tmp_path / "d" / name / "2.png", np.full((6, 8), 10 + i, np.uint8))
    data = only(from_folder(tmp_path / "d"))
    assert data.spec.classes == ("ant", "mule", "zebra")
    assert data.cases.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert (data.cases.x[:, 0, 0, 0] * 255).round().tolist() == [1, 11, 2, 12, 0, 10]
    assert "classes 0='ant', 1='mule', 2='zebra'" in notices.text


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".bmp"])
def test_lossless_formats_give_the_exact_pixels(suffix: str, tmp_path: Path) -> None:
    put(tmp_path / "a" / f"grey{suffix}", GREY)
    put(tmp_path / "b" / f"grey{suffix}", 255 - GREY)
    cases = only(from_folder(tmp_path)).cases
    assert np.array_equal((cases.x[:, 0] * 255).round().numpy(), np.stack([GREY, 255 - GREY]))


def test_lossless_webp_gives_the_exact_pixels(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.webp", COLOUR, lossless=True)
    cases = only(from_folder(tmp_path)).cases
    assert np.array_equal((cases.x[0] * 255).round().numpy(), COLOUR.transpose(2, 0, 1))


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".JPG"])
def test_jpeg_is_close(suffix: str, tmp_path: Path) -> None:
    put(tmp_path / "a" / f"1{suffix}", np.full((6, 8, 3), 100, np.uint8), quality=95)
    cases = only(from_folder(tmp_path)).cases
    assert cases.x.shape == (1, 3, 6, 8)
    assert ((cases.x * 255 - 100).abs() < 3).all()


def test_grey_among_colour_gets_three_equal_channels(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a" / "1.png", GREY)
    put(tmp_path / "b" / "1.png", COLOUR)
    cases = only(from_folder(tmp_path)).cases
    expected = np.stack([np.stack([GREY] * 3), COLOUR.transpose(2, 0, 1)])
    assert np.array_equal((cases.x * 255).round().numpy(), expected)
    assert "grey images among colour ones were given three equal channels" in notices.text


def test_all_grey_stays_one_channel(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.png", GREY)
    put(tmp_path / "a" / "2.png", GREY, "LA")
    put(tmp_path / "b" / "3.png", GREY, "1")
    assert only(from_folder(tmp_path)).spec.shape == (1, 6, 8)


def test_palette_and_alpha_become_colour(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.png", np.full((6, 8, 3), (10, 200, 30), np.uint8), "P")
    put(tmp_path / "a" / "2.png", np.full((6, 8, 3), (10, 200, 30), np.uint8), "RGBA")
    cases = only(from_folder(tmp_path)).cases
    assert cases.x.shape == (2, 3, 6, 8)
    assert torch.equal((cases.x[1, :, 0, 0] * 255).round(), torch.tensor([10.0, 200.0, 30.0]))
    assert ((cases.x[0, :, 0, 0] * 255) - torch.tensor([10.0, 200.0, 30.0])).abs().max() <= 26  # one of 216 colours


def test_cmyk_jpeg_becomes_colour(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.jpg", np.full((8, 8, 3), (250, 5, 5), np.uint8), "CMYK", quality=95)
    cases = only(from_folder(tmp_path)).cases
    assert cases.x.shape == (1, 3, 8, 8)
    red, green, blue = cases.x[0, :, 4, 4].tolist()
    assert red > 0.9
    assert green < 0.1
    assert blue < 0.1


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_exif_rotation_is_undone(orientation: int, tmp_path: Path) -> None:
    turns = {3: 2, 6: 3, 8: 1}[orientation]  # quarter turns against the clock that the viewer makes
    exif = Image.Exif()
    exif[0x0112] = orientation
    put(tmp_path / "a" / "1.png", GREY, exif=exif)
    cases = only(from_folder(tmp_path)).cases
    assert np.array_equal((cases.x[0, 0] * 255).round().numpy(), np.rot90(GREY, turns))


def test_nested_folders_belong_to_the_class_and_hidden_files_to_nobody(tmp_path: Path) -> None:
    put(tmp_path / "a" / "deep" / "er" / "1.png", GREY)
    put(tmp_path / "b" / "1.png", GREY)
    (tmp_path / "b" / ".DS_Store").write_bytes(b"x")
    (tmp_path / ".git").mkdir()
    data = only(from_folder(tmp_path))
    assert data.spec.classes == ("a", "b")
    assert data.cases.y.tolist() == [0, 1]


@pytest.mark.parametrize("suffix", [".webp", ".png"])
def test_animations_are_left_out_and_listed(suffix: str, tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a" / "good.png", GREY)
    frames = [Image.fromarray(255 - COLOUR)]
    put(tmp_path / "a" / f"moving{suffix}", COLOUR, save_all=True, append_images=frames)
    assert len(only(from_folder(tmp_path))) == 1
    assert f"'a/moving{suffix}': animated" in notices.text


def test_sixteen_bits_are_left_out_and_listed(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a" / "good.png", GREY)
    put(tmp_path / "a" / "deep.png", GREY.astype(np.uint16) * 256)
    assert len(only(from_folder(tmp_path))) == 1
    assert "'a/deep.png': more than 8 bits a channel; convert to 8 bit" in notices.text


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.png", b"", "cannot identify image file"),
        ("page.png", b"<!DOCTYPE html><html></html>", "cannot identify image file"),
        ("drawing.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not one of .png, .jpg, .jpeg, .webp, .bmp"),
        ("drawing.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "cannot identify image file"),
        ("stars.fits", b"SIMPLE  =                    T", "not one of"),
        ("stars.png", b"SIMPLE  =                    T".ljust(2880), "cannot identify image file"),
        ("notes.txt", b"hello", "not one of"),
        ("noend", b"hello", "not one of"),
        ("huge.png", png_head(50_000, 50_000), "exceeds limit"),
        ("big.png", png_head(8_000, 8_000), "8000×8000 is over the limit of 50000000 pixels"),
        ("short.png", png_head(6, 8)[:40], "cannot identify image file"),
    ],
)
def test_bad_files_are_left_out_and_listed(
    name: str, content: bytes, reason: str, tmp_path: Path, notices: pytest.LogCaptureFixture
) -> None:
    with_good(tmp_path, tmp_path / "a" / name, content)
    data = only(from_folder(tmp_path))
    assert len(data) == 1
    assert f"{tmp_path}: 1 files could not be read and were left out:\n  'a/{name}': " in notices.text
    assert reason in notices.text


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_truncated_files_are_left_out(
    suffix: str, share: float, tmp_path: Path, notices: pytest.LogCaptureFixture
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    content = put(tmp_path / f"whole{suffix}", noise).read_bytes()
    with_good(tmp_path / "d", tmp_path / "d" / "a" / f"cut{suffix}", content[: int(len(content) * share)])
    assert len(only(from_folder(tmp_path / "d"))) == 1
    assert f"'a/cut{suffix}': " in notices.text


def test_a_gif_by_another_name_is_not_decoded(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    content = put(tmp_path / "one.gif", GREY).read_bytes()
    with_good(tmp_path / "d", tmp_path / "d" / "a" / "gif.png", content)
    assert len(only(from_folder(tmp_path / "d"))) == 1
    assert "'a/gif.png': cannot identify image file" in notices.text


def test_the_pixel_limit_holds_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "a" / "small.png", GREY)
    put(tmp_path / "a" / "large.png", np.zeros((7, 7), np.uint8))
    monkeypatch.setattr(folder, "MAX_PIXELS", 48)
    assert len(only(from_folder(tmp_path))) == 1
    assert "'a/large.png': 7×7 is over the limit of 48 pixels" in notices.text


def test_a_long_list_of_bad_files_is_cut(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a" / "good.png", GREY)
    for i in range(25):
        (tmp_path / "a" / f"bad{i:02d}.png").write_bytes(b"")
    assert len(only(from_folder(tmp_path))) == 1
    assert "25 files could not be read" in notices.text
    assert "bad19.png" in notices.text
    assert "bad20.png" not in notices.text
    assert "… and 5 more" in notices.text


def test_only_bad_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"")
    (tmp_path / "a" / "2.jpg").write_bytes(b"zero")
    with pytest.raises(UsageError, match="all 2 files are unreadable"):
        from_folder(tmp_path)


def test_differing_sizes_need_one(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.png", GREY)
    put(tmp_path / "b" / "1.png", GREY.T.copy())
    with pytest.raises(UsageError, match=r"images differ in size \(6x8, 8x6\); give --size HxW"):
        from_folder(tmp_path)
    data = only(from_folder(tmp_path, (6, 8)))
    assert data.spec.shape == (1, 6, 8)
    assert np.array_equal((data.cases.x[0, 0] * 255).round().numpy(), GREY)


def test_size_is_height_then_width(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.png", np.full((9, 9, 3), 40, np.uint8))
    data = only(from_folder(tmp_path, (5, 7)))
    assert data.spec.shape == (3, 5, 7)
    assert torch.equal(data.cases.x, torch.full((1, 3, 5, 7), 40 / 255))


def test_part_folders_are_parts_with_shared_classes(tmp_path: Path) -> None:
    for part, classes in (("train", "abc"), ("val", "ab"), ("test", "bc")):
        for name in classes:
            put(tmp_path / part / name / "1.png", GREY)
    splits = from_folder(tmp_path)
    assert [splits.part(part).cases.y.tolist() for part in ("train", "val", "test")] == [[0, 1, 2], [0, 1], [1, 2]]
    assert {splits.part(part).spec.classes for part in ("train", "val", "test")} == {("a", "b", "c")}


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    put(tmp_path / "train" / "a" / "1.png", GREY)
    with pytest.raises(UsageError, match="has no part 'test'; it has train"):
        from_folder(tmp_path).part("test")


def test_parts_of_differing_shape_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "train" / "a" / "1.png", GREY)
    put(tmp_path / "test" / "a" / "1.png", GREY.T.copy())
    with pytest.raises(UsageError, match=r"differ in shape \(train \(1, 6, 8\), test \(1, 8, 6\)\); give --size HxW"):
        from_folder(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such folder: .*none"):
        from_folder(tmp_path / "none")


def test_a_folder_without_classes_is_nothing_to_test(tmp_path: Path) -> None:
    put(tmp_path / "loose.png", GREY)
    with pytest.raises(NothingToTest, match="has no sub-folders; expected one folder of images per class"):
        from_folder(tmp_path)


def test_empty_classes_are_nothing_to_test(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(NothingToTest, match="no images"):
        from_folder(tmp_path)


HOSTILE = [
    "<script>alert(1)<script>",
    "=cmd|' _C calc'!A0",
    "\x1b[31mred",
    "two\nlines",
    "{{7*7}}",
    "CON",
    "\u202eright to left",
    "😀" * 50,
    "x" * 200,
    "~",
    "$(touch canary)",
    "a%sb%n",
]


def test_class_names_are_data_and_nothing_else(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    for name in HOSTILE:
        put(tmp_path / "d" / name / "1.png", GREY)
    before = sorted(tmp_path.rglob("*"))
    data = only(from_folder(tmp_path / "d"))
    assert data.spec.classes == tuple(sorted(HOSTILE))
    assert sorted(tmp_path.rglob("*")) == before
    told = next(record.getMessage() for record in notices.records if "classes" in record.getMessage())
    assert "\x1b" not in told
    assert "\n" not in told
    assert "\u202e" not in told


def test_links_to_files_are_followed_and_broken_ones_are_not(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "1.png", GREY)
    (tmp_path / "d" / "a").mkdir(parents=True)
    (tmp_path / "d" / "a" / "link.png").symlink_to(tmp_path / "elsewhere" / "1.png")
    (tmp_path / "d" / "a" / "broken.png").symlink_to(tmp_path / "nowhere.png")
    assert len(only(from_folder(tmp_path / "d"))) == 1


@pytest.mark.parametrize("width", [1, 3, 4])
@pytest.mark.parametrize("colour", [False, True])
def test_narrow_images_have_one_reading(width: int, colour: bool, tmp_path: Path) -> None:
    pixels = COLOUR[:, :width] if colour else GREY[:, :width]
    put(tmp_path / "a" / "1.png", np.ascontiguousarray(pixels))
    cases = only(from_folder(tmp_path)).cases
    expected = pixels.transpose(2, 0, 1) if colour else pixels[None]
    assert np.array_equal((cases.x[0] * 255).round().numpy(), expected)


def test_a_file_name_cannot_forge_a_line(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a" / "good.png", GREY)
    (tmp_path / "a" / "x\n  'good.png': animated\x1b[31m.png").write_bytes(b"")
    assert len(only(from_folder(tmp_path))) == 1
    told = next(record.getMessage() for record in notices.records if "could not be read" in record.getMessage())
    assert len(told.split("\n")) == 2
    assert "\x1b" not in told


def deep_png(colour: int, channels: int) -> bytes:
    """A PNG of 2×2 pixels with 16 bits a channel."""
    head = struct.pack(">IIBBBBB", 2, 2, 16, colour, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress((b"\0" + bytes(range(2 * channels * 2))) * 2))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_sixteen_bits_are_left_out_whatever_the_colours(
    colour: int, channels: int, tmp_path: Path, notices: pytest.LogCaptureFixture
) -> None:
    with_good(tmp_path, tmp_path / "a" / "deep.png", deep_png(colour, channels))
    assert len(only(from_folder(tmp_path))) == 1
    assert "'a/deep.png': more than 8 bits a channel; convert to 8 bit" in notices.text


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for name in ("bus", "test", "train"):
        put(tmp_path / name / "1.png", GREY)
    data = only(from_folder(tmp_path))
    assert data.spec.classes == ("bus", "test", "train")
    assert data.cases.y.tolist() == [0, 1, 2]


def test_loose_images_are_warned_about(tmp_path: Path, notices: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a" / "1.png", GREY)
    put(tmp_path / "loose.png", GREY)
    put(tmp_path / "loose.JPG", GREY)
    (tmp_path / "readme.txt").write_text("no image")
    assert len(only(from_folder(tmp_path))) == 1
    assert f"{tmp_path}: 2 images lie in no class folder and were left out" in notices.text


def test_the_first_of_two_frames_of_a_phone_s_jpeg_is_read(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.full((8, 8, 3), level, np.uint8)) for level in (100, 200)]
    (tmp_path / "a").mkdir()
    frames[0].save(tmp_path / "a" / "1.jpg", format="MPO", save_all=True, append_images=frames[1:], quality=95)
    cases = only(from_folder(tmp_path)).cases
    assert cases.x.shape == (1, 3, 8, 8)
    assert ((cases.x * 255 - 100).abs() < 3).all()
