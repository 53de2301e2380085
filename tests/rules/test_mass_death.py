"""What alerts when a fifth of a cluster's topics die at once, by the exporter's own verdicts hour by hour."""

from __future__ import annotations

from pathlib import Path

from exporter.domain.verdicts import Verdict
from tests.rules.test_rules import DASHBOARDS, tell
from tests.unit.test_incidents import assessed, verdicts

SILENT, LIVING = 20, 80
TARGET = 'job="topic-liveness",instance="a:9797",kafka_cluster="prod"'


def test_one_alert_fires_for_a_mass_death_until_the_hold_runs_out_and_then_one_for_each_topic(tmp_path: Path) -> None:
    """Silent for 11.2 hours the topics would be suspect and are held, 48 hours after they crossed they are dead."""
    hours = [assessed(SILENT, LIVING, half / 2) for half in range(120)]
    assert all(len(verdicts(each)) == 1 for each in hours)
    held = " ".join(f"{each.held_topics}x5" for each in hours)
    dead = " ".join("1x5" if verdicts(each) == {Verdict.DEAD} else "_x6" for each in hours)
    series = [{"series": f"topic_liveness_held_topics{{{TARGET}}}", "values": held}]
    series += [
        {"series": f'kafka_topic_verdict{{{TARGET},topic="silent-{number:03d}",verdict="dead"}}', "values": dead}
        for number in range(SILENT)
    ]
    firing = 'count by (alertname) (ALERTS{alertname=~"TopicLivenessTopic.+",alertstate="firing"})'
    alerts = {
        "11h": {},
        "13h": {"TopicLivenessTopicsHeld": 1},
        "54h": {"TopicLivenessTopicsHeld": 1},
        "56h": {"TopicLivenessTopicDead": SILENT},
    }
    moments = [
        {
            "expr": firing,
            "eval_time": at,
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": count} for name, count in expected.items()],
        }
        for at, expected in alerts.items()
    ]
    test = {"interval": "5m", "input_series": series, "promql_expr_test": moments}
    story = {"rule_files": [str(DASHBOARDS / "alerts.yaml")], "evaluation_interval": "5m", "tests": [test]}
    tell(story, tmp_path)
