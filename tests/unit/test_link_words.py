"""What servers say of themselves, as recorded from nats-server."""

import pytest

from jsserver.links.mesh import agreed_size
from jsserver.links.words import Info, RouteConnect, connect_line, info_line, read

RECORDED = (
    b'{"server_id":"NA","server_name":"n1","version":"2.14.5","proto":3,"go":"go1.25","host":"127.0.0.1",'
    b'"port":6222,"headers":true,"max_payload":1048576,"cluster":"CL","lnoc":true,"lnocu":true,'
    b'"route_pool_size":3}'
)


def test_an_info_is_written_as_it_was_read() -> None:
    assert info_line(read(RECORDED + b" ", Info)) == b"INFO " + RECORDED + b" \r\n"


def test_a_connect() -> None:
    connect = RouteConnect(name="NA", cluster="CL", lnoc=True, password="x")
    assert connect_line(connect) == (
        b'CONNECT {"echo":true,"verbose":false,"pedantic":false,"pass":"x","tls_required":false,'
        b'"headers":true,"name":"NA","cluster":"CL","lnoc":true}\r\n'
    )


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"null", b'{"port":"x"}', b'{"gossip_mode":256}', b'{"server_id":1}', b"{"]
)
def test_what_is_none(text: bytes) -> None:
    with pytest.raises(ValueError):
        read(text, Info)


def test_null_and_unknown_keys_say_nothing() -> None:
    assert read(b'{"cluster":null,"more":[1],"import":null}', Info) == Info()
    assert read(b'{"lnoc":true}', RouteConnect).lnoc


@pytest.mark.parametrize(("own", "others", "size"), [(3, 3, 3), (1, 3, 3), (-1, 3, 0), (3, 0, 0)])
def test_sizes(own: int, others: int, size: int) -> None:
    assert agreed_size(own, others) == size
