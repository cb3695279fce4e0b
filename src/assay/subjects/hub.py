"""The Hugging Face hub: files of one commit, and what went wrong in one sentence.

The hub's own settings hold: its cache (HF_HOME), its mirror (HF_ENDPOINT), no network (HF_HUB_OFFLINE=1), its token.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from assay.core.cache import cache_folder
from assay.core.errors import AssayError, UsageError
from assay.core.extras import needed
from assay.core.files import sha256, write_atomic
from assay.subjects.sources.patience import printable

MODEL, DATASET = "model", "dataset"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SITES = ("httpx", "httpx2", "httpcore", "requests", "urllib3", "aiohttp", "urllib")


def snapshot(repo: str, revision: str, patterns: Sequence[str], kind: str = MODEL) -> Path:
    """The folder with those files of the repository, fetched where they are not in the cache.

    It is named after the commit that the revision means.
    """
    hub = needed("huggingface_hub", "hub", repo)
    with asked(repo, revision, kind), _bars_for_people(needed("huggingface_hub.utils", "hub", repo)):
        told = hub.snapshot_download(repo, revision=revision or None, allow_patterns=list(patterns), repo_type=kind)
    return Path(told)


@contextmanager
def _bars_for_people(words: Any) -> Iterator[None]:
    """The library's own bars on a terminal only: weights may take minutes, and in a file bars are noise."""
    quiet = not sys.stderr.isatty() and not words.are_progress_bars_disabled()
    if quiet:
        words.disable_progress_bars()
    try:
        yield
    finally:
        if quiet:
            words.enable_progress_bars()


def commit_of(repo: str, revision: str, kind: str = MODEL) -> str:
    """The commit that a revision means now, or meant when it was last fetched where there is no network."""
    hub = needed("huggingface_hub", "hub", repo)
    if is_offline():
        return _noted(repo, revision, kind)
    with asked(repo, revision, kind):
        try:
            told = hub.HfApi().repo_info(repo, revision=revision or None, repo_type=kind, timeout=20)
        except Exception as error:
            if not _is_network(error):
                raise
            return _noted(repo, revision, kind, error)
    sha = str(told.sha or "")
    if not sha:
        raise UsageError(f"the hub does not say which commit {repo} is at; name one: {repo}@COMMIT")
    _note(repo, revision, kind, sha)
    return sha


def is_offline() -> bool:
    """Whether the hub's library was told to stay off the network."""
    return bool(needed("huggingface_hub.constants", "hub", "this").HF_HUB_OFFLINE)


def _noted(repo: str, revision: str, kind: str, error: Exception | None = None) -> str:
    """The commit that the cache has noted for a revision."""
    constants = needed("huggingface_hub.constants", "hub", repo)
    root = Path(constants.HF_HUB_CACHE) / f"{kind}s--{repo.replace('/', '--')}"
    # The library notes a branch where files were asked for by it, we where its commit was: the later one holds.
    notes = [path for path in (root / "refs" / (revision or "main"), _place(repo, revision, kind)) if path.is_file()]
    if notes:
        sha = max(notes, key=lambda path: path.stat().st_mtime).read_bytes()[:64].decode("ascii", "replace").strip()
        if _COMMIT.fullmatch(sha):
            return sha
    if revision and (root / "snapshots" / revision).is_dir():
        return revision
    why = "HF_HUB_OFFLINE is set" if error is None else f"the hub cannot be reached ({_first(error)})"
    raise UsageError(
        f"{_at(repo, revision)} is not in the cache of the hub, and {why}; fetch it where there is a network, "
        "or name a folder: hf:./folder"
    )


def _note(repo: str, revision: str, kind: str, sha: str) -> None:
    """Keep what a revision meant, for when there is no network; where nothing can be kept, that is all that is lost."""
    place = _place(repo, revision, kind)
    with suppress(OSError, AssayError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, f"{sha}\n".encode())


def _place(repo: str, revision: str, kind: str) -> Path:
    name = f"{repo}@{revision or 'main'}"
    return cache_folder() / "hub" / f"{kind}-{sha256(name.encode())[:32]}"


@contextmanager
def asked(repo: str, revision: str = "", kind: str = MODEL) -> Iterator[None]:
    """Around what asks the hub: an error of its library is told in one sentence."""
    try:
        yield
    except AssayError:
        raise
    except Exception as error:  # its libraries raise what theirs do
        raise _told(error, repo, revision, kind) from error


def _told(error: Exception, repo: str, revision: str, kind: str) -> Exception:
    names = {c.__name__ for c in type(error).__mro__}
    where = _at(repo, revision)
    word = "data set" if kind == DATASET else "model"
    if "GatedRepoError" in names:
        return UsageError(f"{repo} is gated: ask for access on its page, then log in (hf auth login) or set HF_TOKEN")
    if "RevisionNotFoundError" in names:
        return UsageError(f"{repo} has no revision {revision!r}; see the branches, tags and commits on its page")
    if names & {"RepositoryNotFoundError", "DatasetNotFoundError"} and not _is_network(error):
        return UsageError(
            f"there is no {word} {repo} on the hub, or it is private: look at the name; for a private one set HF_TOKEN"
        )
    if names & {"OfflineModeIsEnabled"} or ("LocalEntryNotFoundError" in names and is_offline()):
        return UsageError(
            f"{where} is not wholly in the cache of the hub, and HF_HUB_OFFLINE is set; "
            "fetch it where there is a network"
        )
    if _is_network(error):
        return UsageError(
            f"{where} is not in the cache of the hub, and the hub cannot be reached ({_first(error)}); "
            "look at the network, or name a folder: hf:./folder"
        )
    if "EntryNotFoundError" in names:
        return UsageError(f"{where} lacks a file that is wanted: {_first(error)}")
    return UsageError(f"{where} cannot be loaded: {_first(error)}")


def _at(repo: str, revision: str) -> str:
    return f"{repo}@{revision}" if revision else repo


def _is_network(error: BaseException) -> bool:
    """Whether nobody answered, or not with an answer: then the cache is asked."""
    seen: BaseException | None = error
    while seen is not None:
        names = {c.__name__ for c in type(seen).__mro__}
        if names & {"RepositoryNotFoundError", "RevisionNotFoundError", "RemoteEntryNotFoundError"}:
            return False
        code = getattr(getattr(seen, "response", None), "status_code", None)
        if isinstance(code, int):
            return code >= 500 or code == 429
        if isinstance(seen, (ConnectionError, TimeoutError)) or "LocalEntryNotFoundError" in names:
            return True
        if type(seen).__module__.split(".")[0] in _SITES:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _first(error: BaseException) -> str:
    """The first line that says something."""
    lines: list[Any] = [line.strip() for line in str(error).splitlines() if line.strip()]
    return printable(lines[0] if lines else type(error).__name__)
