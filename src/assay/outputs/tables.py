"""Results as tables for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from assay.engines.evaluation import Evaluation, Outcome, Share, Sizes
from assay.engines.quality import ALIKE, Quality
from assay.engines.transfer import Transfer
from assay.outputs.screen import plain


def percent(share: Share) -> str:
    """A share with its interval: ``91.2 % (88.0–93.7)``."""
    low, high = share.ci95
    return f"{100 * share.accuracy:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def title_of(result: Evaluation) -> str:
    """Data, number of inputs, ball and seed: what the numbers of a table have in common."""
    told = result.protocol
    ball = "" if told["norm"] is None else f", {told['norm']}"
    ball += "" if told["eps"] is None else f" eps={told['eps_text']}"
    return plain(f"{told['data']}, n={told['n']}{ball}, seed {told['seed']}")


def evaluation_table(result: Evaluation) -> Table:
    """One row a number; static and white-box numbers in columns of their own."""
    meaning = "left after the attacks so far" if result.protocol["cascade"] else "each attack alone"
    star = "*" if result.unreliable else ""
    table = Table(
        title=title_of(result),
        caption=f"{meaning}; 95 % intervals; asked = answers and gradients an input"
        + "".join(f"; {plain(name)} is {why}" for name, why in result.protocol.get("limited", {}).items())
        + (" *unreliable, see below" if star else ""),
    )
    static = result.static_worst is not None
    table.add_column("")
    table.add_column(f"{result.access}{star}", justify="right")
    if static:
        table.add_column(plain(f"static, made on {result.static_from}"), justify="right")
    for column in ("tried", "broken", "asked", "seconds"):
        table.add_column(column, justify="right")

    def line(name: str, share: str, other: str = "", style: str | None = None) -> None:
        table.add_row(name, share, *([other] if static else []), "", "", "", "", style=style)

    line("clean", percent(result.clean))
    for name, outcome in result.attacks.items():
        table.add_row(plain(name), *_cells(outcome, result.static.get(name)))
    for name, share in result.parts.items():
        line(f"worst case, {name}", percent(share), style="bold")
    if result.mean is not None and len(result.attacks) > 1:
        line("mean of the attacks", f"{100 * result.mean:.1f} %")
    line("worst case", percent(result.worst), percent(result.static_worst) if result.static_worst else "", "bold")
    return table


def asked_line(queries: Mapping[str, Any]) -> str:
    """What a black box was asked, in words.

    >>> asked_line({"asked": 3, "limit": 3, "retries": 0, "repeats": 2})
    'asked: 3 of at most 3 inputs, among them 2 repeats'
    """
    limit = "" if queries["limit"] is None else f" of at most {queries['limit']}"
    parts = {"sent again after a fault": queries["retries"], "repeats": queries["repeats"]}
    inside = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    unsteady = queries.get("unsteady", 0)
    told = f"asked: {queries['asked']}{limit} inputs{f', among them {inside}' if inside else ''}"
    return told + (f"; {unsteady} got answers that disagree" if unsteady else "")


def curve_table(result: Evaluation) -> Table:
    """Worst-case accuracy at each eps."""
    table = Table(caption=f"worst case at each eps; {result.access}; 95 % Wilson intervals")
    table.add_column(f"eps ({result.protocol['norm']})", justify="right")
    table.add_column("accuracy", justify="right")
    for eps, share in result.curve.items():
        table.add_row(f"{eps:g}", percent(share))
    return table


def sizes_table(result: Evaluation) -> Table:
    """How small perturbations can be, by attack and pointwise."""
    table = Table(caption=f"smallest perturbations found ({result.protocol['norm']}), over the inputs that broke")
    for column in ("attack", "n", "mean", "10 %", "median", "90 %"):
        table.add_column(column, justify="left" if column == "attack" else "right")

    def line(name: str, sizes: Sizes) -> None:
        numbers = (sizes.mean, sizes.low, sizes.median, sizes.high)
        table.add_row(plain(name), str(sizes.n), *(f"{value:.4g}" for value in numbers))

    found = {name: o.sizes for name, o in result.attacks.items() if o.sizes is not None}
    for name, sizes in found.items():
        line(name, sizes)
    if len(found) > 1 and result.minimal is not None:
        line("smallest", result.minimal)
    return table


def transfer_table(result: Transfer) -> Table:
    """A row for each model examples were made on; its own, white-box number in a column apart."""
    told = result.protocol
    ball = "" if told["eps"] is None else f", {told['norm']} eps={told['eps_text']}"
    table = Table(
        title=plain(f"{told['data']}, n={told['n']}{ball}, {', '.join(told['attacks'])}, seed {told['seed']}"),
        caption="share fooled of the inputs that both models get right (white box: that the model itself gets right); "
        "95 % Wilson intervals; no trust checks are made here",
    )
    table.add_column("made on")
    table.add_column("white box", justify="right")
    for name in result.models:
        table.add_column(plain(f"judged by {name}"), justify="right")
    for name, row in result.fooled.items():
        cells = ("–" if other == name else _rate(row[other]) for other in result.models)
        table.add_row(plain(name), _rate(result.white_box[name]), *cells)
    return table


def _rate(share: Share) -> str:
    return percent(share) if share.n else "no input is right for both"


def per_class_table(result: Evaluation) -> Table:
    """Clean and worst-case accuracy of each class that occurs."""
    table = Table(caption=f"{result.access}; 95 % Wilson intervals")
    for column in ("class", "n", "clean", "worst case"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for name, row in result.per_class.items():
        shares = (Share(round(row[k]["accuracy"] * row["n"]), row["n"]) for k in ("clean", "worst"))
        table.add_row(plain(name), str(row["n"]), *(percent(share) for share in shares))
    return table


def _cells(outcome: Outcome, static: Outcome | None) -> Iterable[str]:
    yield percent(outcome.left)
    if static is not None:
        yield percent(static.left)
    yield str(outcome.tried)
    yield str(outcome.broken)
    counts = (outcome.effort.forward, outcome.effort.gradient)
    yield " / ".join("–" if count is None else f"{count / max(outcome.tried, 1):.0f}" for count in counts)
    yield f"{outcome.effort.seconds:.2f}"


def quality_facts(quality: Quality) -> dict[str, str]:
    """How far failures are from their seeds, how they score, and whether another model agrees that they fail."""
    ssim = "" if quality.ssim is None else f", SSIM {quality.ssim:.2f}"
    facts = {"change (median)": f"linf {quality.linf:.3f}, l2 {quality.l2:.2f}{ssim}"}
    if quality.scores:
        told = (f"{name} {'–' if score is None else f'{score:.3g}'}" for name, score in quality.scores.items())
        facts["scores (median)"] = ", ".join(told)
    if quality.alike is not None:
        facts["cosine to the parent (median)"] = f"{quality.cosine:.3f}"
        facts[f"cosine above {ALIKE:g} to the root"] = percent(quality.alike)
    if quality.vulnerable is not None:
        facts["wrong for the vulnerable model too"] = percent(quality.vulnerable)
    if quality.witness is not None:
        facts["still their label for the witness"] = percent(quality.witness)
    return facts


def coverage_facts(coverage: Mapping[str, Any]) -> dict[str, str]:
    """What the cases cover, of which criterion and which layers."""
    total, covered = coverage["total"], coverage["covered"]
    share = _plain(covered) if total is None else f"{coverage['share']:.2%} ({covered:.0f} of {total})"
    seeds = coverage["seeds"]
    if seeds is not None:
        share += f", the seeds alone {_plain(seeds) if total is None else f'{seeds / total:.2%}'}"
    ranges = f", ranges from {coverage['training']}" if coverage.get("training") else ""
    return {f"covered, {coverage['criterion']}": share, "neurons": f"{coverage['layers']}{ranges}"}


def _plain(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:.4g}"


def before_after_table(rows: Mapping[str, Mapping[str, Share]], title: str) -> Table:
    """Several models side by side: ``rows[number][model]``."""
    table = Table(title=plain(title), caption="95 % Wilson intervals")
    table.add_column("")
    models = list(next(iter(rows.values())))
    for model in models:
        table.add_column(model, justify="right")
    for number, shares in rows.items():
        table.add_row(number, *(percent(shares[model]) for model in models))
    return table
