"""Files that go to an object store when they are made: made once, however often the store has to be asked."""

from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import StorageError, UsageError
from assay.core.remote import Objects
from assay.core.remote_files import going_to
from assay.engines.train import train
from far import THERE, Move

WEIGHTS = "memory://lab/models/w.safetensors"
FILE = "memory://lab/out.bin"


def away(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let nothing be written to the store."""

    def put(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Objects, "put", put)


def made(content: bytes, url: str = FILE, *, anew: bool = False) -> bool:
    """Make the file as a command would; whether there was anything to do."""
    with going_to(url, anew=anew) as path:
        if path.exists():
            return False
        path.write_bytes(content)
        return True


def trained(**options: Any) -> list[float]:
    """Train into the store; the epochs that were worked for it."""
    worked: list[float] = []

    def progress(told: Any) -> None:
        worked.append(told["epoch"])

    train("lenet1", "digits", WEIGHTS, params={"epochs": 1, "batch": 512}, progress=progress, **options)
    return worked


def test_a_training_that_could_not_be_sent_is_sent_and_not_done_again(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as gone:
        away(gone, StorageError("cannot write: it is away"))
        with pytest.raises(
            StorageError, match=r"is away\. The file is finished and kept in .*w\.safetensors: the same"
        ):
            trained()
    assert Objects(WEIGHTS).read("") is None
    assert trained() == []
    sent = Objects(WEIGHTS).read("")
    assert sent is not None
    assert trained() == []
    move(THERE)
    assert trained(overwrite=True) != []


def test_access_that_is_refused_stays_a_usage_error(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as gone:
        away(gone, UsageError("access was refused"))
        with pytest.raises(UsageError, match=r"access was refused.*without --overwrite"):
            made(b"one")
    assert not made(b"two")
    assert Objects(FILE).read("") == b"one"


def test_a_kill_before_the_file_is_sent(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as gone:
        away(gone, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            made(b"one")
    assert not made(b"two")
    assert Objects(FILE).read("") == b"one"


def test_what_replaces_another_one_is_sent_later_too(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    made(b"old")
    with monkeypatch.context() as gone:
        away(gone, StorageError("away"))
        with pytest.raises(StorageError):
            made(b"new", anew=True)
    assert Objects(FILE).read("") == b"old"
    assert not made(b"newer")
    assert Objects(FILE).read("") == b"new"


def test_anew_is_anew(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as gone:
        away(gone, StorageError("away"))
        with pytest.raises(StorageError):
            made(b"one")
    assert made(b"two", anew=True)
    assert Objects(FILE).read("") == b"two"


@pytest.mark.parametrize("same", [True, False])
def test_what_others_wrote_meanwhile_is_met_and_ours_is_kept(
    same: bool, move: Move, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as gone:
        away(gone, StorageError("away"))
        with pytest.raises(StorageError):
            made(b"ours")
    Objects(FILE).put("", b"ours" if same else b"theirs")
    with going_to(FILE) as path:
        assert path.read_bytes() == (b"ours" if same else b"theirs")
        kept = path.with_name("out.unsent.bin")
    assert Objects(FILE).read("") == (b"ours" if same else b"theirs")
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == (
        [] if same else [f"{FILE} was written by others since; what was made here is kept in {kept}"]
    )
    assert kept.exists() is not same
    assert same or kept.read_bytes() == b"ours"


def test_work_that_was_stopped_sends_nothing(move: Move) -> None:
    def stopped() -> Path:
        with going_to(FILE) as path:
            path.with_name("out.state").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert Objects(FILE).read("") is None
    with going_to(FILE) as path:
        assert not path.exists()
        assert path.with_name("out.state").read_bytes() == b"half"
    assert Objects(FILE).read("") is None
