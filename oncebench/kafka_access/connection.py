"""Finds out why a connection to a secured Kafka fails, in less than ten seconds.

librdkafka gives the same text for a wrong authority, a wrong host name and an expired certificate. Python's TLS
distinguishes them, so it tries all addresses at once first. The login is then tried by librdkafka at the first address
that answers. Its error callback has the broker's answer; the exception of the call itself is a time-out only.

Promise: no message contains a secret.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from queue import Queue
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from oncebench.kafka_access.forms import tls_context

LIMIT_S = 8.0
_PROTOCOL = re.compile(r"^\w+://")  # every client ignores it in front of an address
_HOST = re.compile(r"\[[^\[\]/\s]+\]|[^\[\]/:;\s]+")  # an IPv6 address in brackets, or a name
_DEFAULT_PORT, _LAST_PORT = 9092, 65535
_CONNECT_S = 3.0  # for one address, and for its TLS handshake
_LEAST_S = 0.2  # for the addresses if the limit is over
_LOGIN_S = 4.0  # the login has at least this, whatever the addresses took: a distant cluster takes a second or two
_TRY_S = 0.5  # of one request, before the error callback is looked at
_REACT_S = 0.1  # of a broker, besides the time on the network
# Errors that no later try mends.
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
# What librdkafka reports if a broker refuses the client's certificate after the handshake, as a broken connection.
_CERTIFICATE_ALERT = re.compile(r"SSL routines:[^:]*:([^:]* alert [^:]*(?:certificate|unknown ca)[^:]*)")
# OpenSSL's verify codes (x509_vfy.h): the issuer is unknown, the time is wrong, the name is wrong.
_ISSUER, _TIME, _NAME = (18, 19, 20, 21), (9, 10), (62, 64)


class Refusal(NamedTuple):
    """Why a connection fails.

    Attributes:
        why: a sentence that names the cause and what to do, without a stop.
        lasting: whether every later try fails too, until somebody corrects the cause.
    """

    why: str
    lasting: bool


def is_secured(client: Mapping[str, Any]) -> bool:
    """Whether connections use TLS or a login."""
    return str(client.get("security.protocol", "PLAINTEXT")).upper() != "PLAINTEXT"


def addresses(servers: str) -> list[tuple[str, int]]:
    """Returns the addresses of `host:port,...`.

    Raises:
        ValueError: the text has another form; the error is the part of it.
    """
    return [_address(text.strip()) for text in servers.split(",")]


def why_no_connection(servers: str) -> str | None:
    """Returns why no address of `host:port,...` takes a connection.

    None: one does, or the text has another form.
    """
    found = []
    try:
        for host, port in addresses(servers):
            try:
                with socket.create_connection((host, port), _CONNECT_S):
                    return None
            except OSError as error:
                found.append(f"{host}:{port}: {_text(error)}")
    except ValueError:
        return None
    return ", ".join(found)


def why_no_tls(client: Mapping[str, Any], host: str, port: int, limit_s: float = _CONNECT_S) -> Refusal | None:
    """Returns why a TLS connection to an address fails; None: it does not."""
    place = f"{host}:{port}"
    try:
        context = tls_context(client)
    except (ssl.SSLError, OSError) as error:
        return Refusal(
            f"a file of certificates or its key cannot be used ({_text(error)}). Check ssl.truststore.location, "
            "ssl.keystore.location and ssl.key.password",
            lasting=True,
        )
    try:
        plain = socket.create_connection((host, port), timeout=limit_s)
    except OSError as error:
        why = f"{place} cannot be reached ({_text(error)}). Check the address, and that the broker runs"
        return Refusal(why, lasting=False)
    try:
        with plain, context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False) as secured:
            began = time.monotonic()
            secured.do_handshake()
            return _why_not_accepted(secured, place, time.monotonic() - began + _REACT_S)
    except ssl.SSLCertVerificationError as error:
        return Refusal(_why_not_trusted(error, place), lasting=True)
    except ssl.SSLEOFError:
        return _no_tls(place)
    except ssl.SSLError as error:
        return Refusal(_why_alert(_text(error), place), lasting=True)
    except OSError:  # the connection was closed, or there was no answer in time
        return _no_tls(place)


def why_refused(client: Mapping[str, Any], limit_s: float = LIMIT_S) -> Refusal | None:
    """Returns why a secured Kafka cannot be used; None: it can.

    A broker that is away at one of several addresses is no reason.
    """
    until = time.monotonic() + limit_s
    try:
        places = addresses(str(client["bootstrap.servers"]))
    except ValueError as error:
        return Refusal(f"{str(error)!r} is not an address of the form host:port. Correct it", lasting=True)
    if str(client["security.protocol"]).upper().endswith("SSL"):
        found = _first_with_tls(client, places, max(_LEAST_S, min(_CONNECT_S, limit_s)))
        if isinstance(found, Refusal):
            return found
        client = {**client, "bootstrap.servers": found}
        until = max(until, time.monotonic() + _LOGIN_S)
    errors: list[KafkaError] = []
    try:
        admin = AdminClient({**client, "log_level": 0, "error_cb": errors.append})
    except KafkaException as error:
        return Refusal(f"Kafka's client refuses a setting ({error.args[0].str()}). Correct it", lasting=True)
    last: KafkaError | None = None
    while last is None or time.monotonic() < until:
        try:
            admin.list_topics(timeout=_TRY_S)
            return None
        except KafkaException as error:
            last = error.args[0]
        admin.poll(0)  # calls error_cb
        if any(map(_lasts, errors)):
            break
    telling = [error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
    refused = [error for error in telling if _lasts(error)]
    return Refusal(_why_no_login(client, (refused or telling[-1:] or [last])[0]), lasting=bool(refused))


def _first_with_tls(client: Mapping[str, Any], places: Sequence[tuple[str, int]], limit_s: float) -> str | Refusal:
    """Asks all addresses at once; returns the first one at which TLS works.

    If there is none, returns why, for a lasting reason if an address has one.
    """
    answers: Queue[tuple[int, Refusal | Exception | None]] = Queue()

    def ask(number: int, host: str, port: int) -> None:
        try:
            answers.put((number, why_no_tls(client, host, port, limit_s)))
        except Exception as error:  # no error may leave the other thread waiting
            answers.put((number, error))

    for number, place in enumerate(places):
        Thread(target=ask, args=(number, *place), daemon=True).start()
    refusals: dict[int, Refusal] = {}
    while len(refusals) < len(places):
        number, answer = answers.get()
        if answer is None:
            host, port = places[number]
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if isinstance(answer, Exception):
            raise answer
        refusals[number] = answer
    in_order = [refusals[number] for number in sorted(refusals)]
    return next((refusal for refusal in in_order if refusal.lasting), in_order[0])


def _lasts(error: KafkaError) -> bool:
    return error.code() in _REFUSED or _CERTIFICATE_ALERT.search(error.str()) is not None


def _why_no_login(client: Mapping[str, Any], error: KafkaError | None) -> str:
    text = "no answer" if error is None else error.str()
    if alert := _CERTIFICATE_ALERT.search(text):
        return _why_alert(alert[1], "the broker")
    mechanism = client.get("sasl.mechanism")
    if error is not None and error.code() == KafkaError._AUTHENTICATION and mechanism:
        who = client.get("sasl.username") or client.get("sasl.oauthbearer.client.id")
        if "nsupported" in text or "not enabled" in text.lower():
            return f"the broker does not have sasl.mechanism {mechanism} ({text}). Set one that the listener has"
        if mechanism == "OAUTHBEARER":
            return (
                f"no token for client {who!r} is accepted ({text}). Check clientId, clientSecret and scope in "
                "sasl.jaas.config, and sasl.oauthbearer.token.endpoint.url"
            )
        return (
            f"the broker refuses the login of user {who!r} with {mechanism}: user or password is wrong ({text}). "
            "Correct sasl.jaas.config"
        )
    return f"the broker does not answer this client ({text}). Check security.protocol, sasl.mechanism and the listener"


def _no_tls(place: str) -> Refusal:
    """A broker that closes the connection: it does not speak TLS, or it is being stopped."""
    why = f"{place} does not answer a TLS handshake. Correct security.protocol, or name the cluster's TLS listener"
    return Refusal(why, lasting=False)


def _why_not_accepted(secured: ssl.SSLSocket, place: str, limit_s: float) -> Refusal | None:
    """Returns the broker's refusal of a client's certificate; None: no refusal.

    Under TLS 1.3 a broker refuses the certificate after the handshake, with its first answer.
    """
    secured.settimeout(limit_s)
    try:
        secured.recv(1)
    except TimeoutError:
        return None  # the broker waits for a request
    except ssl.SSLError as error:
        return Refusal(_why_alert(_text(error), place), lasting=True)
    except OSError:
        return None
    return None


def _why_alert(said: str, place: str) -> str:
    text = said.upper().replace(" ", "_")
    if "CERTIFICATE_REQUIRED" in text or "HANDSHAKE_FAILURE" in text or "BAD_CERTIFICATE" in text:
        return (
            f"{place} requires a client's certificate that it trusts ({said}). Set ssl.keystore.type=PEM and "
            "ssl.keystore.location to a certificate that the cluster's authority has signed"
        )
    if "CERTIFICATE_EXPIRED" in text:
        return f"{place} refuses this client's certificate, which has expired. Renew the file of ssl.keystore.location"
    if "CERTIFICATE" in text or "UNKNOWN_CA" in text:
        return (
            f"{place} refuses this client's certificate ({said}). Name one that the cluster's authority has "
            "signed in ssl.keystore.location"
        )
    if "WRONG_VERSION" in text or "RECORD_LAYER" in text:
        return f"{place} does not speak TLS. Correct security.protocol, or name the cluster's TLS listener"
    return f"{place} ends the TLS handshake ({said}). Check security.protocol and the listener"


def _why_not_trusted(error: ssl.SSLCertVerificationError, place: str) -> str:
    code, message = error.verify_code, error.verify_message.rstrip(".")
    if code in _NAME:
        return (
            f"the certificate of {place} is for another host name ({message}). Name the brokers as in their "
            "certificate, or have it renewed with this name"
        )
    if code in _TIME:
        return f"the certificate of {place} is not valid now ({message}). Renew it, or correct this machine's clock"
    if code in _ISSUER:
        return (
            f"the certificate of {place} is signed by an authority that is not trusted here ({message}). Name the "
            "cluster's authority in ssl.truststore.location"
        )
    return f"the certificate of {place} is refused ({message}). Correct it, or ssl.truststore.location"


def _text(error: OSError) -> str:
    reason = getattr(error, "reason", None)  # of an ssl.SSLError, without file and line
    return str(reason or error.strerror or error).replace("_", " ").lower()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = _PROTOCOL.sub("", text, count=1).rpartition(":")
    if not colon:
        host, port = port, str(_DEFAULT_PORT)
    if not (_HOST.fullmatch(host) and port.isdecimal() and 0 < int(port) <= _LAST_PORT):
        raise ValueError(text)
    try:
        host.encode("idna")  # as a look-up does
    except UnicodeError:
        raise ValueError(text) from None
    return host.strip("[]"), int(port)
