"""What ``make audit`` looks at: known holes in what we stand on, pins, licences, and dangerous calls in our own source.

Offline it needs nothing but the table below. Where pip-audit is installed and its advisory service answers, that is
asked as well; a service that cannot be reached is said, not counted as a finding. Exit 1 where anything is found.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Package, first version without the hole, advisory, why it matters to us. As told by projects that upgraded for them
# (issues and pull requests on GitHub that name the id and the version, looked up 2026-11); the source is the id.
HOLES = (
    ("torch", "2.6", "CVE-2025-32434", "code execution by torch.load(weights_only=True)"),
    ("torch", "2.10", "CVE-2026-24747", "memory corruption by the weights-only unpickler (GHSA-63cw-57p8-fm3p)"),
    ("pillow", "10.3", "CVE-2024-28219", "overflow in ImageCms"),
    ("pillow", "12.1.1", "CVE-2026-25990", "write out of bounds when loading PSD, which we do not decode"),
    ("pillow", "12.2", "GHSA-wjx4-4jcj-g98j", "overflow in text layout, which we do not use"),
    ("jinja2", "3.1.5", "CVE-2024-56326", "sandbox breakout by str.format"),
    ("jinja2", "3.1.6", "CVE-2025-27516", "sandbox breakout by attr"),
    ("onnx", "1.21", "CVE-2026-27489", "external data outside of the model's folder"),
    ("onnx", "1.21", "CVE-2026-34447", "external data through symbolic links (GHSA-p433-9wv8-28xj)"),
    ("requests", "2.32.4", "CVE-2024-47081", "netrc credentials sent to another host (peers only)"),
    ("urllib3", "2.5", "CVE-2025-50181", "redirects followed where they were switched off (peers only)"),
    ("urllib3", "2.6", "CVE-2025-66471", "packed answers unpacked without bound (peers only)"),
    ("setuptools", "78.1.1", "CVE-2025-47273", "path traversal in package_index (peers only)"),
)
LICENCES = re.compile(
    r"\b(MIT(-CMU)?|(0|new |modified )?BSD|Apache|ISC|PSF|Python Software|HPND|MPL|Unlicense)\b", re.IGNORECASE
)
LOOKED_UP = {"huey": "MIT, by its text", "skops": "MIT, by its text"}  # their metadata name none; both come with MLflow
UNFREE = re.compile(r"\bA?GPL|\bnot permitted\b|proprietary|commercial", re.IGNORECASE)

# Calls that run code or a shell, by their full names whatever a file imports them as; each place where one is meant
# stands below with its reason.
DANGEROUS = {
    "eval": "runs text",
    "exec": "runs text",
    "compile": "makes code of text",
    "__import__": "imports by text",
    "builtins.*": "may run text",
    "importlib.import_module": "imports by text",
    "runpy.*": "runs a file",
    "code.*": "runs text",
    "pickle.*": "runs code",
    "shelve.*": "runs code",
    "marshal.*": "makes code of bytes",
    "dill.*": "runs code",
    "cloudpickle.*": "runs code",
    "joblib.*": "runs code",
    "yaml.load": "runs code",
    "yaml.unsafe_load": "runs code",
    "os.system": "a shell",
    "os.popen": "a shell",
    "os.exec*": "a program",
    "os.spawn*": "a program",
    "os.posix_spawn*": "a program",
    "pty.*": "a program",
    "subprocess.*": "a program",
    "multiprocessing.*": "pickles between processes",
    "torch.load": "runs code unless weights_only",
    "torch.jit.load": "a program",
    "torch.hub.*": "runs code from the network",
    "numpy.load": "runs code where pickles are allowed",
    "tempfile.mktemp": "a name that another may take first",
    "markupsafe.Markup": "markup that is not escaped",
    "jinja2.Markup": "markup that is not escaped",
    "*.exec_module": "runs a file",
}
MEANT = {
    ("__init__.py", "importlib.import_module"): "our own modules, by a table",
    ("core/registry.py", "importlib.import_module"): "our own stages, by the folder they lie in",
    ("stages/attacks/guests.py", "importlib.import_module"): "other libraries, by a table",
    ("subjects/sources/black_box.py", "importlib.import_module"): "our own sources, by a table",
    ("subjects/sources/onnx.py", "importlib.import_module"): "onnx and what reads it, by name in the code",
    ("core/extras.py", "importlib.import_module"): "optional packages, by name in the code",
    ("subjects/sources/hub.py", "importlib.import_module"): "our own sources, by a table",
    ("subjects/sources/hub_torchvision.py", "torch.hub.get_dir"): "the name of torch's cache folder, nothing runs",
    (
        "subjects/sources/hub_torchvision.py",
        "torch.hub.download_url_to_file",
    ): "a file with its digest, read weights-only",
    ("outputs/report/render.py", "markupsafe.Markup"): "drawings of ours, checked element by element just before",
    ("outputs/track/mlflow.py", "subprocess.run"): "our own Python, to make an empty database; no shell",
    ("core/userfile.py", "spec.loader.exec_module"): "file.py:function, which the user named; core/trust.py guards it",
    ("subjects/sources/command.py", "subprocess.Popen"): "cmd:, named by the user; no shell, core/trust.py guards it",
    ("subjects/sources/checkpoint.py", "torch.load"): "weights_only=True",
    ("subjects/sources/command.py", "numpy.load"): "allow_pickle=False",
    ("subjects/data/archive.py", "numpy.load"): "allow_pickle=False",
}
NEEDED = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}


def main(arguments: list[str] | None = None) -> int:
    """Print every finding; the exit code says whether there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offline", action="store_true", help="do not ask pip-audit")
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--project", type=Path, default=ROOT / "pyproject.toml")
    parser.add_argument("--source", type=Path, default=ROOT / "src" / "assay")
    given = parser.parse_args(arguments)
    pins = dict(pinned(given.constraints))
    findings = [*holes(pins), *unpinned(given.project, pins), *licences(pins), *dangers(given.source)]
    if not given.offline:
        findings += advisories(given.constraints)
    for finding in findings:
        print(f"FOUND {finding}")
    print(f"{len(findings)} findings; {len(pins)} pins, {len(HOLES)} known holes, {len(MEANT)} calls that are meant")
    return 1 if findings else 0


