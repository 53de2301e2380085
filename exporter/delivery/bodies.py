"""Message -> what each kind of recipient takes."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from exporter.delivery.message import Group, Item, Message
from exporter.domain.formatting import iso
from exporter.storage import Location, file_info, opened

SHOWN_IN_MAIL = 50
SHOWN_IN_CHAT = 10
"""Items of a group; the others are counted."""

MAX_CARD_BYTES = 20_000
"""Teams takes 28 KB with what a workflow adds to a card; past that the workflow fails after it took the message."""

MAX_ATTACHED_BYTES = 10 * 2**20
"""A larger report is not attached: many mail servers refuse it."""

BODY_VERSION = 1
"""Version of what a webhook gets; raised when a field changes its meaning or goes."""


def mail(
    message: Message, sender: str, to: str, message_id: str, sent_at: float, *, attach: bool = True
) -> EmailMessage:
    """Return a mail, sent at ``sent_at`` (Unix seconds), with the message as text and HTML, and its page attached.

    Without ``attach`` the mail says that the page is too large.
    """
    made = EmailMessage(policy=SMTP)
    made["Subject"], made["From"], made["To"] = message.subject, sender, to
    made["Date"] = datetime.fromtimestamp(sent_at, UTC)
    # The same one when it is sent again, so that mail programs show it once.
    made["Message-ID"] = message_id
    made["Auto-Submitted"] = "auto-generated"
    page = _attached(message.page) if attach else None
    too_large = message.page is not None and page is None
    shown = {"message": message, "attached": page is not None, "too_large": too_large, "shown": SHOWN_IN_MAIL}
    made.set_content(_templates(escaped=False).get_template("mail.txt.j2").render(shown))
    made.add_alternative(_templates(escaped=True).get_template("mail.html.j2").render(shown), subtype="html")
    if message.page is not None and page is not None:
        made.add_attachment(page, maintype="text", subtype="html", filename=message.page.name)
    return made


def _attached(page: Location | None) -> bytes | None:
    """Return the page, None where it is too large or gone: the mail says what matters without it."""
    try:
        seen = None if page is None else file_info(page)
        if seen is None or seen.size > MAX_ATTACHED_BYTES:
            return None
        with opened(seen.path) as file:
            return file.read()
    except OSError:
        return None


def slack(message: Message) -> dict[str, Any]:
    """Return a message for an incoming webhook of Slack, which Mattermost and Rocket.Chat take too."""
    lines = [f"*{_slack(message.subject)}*", _slack(message.summary)]
    lines += map(_slack, _notes(message))
    for group in message.groups:
        lines += ["", f"*{_slack(group.title)}* ({len(group.items)})"]
        lines += [f"• `{_slack(item.name)}` {_slack(item.text)}" for item in group.items[:SHOWN_IN_CHAT]]
        lines += _more(group, SHOWN_IN_CHAT)
    if message.links:
        lines += ["", " · ".join(f"<{_slack(address)}|{label}>" for label, address in message.links)]
    return {"text": "\n".join(lines)}


def _slack(text: str) -> str:
    """Escape a text: none of it is a link, a mention or the end of code."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


def teams(message: Message) -> dict[str, Any]:
    """Return an Adaptive Card, as a workflow of Teams takes from a webhook. Its texts are no Markdown.

    Of each group it shows as many items as fit into MAX_CARD_BYTES.
    """
    shown = SHOWN_IN_CHAT
    while len(json.dumps(card := _card(message, shown), ensure_ascii=False).encode()) > MAX_CARD_BYTES and shown:
        shown -= 1
    attached = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attached]}


def _card(message: Message, shown: int) -> dict[str, Any]:
    body = [_text(message.subject, weight="Bolder", size="Medium"), _text(message.summary)]
    body += map(_text, _notes(message))
    for group in message.groups:
        body.append(_text(f"{group.title} ({len(group.items)})", weight="Bolder"))
        for item in group.items[:shown]:
            body.append(_text(f"{item.name}: ", item.text))
        body += map(_text, _more(group, shown))
    return {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": label, "url": address} for label, address in message.links],
    }


def _text(text: str, rest: str = "", *, weight: str = "Default", size: str = "Default") -> dict[str, Any]:
    runs = [{"type": "TextRun", "text": text, "weight": "Bolder" if rest else weight, "size": size}]
    runs += [{"type": "TextRun", "text": rest}] if rest else []
    return {"type": "RichTextBlock", "inlines": runs}


def _notes(message: Message) -> list[str]:
    """Return what is to be known of the whole; a fleet of many clusters may have a warning for each."""
    left = len(message.warnings) - SHOWN_IN_CHAT
    more = [f"Note: {left:,} more of these are in the report"] if left > 0 else []
    return [f"Note: {warning}" for warning in message.warnings[:SHOWN_IN_CHAT]] + more


def _more(group: Group, shown: int) -> list[str]:
    left = len(group.items) - shown
    return [f"and {left:,} more, in the report"] if left > 0 else []


def webhook(message: Message) -> dict[str, Any]:
    """Return everything that the message holds, for a program."""
    return {
        "version": BODY_VERSION,
        "as_of": _iso(message.as_of),
        "owner": message.owner,
        "subject": message.subject,
        "summary": message.summary,
        "warnings": list(message.warnings),
        "groups": [
            asdict(group) | {"items": [_webhook_item(item) for item in group.items]} for group in message.groups
        ],
        "links": [{"title": label, "url": address} for label, address in message.links],
    }


def _webhook_item(item: Item) -> dict[str, Any]:
    return {
        "cluster": item.cluster,
        "topic": item.topic,
        "partitions": item.partitions,
        "told": item.text,
        "evidence": item.evidence,
        "dead_since": _iso(item.dead_since),
        "readers": item.readers,
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else iso(at.timestamp())


@cache
def _templates(*, escaped: bool) -> Environment:
    return Environment(
        loader=PackageLoader("exporter.delivery"),
        autoescape=escaped,  # noqa: S701 - a mail in plain text shows what is written
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
