"""Secrets in settings and texts: found by name and by form, and masked.

Harmless values stay.
"""

from __future__ import annotations

import pytest

from oncebench.redaction import has_secret, is_secret_setting, names_secret, redacted, stands_for_secret

SECRETS = {
    "jdbc:postgresql://h/db?user=u&password=hushhush": "jdbc:postgresql://h/db?user=u&password=***",
    "jdbc:sqlserver://h;user=sa;password={hush;hush};a=b": "jdbc:sqlserver://h;user=sa;password=***;a=b",
    "jdbc:oracle:thin:scott/hush@//h:1521/s": "jdbc:oracle:thin:scott/***@//h:1521/s",
    "mongodb://u:hush@h1:27017,h2:27017/d": "mongodb://u:***@h1:27017,h2:27017/d",
    "redis://:hush@h:6379": "redis://:***@h:6379",
    "https://u:hu/sh@h/x": "https://u:***@h/x",
    "https://u:1234@h/x": "https://u:***@h/x",
    'Login required username="u" password="hush hush";': 'Login required username="u" password="***";',
    "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=hush=": "Endpoint=sb://h/;SharedAccessKeyName=n;"
    "SharedAccessKey=***",
    "-Djavax.net.ssl.trustStorePassword=hush": "-Djavax.net.ssl.trustStorePassword=***",
    '{"password": "hush", "user": "u"}': '{"password": "***", "user": "u"}',
    "no answer from /rows?api_key=hush. Again": "no answer from /rows?api_key=***. Again",
    "https://h/c?sv=1&sig=hush%3D": "https://h/c?sv=1&sig=***",
    "{'Authorization': 'Bearer hush'}": "{'Authorization': 'Bearer ***'}",
    "-----BEGIN PRIVATE KEY-----\nhu\nsh\n-----END PRIVATE KEY-----": "-----BEGIN PRIVATE KEY-----***"
    "-----END PRIVATE KEY-----",
}
HARMLESS = (
    "jdbc:postgresql://h:5432/db?user=u&sslmode=require&sslkey=/me/key.pem",
    "mongodb://h1:27017,h2:27017/?appName=me@here", "http://h:80/me@example", "http://[::1]:80/me@example", "s3a://b/p",
    "partitionKey=id", "key=value", "recordkey=a,b", "SharedAccessKeyName=n", "usePassword=true", "bypass=1",
    "struct<password:string,token:int>", '{"name":"password","type":"string"}', "host=h dbname=d user=u",
    'FATAL: password authentication failed for user "u"', "basic authentication failed", '{"a":"https://h","b":"c@d"}',
    "password=$DB_PASSWORD", 'password="${DB_PASSWORD}";', "mongodb://u:$PW@h", "keytab=/etc/x",
)  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), SECRETS.items())
def test_a_secret_in_a_text_is_masked_once(text: str, shown: str) -> None:
    assert has_secret(text)
    assert redacted(text, environment={}) == shown
    assert not has_secret(shown)


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_text_stays(text: str) -> None:
    assert not has_secret(text)
    assert redacted(text, environment={}) == text


@pytest.mark.parametrize(
    "name",
    ["dbPassword", "passwd", "pwd", "apiKey", "pem_private_key", "fs.azure.account.key.a.blob",
     "kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "es.net.http.auth.pass", "credentials",
     "spark.cosmos.accountKey"],
)  # fmt: skip
def test_a_name_of_a_secret_is_found_unless_its_value_is_a_switch(name: str) -> None:
    assert names_secret(name)
    assert is_secret_setting(name, "hush")
    assert not is_secret_setting(name, "False")


@pytest.mark.parametrize(
    "name",
    ["url", "path", "partitionKey", "key.serializer", "spark.jars", "spark.executorEnv.PWD", "credentialsFile",
     "spark.hadoop.fs.s3a.aws.credentials.provider", "write.recordkey.field", "spark.kerberos.keytab", "bypass"],
)  # fmt: skip
def test_a_name_of_no_secret_is_not_found(name: str) -> None:
    assert not names_secret(name)


def test_only_a_whole_name_of_a_variable_stands_for_a_secret() -> None:
    assert all(map(stands_for_secret, ("$PW", "${PW}", "***")))
    assert not any(map(stands_for_secret, ("hu$h", "100$", "$1", "a$PW", "$PÄSS")))


def test_the_secrets_of_the_environment_are_masked_as_whole_words() -> None:
    variables = {"DB_PASSWORD": "hush.1", "PWD": "/home/me", "A_TOKEN": "abc", "PLACE": "there.1"}
    text = "user hush.1 and xhush.1y in /home/me, abc, there.1"
    assert redacted(text, environment=variables) == "user *** and xhush.1y in /home/me, abc, there.1"


def test_a_password_that_is_a_word_of_our_messages_hides_no_message() -> None:
    text = "sink postgres: password=postgres was refused"
    assert redacted(text, environment={"PGPASSWORD": "postgres"}) == "sink postgres: password=*** was refused"
