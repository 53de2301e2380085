"""Kinds of panels and the queries they share.

Every query is bound to the dashboard's variables, and aggregated with ``max`` first, so that two exporters
that watch one cluster count once. It keeps the labels by which the rules tell clusters of one name apart. Every panel
says in its own words why it is empty.
"""

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    statushistory,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
OWN = 'job=~"$job", namespace=~"$namespace", instance=~"$instance"'
CLUSTER = f'{OWN}, kafka_cluster=~"$kafka_cluster"'
TOPIC = f'{CLUSTER}, topic=~"$topic"'

TARGET_KEYS = "cluster, namespace, job"
"""Labels that Prometheus gives the exporters of one release; tables do not show them."""

CLUSTER_KEYS = f"{TARGET_KEYS}, kafka_cluster"
TOPIC_KEYS = f"{CLUSTER_KEYS}, topic"

GREEN, ORANGE, RED, BLUE, PURPLE = "green", "orange", "red", "blue", "purple"

BY_TOPIC = "needs series of each partition, metrics.granularity: partition"
NO_READINGS = "no readings of what you selected: see the dashboard of the exporter"
NO_SCRAPE = "no exporter is scraped under what is chosen"


def newest(metric: str, labels: str, selector: str = TOPIC) -> str:
    """The largest value that any exporter gives."""
    return f"max by ({labels}) ({metric}{{{selector}}})"


def keep_owner(rows: str) -> str:
    """Topics without those that are known to be somebody else's than the chosen owner's."""
    others = (
        f'(kafka_topic_info{{{CLUSTER}, owner!~"$owner"}} unless on ({TOPIC_KEYS})'
        f' kafka_topic_info{{{CLUSTER}, owner=~"$owner"}})'
    )
    return f"({rows}) unless on ({TOPIC_KEYS}) {others}"


def choose_owner(selector: str) -> str:
    """An owner of each topic that has one: of two exporters one may not know a new configuration yet."""
    return f"topk by ({TOPIC_KEYS}) (1, {newest('kafka_topic_info', f'{TOPIC_KEYS}, owner', selector)})"


def topics(verdict: str) -> str:
    """Topics of a verdict; one series each, of value 1."""
    return f'max by ({TOPIC_KEYS}) (kafka_topic_verdict{{{TOPIC}, verdict="{verdict}"}}) == 1'


def join_topics(rows: str, value: str) -> str:
    """``value`` of each topic in ``rows``."""
    return f"({rows}) * on ({TOPIC_KEYS}) group_left () ({value})"


def verdict_numbers(metric: str, labels: str) -> str:
    """What is remarkable of streams, as a number for timelines: 1 suspect, 2 held, 3 dead."""
    each = " or ".join(
        f'{number} * {metric}{{{TOPIC}, verdict="{verdict}"}}' for number, verdict in enumerate(REMARKABLE, start=1)
    )
    return f"max by ({labels}) ({each})"


REMARKABLE = {"suspect": ORANGE, "held": PURPLE, "dead": RED}


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


def figure(
    title: str, description: str, expr: str, unit: str, thresholds: dashboard.ThresholdsConfig, none: str = NO_READINGS
) -> stat.Panel:
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
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .no_value(none)
        .height(4)
        .span(3)
    )


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading ("" hides it), the query of its values, their unit."""

    heading: str
    expr: str
    unit: str


@dataclass(frozen=True)
class Link:
    """Where a column leads to."""

    heading: str
    title: str
    url: str


def link_to_topic(heading: str = "Topic", cluster: str = "Cluster") -> Link:
    """From a topic's name to its dashboard."""
    return Link(
        heading,
        "What its partitions and groups do",
        "/d/topic-liveness-topic?var-datasource=${datasource}&var-kafka_cluster=${__data.fields."
        + cluster
        + "}&var-topic=${__data.fields."
        + heading
        + "}&${__url_time_range}",
    )


def list_now(
    title: str, description: str, keys: dict[str, str], columns: list[Column], none: str, *links: Link
) -> table.Panel:
    """A table of the present moment: a row for each combination of ``keys`` (label -> heading)."""
    names = dict(keys)
    hidden = {name: True for name in ("Time", *TARGET_KEYS.split(", ")) if name not in keys}
    panel = table.Panel().title(title).description(description).datasource(SOURCE).no_value(none)
    for letter, column in zip("ABCDEF", columns, strict=False):
        panel.with_target(now(column.expr).format(PromQueryFormat.TABLE).ref_id(letter))
        values = "Value" if len(columns) == 1 else f"Value #{letter}"
        if column.heading:
            names[values] = column.heading
            panel.override_by_name(column.heading, [model.DynamicConfigValue(id_val="unit", value=column.unit)])
        else:
            hidden[values] = True
    for link in links:
        value: list[dict[str, Any]] = [{"title": link.title, "url": link.url}]
        panel.override_by_name(link.heading, [model.DynamicConfigValue(id_val="links", value=value)])
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    order = {name: place for place, name in enumerate(names)}
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": hidden, "indexByName": order, "renameByName": names},
        )
    )
    return panel.height(8).span(12)


def curves(
    title: str, description: str, queries: list[prometheus.Dataquery], unit: str, none: str = NO_READINGS
) -> timeseries.Panel:
    """Lines over time."""
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .targets(list(queries))
        .unit(unit)
        .fill_opacity(10)
        .no_value(none)
        .height(8)
        .span(12)
    )


def longest(
    title: str, description: str, expr: str, legend: str, unit: str = "s", none: str = NO_READINGS
) -> bargauge.Panel:
    """A list of the largest values, as bars."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(now(f"sort_desc(topk(15, {expr}))", legend))
        .unit(unit)
        .min(0)
        .orientation(common_models.VizOrientation.HORIZONTAL)
        .display_mode(common_models.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color(BLUE))
        .no_value(none)
        .height(10)
        .span(12)
    )


def timeline(title: str, description: str, expr: str, legend: str, none: str) -> statetimeline.Panel:
    """When which stream was suspect, held or dead; ``expr`` is made by ``verdict_numbers``."""
    verdicts = {
        str(number): model.ValueMappingResult(text=verdict, color=colour)
        for number, (verdict, colour) in enumerate(REMARKABLE.items(), start=1)
    }
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(query(expr, legend))
        .unit("none")
        .mappings([model.ValueMap(options=verdicts)])
        .merge_values(True)
        .no_value(none)
        .height(10)
        .span(12)
    )


def amounts(title: str, description: str, expr: str, legend: str, unit: str, none: str) -> statushistory.Panel:
    """A row of cells for each series, coloured by their values."""
    return (
        statushistory.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(query(expr, legend))
        .unit(unit)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.CONTINUOUS_GR_YL_RD))
        .max_data_points(60)
        .no_value(none)
        .height(10)
        .span(12)
    )


def distribution(title: str, description: str, buckets: str) -> heatmap.Panel:
    """How often a histogram's values were seen, over time; ``buckets`` are summed by ``le``."""
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(query(buckets, "{{le}}").format(PromQueryFormat.HEATMAP))
        .unit("s")
        .no_value(NO_READINGS)
        .height(8)
        .span(12)
    )
