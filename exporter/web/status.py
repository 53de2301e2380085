"""The status page: one self-contained HTML page for people, no scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from exporter.domain.formatting import moment

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="30">
<title>topic-liveness</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color-scheme: light dark; }}
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8886; }}
.scroll {{ overflow-x: auto; }}
</style>
</head>
<body>
<h1>topic-liveness</h1>
<p><a href="metrics">metrics</a> · <a href="-/healthy">healthy</a> · <a href="-/ready">ready</a></p>
<p>{expectations}</p>
<div class="scroll">
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
<p>Version {version}, {now}.</p>
</body>
</html>
"""

_HEADS = (
    "Cluster",
    "Cluster id",
    "State",
    "Last good poll",
    "Poll took",
    "Topics",
    "Partitions",
    "Newest record",
    "Last advance",
    "By state",
    "By verdict",
)
_BY_OWNER = "Dead topics by owner"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One cluster on the status page. Moments are Unix seconds; None is not known (yet)."""

    name: str
    up: bool
    last_poll: float | None = None
    poll_seconds: float | None = None
    problem: str | None = None
    """Why the latest poll gave nothing."""
    topics: int | None = None
    partitions: int | None = None
    newest_record: float | None = None
    """The largest record timestamp: what producers, or brokers, say."""
    last_advance: float | None = None
    """When an end offset was last seen to move: what cannot be said wrongly."""
    states: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)
    topic_verdicts: Mapping[str, int] = field(default_factory=dict)
    """Topics by verdict; ``verdicts`` counts partitions."""
    dead_by_owner: Mapping[str, int] = field(default_factory=dict)
    cluster_id: str | None = None
    warning: str | None = None
    """What is wrong although polls succeed."""

    @property
    def condition(self) -> str:
        """One line: up, or down and why."""
        if self.problem is None and not self.up and self.last_poll is None:
            return "waiting for the first poll"
        told = "up" if self.up else "down"
        if not self.up and self.problem is None:
            told += ": no poll has ended for too long"
        return "; ".join([told if self.problem is None else f"{told}: {self.problem}", *filter(None, [self.warning])])


@dataclass(frozen=True, slots=True)
class Status:
    """What the status page shows. Moments are Unix seconds; None is not known."""

    version: str
    now: float
    clusters: tuple[ClusterStatus, ...] = ()
    expectations_as_of: float | None = None
    expectations_problem: str | None = None
    upkeep_problems: tuple[str, ...] = ()
    """What keeps the history folder from being looked after."""


def status_page(status: Status) -> str:
    """Return the whole page as HTML."""
    by_owner = any(cluster.dead_by_owner for cluster in status.clusters)
    heads = (*_HEADS, _BY_OWNER) if by_owner else _HEADS
    return _PAGE.format(
        version=escape(status.version),
        now=escape(_moment(status.now)),
        expectations=escape(_expectations(status)),
        heads="".join(f'<th scope="col">{head}</th>' for head in heads),
        rows="\n".join(_row(cluster, status.now, by_owner=by_owner) for cluster in status.clusters),
    )


def _row(cluster: ClusterStatus, now: float, *, by_owner: bool) -> str:
    cells = [
        cluster.name,
        cluster.cluster_id or "",
        cluster.condition,
        _ago(cluster.last_poll, now) or "none yet",
        "" if cluster.poll_seconds is None else f"{cluster.poll_seconds:.2f} s",
        "" if cluster.topics is None else f"{cluster.topics:,}",
        "" if cluster.partitions is None else f"{cluster.partitions:,}",
        _ago(cluster.newest_record, now),
        _ago(cluster.last_advance, now),
        _counts(cluster.states),
        _counts(cluster.verdicts),
    ]
    if by_owner:
        cells.append(_counts(cluster.dead_by_owner))
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _expectations(status: Status) -> str:
    if status.expectations_as_of is None:
        text = "No expectations are published yet, so every verdict is learning: run `topic-liveness rollup`."
    else:
        text = f"Expectations as of {_ago(status.expectations_as_of, status.now)}."
    if status.expectations_problem is not None:
        text += f" Problem: {status.expectations_problem}"
    return " ".join([text, *(f"Problem: {problem}" for problem in status.upkeep_problems)])


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count)


def _ago(at: float | None, now: float) -> str:
    if at is None:
        return ""
    return f"{_moment(at)} ({'ahead' if at > now + 1 else f'{_age(now - at)} ago'})"


def _moment(at: float) -> str:
    return moment(at, "%Y-%m-%d %H:%M:%S")


def _age(seconds: float) -> str:
    """Two units at most: ``42 s``, ``3 m 5 s``, ``2 h 10 m``, ``6 d 4 h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
