"""Database URLs in the forms that SQLAlchemy and libpq take."""

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import make_url

from durable_jobs.urls import libpq_url, sqlalchemy_url

PASSWORD = "p@ss %40w/:+#?&'\""
URL = "postgresql://boss:p%40ss%20%2540w%2F%3A%2B%23%3F%26'%22@db.example:6543/shop?sslmode=require"


def test_a_password_of_odd_characters_reaches_libpq_unchanged() -> None:
    parts = conninfo_to_dict(libpq_url(URL))
    assert (parts["password"], parts["dbname"], parts["sslmode"]) == (PASSWORD, "shop", "require")


def test_a_password_of_odd_characters_reaches_sqlalchemy_unchanged() -> None:
    assert make_url(sqlalchemy_url(URL)).password == PASSWORD


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://boss:secret@db.example:6543/shop",
        "postgres://boss:a%40b%2Fc@127.0.0.1/shop",
        "postgresql+psycopg://boss:with~.-_@localhost/durable_jobs",
    ],
)
def test_a_plain_url_is_read_without_sqlalchemy_and_means_the_same(url: str) -> None:
    with_it = make_url(sqlalchemy_url(url)).set(drivername="postgresql")
    assert conninfo_to_dict(libpq_url(url)) == conninfo_to_dict(with_it.render_as_string(hide_password=False))


def test_options_with_spaces_and_plus_signs_reach_libpq_as_they_are() -> None:
    url = "postgresql://u:p@h/d?options=-c%20jit%3Doff%20-c%20work_mem%3D1MB&application_name=a%2Bb"
    assert conninfo_to_dict(libpq_url(url)) == {
        "user": "u",
        "password": "p",
        "host": "h",
        "dbname": "d",
        "options": "-c jit=off -c work_mem=1MB",
        "application_name": "a+b",
    }
