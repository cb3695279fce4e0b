"""Imports go down the list of layers, never up: the folders are the data flow."""

import ast
from pathlib import Path

import assay

ROOT = Path(assay.__file__).parent
LAYERS = ("core", "subjects", "stages", "recipes", "engines", "outputs")  # front doors come above all of them
LAZY_ONLY = {"sklearn", "kornia", "scipy", "PIL", "pooch", "jinja2", "torchvision", "timm", "ray", "onnxruntime"}
FORBIDDEN = {"torchvision", "timm"}


def layer(module: str) -> int:
    part = module.split(".")[1] if "." in module else ""
    return LAYERS.index(part) if part in LAYERS else len(LAYERS)


def imports(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            # `from assay.core import norms` names a module by its last part
            found += [f"{node.module}.{a.name}" if node.module.startswith("assay") else node.module for a in node.names]
    return found


def modules() -> list[tuple[str, ast.Module]]:
    files = sorted(ROOT.rglob("*.py"))
    assert len(files) > 50
    return [
        (".".join(("assay", *path.relative_to(ROOT).with_suffix("").parts)), ast.parse(path.read_text()))
        for path in files
    ]


def test_no_import_goes_up() -> None:
    upward = [
        f"{name} imports {other}"
        for name, tree in modules()
        for other in imports(tree)
        if other.startswith("assay.") and layer(other) > layer(name)
    ]
    assert upward == []


def test_the_rule_would_notice_an_upward_import() -> None:
    tree = ast.parse("from assay.engines.fuzz import fuzz")
    assert [layer(other) > layer("assay.core.cases") for other in imports(tree)] == [True]


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    eager = [
        f"{name}: {other}"
        for name, tree in modules()
        for node in tree.body
        for other in imports(node)
        if isinstance(node, ast.Import | ast.ImportFrom) and other.split(".")[0] in LAZY_ONLY
    ]
    assert eager == []


def test_the_core_knows_neither_torchvision_nor_timm() -> None:
    assert [n for n, tree in modules() for other in imports(tree) if other.split(".")[0] in FORBIDDEN] == []


def test_files_stay_short() -> None:
    long = {p.name: n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 320}
    assert long == {}
