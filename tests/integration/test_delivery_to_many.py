"""One recipient that a mail server cannot serve costs no other its mail, and a card fits into Teams."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from exporter.delivery.bodies import MAX_CARD_BYTES, SHOWN_IN_CHAT, slack, teams
from exporter.delivery.channels import Mail, MailServer, Recipient
from exporter.delivery.message import Group, Item, Message
from exporter.delivery.run import Delivered
from exporter.settings.rules import check_server
from tests.integration.receiving import MailBox, mail_server, write_report
from tests.integration.test_delivery import NOT_TLS, Sent, to


class Choosy(MailBox):
    """A mail server that never answers, or drops, the mail to one recipient."""

    drops = False
    tried: int = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if envelope.rcpt_tos[0] != "boss@example.org":
            return await super().handle_DATA(server, session, envelope)
        self.tried += 1
        if self.drops:
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        else:
            await asyncio.sleep(3)
        return "451 later"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a report."""
    return write_report(tmp_path / "reports" / "2026-03-03")


@pytest.fixture
def box() -> Choosy:
    """What the mail server took."""
    return Choosy()


@pytest.fixture
def server(box: Choosy) -> Iterator[MailServer]:
    """A mail server without encryption, which takes addresses in ASCII only."""
    with mail_server(box, utf8=False) as address:
        yield MailServer(address, "liveness@example.org", "none", NOT_TLS)


def all_of(server: MailServer, *names: str) -> list[Recipient]:
    """A recipient for each name, in this order."""
    return [to(Mail(f"{name}@example.org", server)) for name in names]


@pytest.mark.parametrize("drops", [False, True])
def test_a_mail_at_which_a_server_hangs_keeps_no_other_from_it(
    folder: Path, box: Choosy, server: MailServer, drops: bool
) -> None:
    """It comes last in the next round: who waits behind it gets the mail."""
    box.drops = drops
    sent = Sent(folder, all_of(server, "boss", "payments", "search"), attempts=2, timeout=3.0)
    assert sent.send() == Delivered(2, 0, 1)
    assert sorted(box.to) == ["payments@example.org", "search@example.org"]
    assert box.tried == 2


def test_an_address_that_a_server_cannot_write_costs_its_own_mail_alone(folder: Path, server: MailServer) -> None:
    """Without SMTPUTF8 a server takes ASCII only."""
    sent = Sent(folder, all_of(server, "a-team", "müller", "payments"), attempts=1)
    assert sent.send() == Delivered(2, 0, 1)
    [problem] = [line for line in sent.lines if line.startswith("not delivered")]
    assert re.search(r"müller@example\.org: \S+ takes no address with letters such as those of müller", problem)


def test_a_server_whose_name_is_none_is_a_problem_of_one_line(folder: Path) -> None:
    """It is refused in the configuration, and where it comes in otherwise it is said."""
    for name in ("smtp..example.org", f"{'a' * 64}.example.org", "-.:25:25"):
        with pytest.raises(ValueError, match="must be HOST or HOST:PORT"):
            check_server(name)
    assert check_server("smtp.example.org.:587") and check_server("[::1]:25") and check_server("mail_1")
    nowhere = MailServer("smtp..example.org", "liveness@example.org", "none", NOT_TLS)
    sent = Sent(folder, all_of(nowhere, "boss"), attempts=1)
    assert sent.send() == Delivered(0, 0, 1)
    assert "smtp..example.org:25 cannot be reached: " in sent.lines[-1]


def test_a_card_of_a_bad_week_fits_into_teams() -> None:
    """It shows fewer items of each group where they are many and their names long, and says how many it leaves out."""
    text = "Dead since Sun 2026-03-01 22:30 UTC. Nothing was written for 2 d. 3 consumer groups still read it: a, b, c."
    items = tuple(
        Item("prod", f"payments.settlement.{number:02}.some-long-name-of-a-topic", (), text, "", None, None)
        for number in range(40)
    )

    def card(groups: int) -> dict[str, Any]:
        made = tuple(Group(str(number), f"Group {number}", "", items) for number in range(groups))
        message = Message(datetime(2026, 3, 3, tzinfo=UTC), None, "Subject", "Summary.", (), made, (), None)
        return teams(message)["attachments"][0]["content"]  # type: ignore[no-any-return]

    assert str(card(1)).count("payments.settlement") == SHOWN_IN_CHAT
    for groups in (3, 7, 20):
        made = card(groups)
        assert MAX_CARD_BYTES / 2 < len(json.dumps(made, ensure_ascii=False).encode()) <= MAX_CARD_BYTES
        left_out = [int(count) for count in re.findall(r"and (\d+) more, in the report", str(made))]
        assert len(left_out) == groups and 40 - SHOWN_IN_CHAT <= left_out[0] < 40


def test_a_card_about_many_clusters_without_polls_fits_into_teams() -> None:
    """Each cluster has a warning of its own; a chat shows the first ones, and says how many it leaves out."""
    warning = "the last good poll was Sun 2026-03-01 22:30 UTC, 2 d before these verdicts; silence is not proved."
    warnings = tuple(f"cluster-{number:03}: {warning}" for number in range(100))
    message = Message(datetime(2026, 3, 3, tzinfo=UTC), None, "Subject", "Summary.", warnings, (), (), None)
    card = json.dumps(teams(message), ensure_ascii=False)
    assert len(card.encode()) <= MAX_CARD_BYTES
    for shown in (card, slack(message)["text"]):
        assert shown.count("the last good poll was") == SHOWN_IN_CHAT
        assert "Note: 90 more of these are in the report" in shown
