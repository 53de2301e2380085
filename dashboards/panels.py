"""Kinds of panels and the queries they share.

Every query is bound to the dashboard's variables, and aggregated with ``max`` first, so that two exporters
that watch one cluster count once.
"""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as look
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
OWN = 'job=~"$job", instance=~"$instance"'
CLUSTER = f'{OWN}, kafka_cluster=~"$kafka_cluster"'
TOPIC = f'{CLUSTER}, topic=~"$topic"'

GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"


def topics(verdict: str) -> str:
    """Topics of a verdict; one series each, of value 1."""
    return f'max by (kafka_cluster, topic) (kafka_topic_verdict{{{TOPIC}, verdict="{verdict}"}}) == 1'


def partitions(verdict: str) -> str:
    """Partitions of a verdict whose topic has not the same one; one series each, of value 1."""
    of_topic = f'max by (kafka_cluster, topic) (kafka_topic_verdict{{{TOPIC}, verdict="{verdict}"}}) == 1'
    return (
        f'max by (kafka_cluster, topic, partition) (kafka_topic_partition_verdict{{{TOPIC}, verdict="{verdict}"}}) == 1'
        f" unless on (kafka_cluster, topic) ({of_topic})"
    )


def of_topics(rows: str, value: str) -> str:
    """``value`` of each topic in ``rows``."""
    return f"({rows}) * on (kafka_cluster, topic) group_left () ({value})"


def of_partitions(rows: str, value: str) -> str:
    """``value`` of each partition in ``rows``."""
    return f"({rows}) * on (kafka_cluster, topic, partition) group_left () ({value})"


def newest(metric: str, labels: str, selector: str = TOPIC) -> str:
    """The largest value that any exporter gives."""
    return f"max by ({labels}) ({metric}{{{selector}}})"


def query(expr: str, legend: str = "__auto") -> prometheus.Dataquery:
    """A query over time."""
    return prometheus.Dataquery().expr(expr).legend_format(legend).range().datasource(SOURCE)


def now(expr: str, legend: str = "__auto") -> prometheus.Dataquery:
    """A query of the present moment."""
    return prometheus.Dataquery().expr(expr).legend_format(legend).instant().datasource(SOURCE)


def steps(*colours: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """Colours from a value on; the first has no value."""
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in colours])
    )


def figure(title: str, description: str, expr: str, unit: str, thresholds: dashboard.ThresholdsConfig) -> stat.Panel:
    """One number."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(now(expr))
        .unit(unit)
        .thresholds(thresholds)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(look.BigValueGraphMode.NONE)
        .no_value("unknown")
        .height(4)
        .span(3)
    )


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, the query of its values, their unit."""

    heading: str
    expr: str
    unit: str


def listing(title: str, description: str, keys: dict[str, str], columns: list[Column], none: str) -> table.Panel:
    """A table of the present moment: a row for each combination of ``keys`` (label -> heading)."""
    names = dict(keys)
    hidden = {"Time": True}
    panel = table.Panel().title(title).description(description).datasource(SOURCE).no_value(none)
    for letter, column in zip("ABCDEF", columns, strict=False):
        panel.with_target(now(column.expr).format(PromQueryFormat.TABLE).ref_id(letter))
        names[f"Value #{letter}"] = column.heading
        panel.override_by_name(column.heading, [model.DynamicConfigValue(id_val="unit", value=column.unit)])
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    order = {name: place for place, name in enumerate(names)}
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": hidden, "indexByName": order, "renameByName": names},
        )
    )
    return panel.height(8).span(12)


def curves(title: str, description: str, queries: list[prometheus.Dataquery], unit: str) -> timeseries.Panel:
    """Lines over time."""
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .targets(list(queries))
        .unit(unit)
        .fill_opacity(10)
        .height(8)
        .span(12)
    )


def longest(title: str, description: str, expr: str, legend: str, unit: str = "s") -> bargauge.Panel:
    """A list of the largest values, as bars."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(now(f"sort_desc(topk(15, {expr}))", legend))
        .unit(unit)
        .min(0)
        .orientation(look.VizOrientation.HORIZONTAL)
        .display_mode(look.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color(BLUE))
        .no_value("none")
        .height(10)
        .span(12)
    )
