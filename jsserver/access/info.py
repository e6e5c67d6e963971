"""INFO: what the server tells every client first, in the pieces the data plane puts together."""

from jsserver import API_LEVEL, NATS_VERSION
from jsserver.text.goformat import json_string

#: Texts of the `go` field: the program is no Go program, but clients expect a string.
GO = "go1.26.8"


def pieces(
    *,
    server_id: str,
    server_name: str,
    host: str,
    port: int,
    headers: bool,
    auth_required: bool,
    tls_required: bool,
    tls_verify: bool,
    tls_available: bool,
    jetstream: bool,
    domain: str,
    xkey: str,
) -> tuple[bytes, bytes, bytes]:
    """The three parts of the INFO line; between them stand numbers: the most bytes of a message,
    and the client's id, with what else its connection adds.

    The fields are in nats-server's order, and like there a switch that is off and an empty domain
    are left out; there is one blank between the closing brace and CRLF.
    """
    head = [
        f'"server_id":{json_string(server_id)}',
        f'"server_name":{json_string(server_name)}',
        f'"version":"{NATS_VERSION}","proto":1,"go":"{GO}"',
        f'"host":{json_string(host)},"port":{port}',
        f'"headers":{"true" if headers else "false"}',
    ]
    switches = {
        "auth_required": auth_required,
        "tls_required": tls_required,
        "tls_verify": tls_verify,
        "tls_available": tls_available,
    }
    head += [f'"{name}":true' for name, on in switches.items() if on]
    middle = ',"jetstream":true' if jetstream else ""
    tail = [f'"domain":{json_string(domain)}'] if domain else []
    tail += [f'"api_lvl":{API_LEVEL}', f'"xkey":{json_string(xkey)}']
    return (
        f'INFO {{{",".join(head)},"max_payload":'.encode(),
        f'{middle},"client_id":'.encode(),
        f",{','.join(tail)}}} \r\n".encode(),
    )
