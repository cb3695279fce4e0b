"""The test numbers of a hardening as tables for the report."""

from collections.abc import Mapping
from typing import Any

from assay.engines.evaluation import Share
from assay.engines.hardened import Tested
from assay.engines.hardening_words import NOISE, noise_line, title_of


def numbers_tables(test: Tested, protocol: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The test numbers as tables for the report: white box and static apart; how often was looked is told later."""
    where = title_of(protocol)
    noise = [] if test.noise is None else [f"{NOISE[0].upper()}{NOISE[1:]}."]
    said = [f"{line[0].upper()}{line[1:]}." for line in [noise_line(test)] if line]
    warned = [
        f"*UNRELIABLE, {name} ({w['name']}): {w['message']}." for name, m in test.columns().items() for w in m.warnings
    ]

    def table(title: str, rows: dict[str, dict[str, Share]], *more: str) -> dict[str, Any]:
        cells = [{"name": name, "cells": [s.to_json() for s in row.values()]} for name, row in rows.items()]
        models = [name + ("*" if m.warnings else "") for name, m in test.columns().items()]
        note = " ".join(["Every attack on every input; 95 % Wilson intervals.", *noise, *more, *warned])
        return {"title": title, "models": models, "rows": cells, "note": note}

    return {
        "white-box": table(f"{where}: white box", test.white_box()),
        "static": table(f"{where}: static, examples made on the original model", test.static(), *said),
    }
