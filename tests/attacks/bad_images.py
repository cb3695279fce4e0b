"""Image files that lie about their size, hold more than they should, or are something else."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def pixels(seed: int = 0, side: int = 8, channels: int = 3) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 255, (side, side, channels), np.uint8))


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def png(width: int, height: int, body: bytes, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG that says it has that size, whatever its body holds."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """A small picture with a comment that unpacks to a hundred megabytes."""
    whole = saved(pixels(), "PNG")
    packed = zlib.compress(bytes(100 << 20))
    content = b"zTXtComment\0\0" + packed
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    return whole[:33] + chunk + whole[33:]


BAD: dict[str, bytes] = {
    "huge-header.png": png(50_000, 50_000, b""),
    "bomb.png": png(30_000, 30_000, zlib.compress(bytes(30_000 * 3 + 1) * 40)),
    "short.png": png(3_000, 3_000, zlib.compress(b"\0")),
    "truncated.jpg": saved(pixels(side=64), "JPEG")[:400],
    "animated.webp": saved(pixels(1), "WEBP", save_all=True, append_images=[pixels(2), pixels(3)]),
    "animated.gif": saved(pixels(1), "GIF", save_all=True, append_images=[pixels(2)]),
    "gif-as.png": saved(pixels(1), "GIF"),
    "tiff-as.jpg": saved(pixels(1), "TIFF"),
    "deep.png": png(8, 8, zlib.compress(bytes(8 * (1 + 8 * 6))), depth=16),
    "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    "svg-as.png": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "stars.fits": b"SIMPLE  =                    T" + b" " * 2850,
    "page.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(/etc/passwd) (r) file\n",
    "eps-as.bmp": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n",
    "empty.png": b"",
    "wide.bmp": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 65535, 65535, 1, 24, *[0] * 6),
    "noise.webp": b"RIFF\xff\xff\xff\xffWEBPVP8 " + bytes(100),
}
GOOD: dict[str, Callable[[], bytes]] = {
    "cmyk.jpg": lambda: saved(pixels().convert("CMYK"), "JPEG"),
    "palette.png": lambda: saved(pixels().convert("P"), "PNG"),
    "alpha.png": lambda: saved(pixels(channels=4), "PNG"),
    "plain.bmp": lambda: saved(pixels(), "BMP"),
    "plain.webp": lambda: saved(pixels(), "WEBP"),
    "dot.png": lambda: saved(pixels(side=1), "PNG"),
    "rotated.jpg": lambda: saved(pixels(), "JPEG", exif=_turned()),
}


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def folder_of(root: Path, files: dict[str, bytes]) -> Path:
    """A folder of two classes, the files in the first and one sound picture in the second."""
    (root / "a").mkdir(parents=True)
    (root / "b").mkdir()
    for name, content in files.items():
        (root / "a" / name).write_bytes(content)
    return root
