"""INFO: what the server tells every client first, in the pieces the data plane puts together."""

from collections import namedtuple

from jsserver import API_LEVEL, NATS_VERSION
from jsserver.config.options import Options
from jsserver.text.goformat import json_string, split_address

#: Texts of the `go` field: the program is no Go program, but clients expect a string.
GO = "go1.26.8"

Pieces = tuple[bytes, bytes, bytes]
"""The three parts of the INFO line; between them stand numbers: the most bytes of a message, and
the client's id, with what else its connection adds."""


Urls = namedtuple("Urls", "plain websocket")
"""Addresses, `host:port`, that clients connect to: by the protocol's own port, and by WebSocket."""


class InfoBuilder:
    """Makes the INFO of one server, for each of its listeners."""

    def __init__(self, server_id: str, server_name: str, xkey: str, *, jetstream: bool) -> None:
        """`xkey`: what others encrypt for the server with."""
        self._id = server_id
        self._name = server_name
        self._xkey = xkey
        self._jetstream = jetstream
        self.cluster = ""
        """The name of the cluster that the server is in."""
        self.urls = Urls([], [])
        """Where clients may connect instead."""
        self.lame = False
        """Whether clients had better do so."""

    def for_clients(self, options: Options, port: int) -> Pieces:
        """What clients of the protocol's own port are told."""
        host = options.host
        if options.client_advertise:
            host = options.client_advertise
            if ":" in host.rpartition("]")[2]:
                host, port = split_address(host)
            host = host.strip("[]")
        return self._pieces(
            options,
            host,
            port,
            auth_required=options.auth_required and not options.no_auth_user,
            tls_required=options.tls_required,
            tls_available=options.tls is not None and options.allow_non_tls,
            urls=self.urls.plain,
        )

    def for_websocket(
        self, options: Options, host: str, port: int, *, auth_required: bool
    ) -> Pieces:
        """What clients that speak WebSocket are told."""
        secured = options.websocket.tls is not None
        return self._pieces(
            options,
            host,
            port,
            auth_required=auth_required,
            tls_required=secured,
            tls_available=secured,
            urls=self.urls.websocket,
        )

    def _pieces(
        self,
        options: Options,
        host: str,
        port: int,
        *,
        auth_required: bool,
        tls_required: bool,
        tls_available: bool,
        urls: list[str],
    ) -> Pieces:
        """The fields are in nats-server's order, and like there a switch that is off and an empty
        domain are left out; there is one blank between the closing brace and CRLF."""
        domain = options.jetstream.domain if options.jetstream.enabled else ""
        head = [
            f'"server_id":{json_string(self._id)}',
            f'"server_name":{json_string(self._name)}',
            f'"version":"{NATS_VERSION}","proto":1,"go":"{GO}"',
            f'"host":{json_string(host)},"port":{port}',
            f'"headers":{"false" if options.no_header_support else "true"}',
        ]
        switches = {
            "auth_required": auth_required,
            "tls_required": tls_required,
            "tls_verify": options.tls is not None and options.tls.verify,
            "tls_available": tls_available,
        }
        head += [f'"{name}":true' for name, on in switches.items() if on]
        middle = ',"jetstream":true' if self._jetstream else ""
        tail = [f'"cluster":{json_string(self.cluster)}'] if self.cluster else []
        tail += [f'"domain":{json_string(domain)}'] if domain else []
        tail += [f'"connect_urls":[{",".join(map(json_string, urls))}]'] if urls else []
        tail += ['"ldm":true'] if self.lame else []
        tail += [f'"api_lvl":{API_LEVEL}', f'"xkey":{json_string(self._xkey)}']
        return (
            f'INFO {{{",".join(head)},"max_payload":'.encode(),
            f'{middle},"client_id":'.encode(),
            f",{','.join(tail)}}} \r\n".encode(),
        )
