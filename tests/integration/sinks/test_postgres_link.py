"""The PostgreSQL sink behind a proxy: a COMMIT or a claim has no answer.

The request took effect, or never arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext, suppress

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oncebench.delivery.errors import AnotherDriver, DeliveryFailed
from oncebench.servers.postgres import PostgresServer
from oncebench.servers.proxy.framing import PostgresFraming, commit_outcome, is_commit
from oncebench.servers.proxy.tcp import Catch, Proxy
from oncebench.sinks.postgres.connection import VARIABLE
from tests.integration.sinks.postgres_output import Output, batch, drop_connections, write, writer_of

pytestmark = pytest.mark.integration
# psycopg prepares a statement that it has executed five times, and from the next time on executes what it has prepared.
PREPARED_AFTER = 5


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    port = int(conninfo_to_dict(server.dsn)["port"] or 0)
    with closing(Proxy(PostgresFraming())) as made, made.open(port):
        yield made


@pytest.fixture
def output(
    server: PostgresServer, proxy: Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Output]:
    """Its sinks reach the server through the proxy."""
    monkeypatch.setenv(VARIABLE, make_conninfo(server.dsn, port=proxy.port))
    with ExitStack() as stack:
        stack.callback(drop_connections)
        yield Output(f"t{abs(hash(request.node.name)) % 10**12}", stack)


@pytest.mark.parametrize("before", [0, PREPARED_AFTER, PREPARED_AFTER + 1, PREPARED_AFTER + 3])
@pytest.mark.parametrize("variant", ["claim", "acknowledged", "idempotent", "upsert"])
def test_a_lost_answer_is_that_of_a_commit_that_took_effect_however_many_came_before_it_on_that_connection(
    output: Output, proxy: Proxy, variant: str, before: int
) -> None:
    writer = writer_of(output.sink(variant), variant)
    for number in range(before):
        write(writer, number, 0, batch(f"k{number}"))
    catch = Catch(is_commit)
    proxy.catch(catch)
    # Only the ledger of `idempotent` shows that the COMMIT took effect.
    with nullcontext() if variant == "idempotent" else pytest.raises(DeliveryFailed):
        write(writer, before, 0, batch(f"k{before}"))
    proxy.forget(catch)
    assert catch.request is not None, "a COMMIT was seen"
    assert commit_outcome(catch.answer or b"") == {"command_tag": "COMMIT"}
    assert output.visible() == {f"k{number}": 2 for number in range(before + 1)}


@pytest.mark.parametrize("variant", ["claim", "acknowledged", "idempotent", "upsert"])
def test_a_commit_that_never_arrived_fails_the_task_and_the_next_one_writes(
    output: Output, proxy: Proxy, variant: str
) -> None:
    writer = writer_of(output.sink(variant), variant)
    catch = Catch(lambda request: is_commit(request) and never_sent(), held_s=0.0)

    def never_sent() -> bool:
        catch.forgotten = True
        return True

    proxy.catch(catch)
    with pytest.raises(DeliveryFailed):
        write(writer, 0, 0, batch("k"))
    assert catch.request is not None, "a COMMIT was seen"
    assert output.visible() == {}
    write(writer, 0, 0, batch("k"))
    assert output.visible() == {"k": 2}


def test_a_claim_whose_answer_was_lost_is_the_drivers_own(output: Output, proxy: Proxy) -> None:
    sink = output.sink("claim")
    catch = Catch(lambda request: b"INSERT INTO" in request)
    proxy.catch(catch)
    sink.claim(7)
    proxy.forget(catch)
    assert commit_outcome(catch.answer or b"") == {"command_tag": "INSERT 0 1"}
    sink.claim(8)
    newer = output.sink("claim")
    for driver, number in ((sink, 9), (newer, 8)):
        with pytest.raises(AnotherDriver, match=f"has taken a newer epoch or claimed batch {number}"):
            driver.claim(number)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["INSERT INTO once VALUES (1)", "INSERT INTO once VALUES (1)"], {"sqlstate": "23505"}),
        (["INSERT INTO nowhere VALUES (1)"], {"command_tag": "ROLLBACK"}),
        (["INSERT INTO once VALUES (1)", "PREPARE TRANSACTION 'p:1'"], {"command_tag": "COMMIT PREPARED"}),
    ],
)
def test_what_a_server_answers_to_a_commit_is_read_as_what_became_of_it(
    server: PostgresServer, proxy: Proxy, statements: list[str], said: dict[str, str]
) -> None:
    end = "COMMIT PREPARED 'p:1'" if statements[-1].startswith("PREPARE") else "COMMIT"
    with psycopg.connect(make_conninfo(server.dsn, port=proxy.port), autocommit=True) as connection:
        connection.execute("CREATE TABLE once (x integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("BEGIN")
        catch = Catch(is_commit)
        proxy.catch(catch)
        with suppress(psycopg.errors.UndefinedTable):
            for statement in statements:
                connection.execute(statement)
        with pytest.raises(psycopg.OperationalError):
            connection.execute(end)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE once")
    assert commit_outcome(catch.answer or b"") == said
