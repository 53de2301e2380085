"""How large a mail a server takes: some say it first, others only refuse one."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from email.policy import SMTPUTF8

_TOO_LARGE = 552


def is_too_large(mail: EmailMessage, connection: smtplib.SMTP) -> bool:
    """Return whether the server said that it takes no mail of that size (RFC 1870)."""
    connection.ehlo_or_helo_if_needed()
    most = connection.esmtp_features.get("size", "")
    return most.isdecimal() and 0 < int(most) < len(mail.as_bytes(policy=SMTPUTF8))


def fits(mail: EmailMessage, connection: smtplib.SMTP, sender: str, to: str) -> bool:
    """Send a mail; return False where the server refused it for its size. Raises what smtplib raises."""
    try:
        connection.send_message(mail, sender, [to])
    except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
        if error.smtp_code != _TOO_LARGE:
            raise
        return False
    return True
