"""The pytest plugin: a fixture that holds a model against a requirement.

    def test_model_is_robust(robustness):
        robustness("model.py:net", "dir:tests/images").require("robust>=0.40", suite="fast", eps="8/255")

Nothing heavy is imported before a test asks for the fixture: other tests pay nothing for the plugin.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.engines.gate_result import Gate

MARK = "robustness"
_TOLD = "assay"  # the key of a report's properties; they travel from the workers of pytest-xdist by themselves
_MEMORY = pytest.StashKey[dict[Any, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "robustness of models")
    group.addoption("--assay-time", metavar="TIME", help="Budget of each evaluation: 60s (ini: assay_time).")
    group.addoption("--assay-device", metavar="DEVICE", help="auto, cpu, cuda or cuda:1 (ini: assay_device).")
    group.addoption(
        "--assay-save",
        metavar="NAME",
        help="Keep what fails in runs NAME, NAME-2 … to look at and replay (assay_save).",
    )
    for name, what in (("time", "budget of each evaluation"), ("device", "device"), ("save", "name of the runs kept")):
        parser.addini(f"assay_{name}", f"assay: {what}", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(suite=…, eps=…, norm=…, time=…): measures a model (assay); set on every test that uses the fixture "
        f"{MARK}, so that -m 'not {MARK}' leaves them out; what it is given are defaults of require",
    )
    config.stash[_MEMORY] = {}


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if MARK in getattr(item, "fixturenames", ()) and item.get_closest_marker(MARK) is None:
            item.add_marker(MARK)


@pytest.fixture
def robustness(request: pytest.FixtureRequest) -> Callable[..., "Subject"]:
    """Holds a model against a requirement: ``robustness(model, data).require("robust>=0.4", eps="8/255")``."""

    def subject(
        model: Any,
        data: Any,
        *,
        baseline: Any = None,
        suite: Any = None,
        eps: str | float | None = None,
        norm: str | None = None,
        seed: int = 0,
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
    ) -> Subject:
        marker = request.node.get_closest_marker(MARK)
        given = {"suite": suite, "eps": eps, "norm": norm, "baseline": baseline}
        defaults = {**(marker.kwargs if marker else {}), **{k: v for k, v in given.items() if v is not None}}
        return Subject(request.node, model, data, {**defaults, "seed": seed, "mean": mean, "std": std})

    return subject


class Subject:
    """A model with its data."""

    def __init__(self, node: pytest.Item, model: Any, data: Any, defaults: dict[str, Any]) -> None:
        self.node, self.model, self.data, self.defaults = node, model, data, defaults

    def require(
        self,
        requirement: str,
        *,
        suite: Any = None,
        eps: str | float | None = None,
        norm: str | None = None,
        baseline: Any = None,
        confidence: float | None = None,
        decide: str | None = None,
        time: str | float | None = None,
        ignore: Sequence[str] = (),
    ) -> "Gate":
        """Fail the test where the requirement is not met; hands back what was found.

        See ``assay.check`` for what may be required. Evaluations with the same protocol are made once in a session.
        """
        __tracebackhide__ = True
        asked = {"suite": suite, "eps": eps, "norm": norm, "baseline": baseline, "confidence": confidence}
        asked |= {"decide": decide, "time": time, "ignore": tuple(ignore) or None}
        given = {**self.defaults, **{name: value for name, value in asked.items() if value is not None}}
        given.setdefault("time", _setting(self.node.config, "time") or None)
        gate = self._gate(requirement, given)
        for row in gate.rows:
            self.node.user_properties.append((_TOLD, f"{row.status:10} {row.clause}: {row.message}"))
        if not gate.met:
            raise AssertionError(self._why(gate, given))
        return gate

    def _gate(self, requirement: str, given: dict[str, Any]) -> "Gate":
        __tracebackhide__ = True
        from assay.core.errors import AssayError
        from assay.engines.gate import check

        config = self.node.config
        given = {"device": _setting(config, "device") or "auto", **given}
        try:
            return check(
                self.model,
                self.data,
                require=requirement,
                memory=config.stash[_MEMORY],
                save=self._save(),
                fresh=True,  # of an evaluation that differs from the last one, or of another session
                **given,
            )
        except AssayError as error:
            wrong = str(error)
        pytest.fail(f"assay: {wrong}", pytrace=False)  # out here, or pytest would show both errors

    def _save(self) -> str | None:
        """A name for the run of each evaluation, with the worker's of pytest-xdist: two never write to one folder."""
        base = _setting(self.node.config, "save")
        if not base:
            return None
        worker = getattr(self.node.config, "workerinput", {}).get("workerid")
        return f"{base}-{worker}" if worker else base

    def _why(self, gate: "Gate", given: dict[str, Any]) -> str:
        lines = [f"{gate.requirement} is not met by {gate.subject}{_on(gate)}"]
        lines += [f"  {row.status}: {row.message}" for row in gate.rows if not row.met]
        lines += [f"  UNRELIABLE ({warning['name']}): {warning['message']}" for warning in gate.warnings]
        if not gate.complete:
            lines.append(f"  the time ended after {gate.protocol.get('n')} inputs")
        return "\n".join([*lines, *(f"  {line}" for line in self._next(gate, given))])

    def _next(self, gate: "Gate", given: dict[str, Any]) -> Iterator[str]:
        """How to look at single failures."""
        if gate.run is not None:
            one = next((failure.id for failure in gate.failures if failure.kind == "robust"), "")
            yield f"look: assay report {shlex.quote(gate.run)}"
            if one:
                yield f"replay one: assay replay {shlex.quote(gate.run)} {one}"
            return
        same = _command({"": self.model, "data": self.data, "require": gate.requirement, **given})
        again = same or f"pytest {shlex.quote(self.node.nodeid)} --assay-save NAME"
        yield f"keep what fails: {again}; then assay replay NAME"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was measured, also where it passed: a number near its bound is worth seeing."""
    told = [
        (text, report.nodeid)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for key, text in getattr(report, "user_properties", ())
        if key == _TOLD
    ]
    if told:
        terminalreporter.write_sep("=", "robustness (assay)")
        for text, test in told:
            terminalreporter.write_line(f"{_plain(text)}  [{test}]")


def _command(given: dict[str, Any]) -> str:
    """The command line that measures the same, and keeps it; "" where something is an object that has no text."""
    words = ["assay", "check"]
    for name, value in given.items():
        if value is None or value == () or (name == "seed" and not value):
            continue
        if not isinstance(value, str | int | float | tuple):
            return ""
        parts = [str(part) for part in value] if isinstance(value, tuple) else [str(value)]
        for text in parts if name == "ignore" else [",".join(parts)]:
            words += [f"--{name}", text] if name else [text]
    return shlex.join([*words, "--save", "NAME"])


def _on(gate: "Gate") -> str:
    told = gate.protocol
    ball = "" if told.get("eps") is None else f", {told['norm']} eps {told['eps']:g}"
    return f" on {told['data']}{ball}, seed {told.get('seed')}" if "data" in told else ""


def _setting(config: pytest.Config, name: str) -> str:
    """The option, else the line of the ini file."""
    return str(config.getoption(f"assay_{name}") or config.getini(f"assay_{name}") or "")


def _plain(text: str) -> str:
    """Class names and messages come from files: they cannot steer a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