def pinned(path: Path) -> Iterator[tuple[str, str]]:
    """The packages of a constraints file with their exact versions."""
    for line in path.read_text().splitlines():
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s#;]+)\s*(#.*)?", line.strip())
        if match:
            yield canonical(match[1]), match[2]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:4])


def holes(pins: dict[str, str]) -> Iterator[str]:
    """Versions, pinned or installed, that an advisory names."""
    for name, good, advisory, why in HOLES:
        for where, has in (("pinned", pins.get(name)), ("installed", installed(name))):
            if has is not None and numbers(has) < numbers(good):
                yield f"{name} {has} ({where}): {advisory}, {why}; use {good} or newer"


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def unpinned(project: Path, pins: dict[str, str]) -> Iterator[str]:
    """Dependencies of the project that the constraints do not fix."""
    import tomllib

    told = tomllib.loads(project.read_text())["project"]
    extras = told.get("optional-dependencies", {})
    for text in [*told["dependencies"], *(text for extra in extras.values() for text in extra)]:
        name = canonical(re.split(r"[\[<>=!~; ]", text, maxsplit=1)[0])
        if name not in pins and name not in ("assay", "pyarrow"):  # pyarrow is an extra that CI does not install
            yield f"{name} is asked for by pyproject.toml and has no exact version in constraints.txt"


def licences(pins: dict[str, str]) -> Iterator[str]:
    """Installed packages of the constraints under a licence that is not on the list."""
    for name in pins:
        if installed(name) is None:
            continue
        told = metadata(name)
        lines = [
            line for key in ("License-Expression", "License", "Classifier") for line in told.get_all(key) or () if line
        ]
        said = [line for line in lines if (not line.startswith("License") or "License ::" in line)]
        short = [line[:200] for line in said]  # some put the whole text there
        if name in LOOKED_UP:
            continue
        if not any(LICENCES.search(line) for line in short) or any(UNFREE.search(line) for line in short):
            yield f"{name} has a licence that is not on the list: {(said or ['none told'])[0][:60]!r}"


def dangers(source: Path) -> Iterator[str]:
    """Calls in our source that run code or a shell and are not among those that are meant."""
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = imported(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = full_name(node.func, known)
            given = {word.arg: word.value for word in node.keywords if word.arg}
            where = f"src/assay/{place}:{node.lineno}"
            shell = given.get("shell")
            if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
                yield f"{where}: shell=True"
            why = next((reason for pattern, reason in DANGEROUS.items() if fnmatchcase(name, pattern)), None)
            if why is None:
                continue
            if (place, name) not in MEANT:
                yield f"{where}: {name}() {why}; if it is meant, say so in tools/audit.py with the reason"
            elif name in NEEDED:
                word, wanted = NEEDED[name]
                value = given.get(word)
                if not isinstance(value, ast.Constant) or value.value is not wanted:
                    yield f"{where}: {name}() without {word}={wanted}"


def imported(tree: ast.Module) -> dict[str, str]:
    """What each name that a file imports, anywhere in it, stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                one.asname or one.name.partition(".")[0]: one.name if one.asname else one.name.partition(".")[0]
                for one in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def full_name(called: ast.expr, known: dict[str, str]) -> str:
    """``pickle.loads`` for ``loads`` that was imported from there; of ``Unpickler(f).load`` what made it."""
    while isinstance(called, ast.Attribute) and isinstance(called.value, ast.Call):
        called = called.value.func
    first, dot, rest = ast.unparse(called).partition(".")
    return f"{known.get(first, first)}{dot}{rest}"


def advisories(constraints: Path) -> list[str]:
    """What pip-audit says of the pins, where it is installed and its service answers."""
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner=off"]
    try:
        done = subprocess.run(
            [*command, "--format=json", "-r", str(constraints)], capture_output=True, text=True, timeout=120
        )
        told = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        print("note: pip-audit is not installed or did not answer; only the table in tools/audit.py was asked")
        return []
    skipped = [each["name"] for each in told if "skip_reason" in each]
    if skipped:  # a service that cannot be reached looks like packages that it does not know
        print(f"note: pip-audit knows nothing of {len(skipped)} of {len(told)} packages: {', '.join(skipped[:5])} …")
    return [
        f"{each['name']} {each['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'no version'}"
        for each in told
        for hole in each.get("vulns", ())
    ]


if __name__ == "__main__":
    sys.exit(main())
