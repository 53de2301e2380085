"""One scrape of /metrics, as it is timed."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

_TIMEOUT = 120.0


def scrape(url: str, encoding: str = "identity") -> bytes:
    """Return the answer as it came over the wire. Raises OSError or http.client.HTTPException where there is none."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=_TIMEOUT)
    try:
        connection.request("GET", place.path or "/metrics", headers={"Accept-Encoding": encoding})
        response = connection.getresponse()
        body = response.read()
        if response.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"{url} answered {response.status}")
        return body
    finally:
        connection.close()
