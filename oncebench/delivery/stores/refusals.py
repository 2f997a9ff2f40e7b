"""Distinguishes a refusal of Amazon S3, or of a compatible store, from an outage.

Promise: pure functions over the text of obstore's errors. Its first line has the HTTP status. The lines below have the
store's answer, of which only the code is used: the answer may repeat a session token. An answer to HEAD has no code.

Source: Amazon S3's list of error codes, https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html.
"""

from __future__ import annotations

import re

NO_BUCKET = "NoSuchBucket"
_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w+)</Code>")
# obstore's text for each redirect: Amazon S3 redirects a request to another region without an address.
_REDIRECT = "redirect without LOCATION"
_LOGIN = (401, 403)
# Not found, the time of the request or the rate, and two puts of one name: a later request may be answered otherwise.
_PASSING = (404, 408, 409, 412, 425, 429)
# Amazon S3 gives them with status 400: the connection was slow, or was cut.
_PASSING_CODES = ("RequestTimeout", "IncompleteBody")
_REGION = ("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect")
_TOKEN = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
_CLOCK = ("RequestTimeTooSkewed",)


def advice(text: str) -> str | None:
    """Returns the remedy if the store refuses a request for good; None if it may answer later."""
    code, status = _code(text), _STATUS.search(text)
    number = int(status[1]) if status else 0
    if code in _PASSING_CODES:
        return None
    if code in _REGION or _REDIRECT in text:
        return "Set AWS_REGION to the region of the bucket, and check AWS_ENDPOINT_URL"
    if code in _TOKEN:
        return "Take a new AWS_SESSION_TOKEN, with its AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if code in _CLOCK:
        return "Correct the clock of this machine"
    if number in _LOGIN:
        return "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the right to read, write, list and delete there"
    if 300 <= number < 500 and number not in _PASSING:
        return "Check AWS_ENDPOINT_URL and AWS_REGION, and that the store is compatible with Amazon S3"
    return None


def short(error: BaseException) -> str:
    """Returns the first line of an error, with the store's code.

    The line has no secret: addresses and status only.
    """
    text = str(error).strip()
    first = (text.splitlines() or [type(error).__name__])[0].partition(": <")[0].rstrip(": ")[:400]
    code = _code(text)
    return first if code is None or code in first else f"{first}: {code}"


def _code(text: str) -> str | None:
    found = _CODE.search(text)
    return found[1] if found else None
