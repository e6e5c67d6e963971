"""INFO: what the server tells every client first, in the pieces the data plane puts together."""

import msgspec

from jsserver import API_LEVEL, NATS_VERSION
from jsserver.goformat import escape_json

#: Texts of the `go` field: the program is no Go program, but clients expect a string.
GO = "go1.26.8"


class InfoHead(msgspec.Struct, kw_only=True):
    """The fields before client_id, in the order nats-server writes them."""

    server_id: str
    server_name: str
    version: str = NATS_VERSION
    proto: int = 1
    go: str = GO
    host: str
    port: int
    headers: bool
    auth_required: bool | msgspec.UnsetType = msgspec.UNSET
    max_payload: int
    jetstream: bool | msgspec.UnsetType = msgspec.UNSET


class InfoTail(msgspec.Struct, kw_only=True):
    """The fields behind client_ip and what connect_info adds."""

    domain: str | msgspec.UnsetType = msgspec.UNSET
    connect_urls: list[str] | msgspec.UnsetType = msgspec.UNSET
    ldm: bool | msgspec.UnsetType = msgspec.UNSET
    api_lvl: int = API_LEVEL
    xkey: str


def pieces(head: InfoHead, tail: InfoTail) -> tuple[bytes, bytes, bytes]:
    """The three parts of the INFO line; between the first two stand client_id and client_ip.

    There is one blank between the closing brace and CRLF, as nats-server has it.
    """
    first = escape_json(msgspec.json.encode(head))
    last = escape_json(msgspec.json.encode(tail))
    return (
        b"INFO " + first[:-1] + b',"client_id":',
        b',"connect_info":true,"remote_account":"$G"',
        b"," + last[1:] + b" \r\n",
    )
