"""What a start has to say of valid options before it opens anything: why it refuses them, and what
it warns of."""

from __future__ import annotations

from collections.abc import Iterator

from jsserver.config.options import Options
from jsserver.text.goformat import byte_size, quote

MAX_PAYLOAD_RECOMMENDED = 8 << 20
"""Bytes; above it the log warns, as nats-server does."""


def refusal(options: Options) -> str:
    """Why no server can be started with these options; "": none of them is in the way."""
    if options.jetstream.enabled and options.system in options.jetstream_accounts:
        return "Not allowed to enable JetStream on the system account"
    if options.jetstream.enabled and options.gateway.port and not options.cluster.port:
        return (
            "Can't start JetStream: JetStream cluster requires configured routes or solicited"
            " leafnode for the system account: with gateway, it needs a cluster block"
        )
    if options.jetstream.enabled and options.cluster.port and (why := of_members(options)):
        return f"Can't start JetStream: {why}"
    if options.http_port and options.https_port:
        return (
            "Can't start monitoring: can't specify both HTTP "
            f"({options.http_port}) and HTTPs ({options.https_port}) ports"
        )
    if options.https_port and options.tls is None:
        return "Can't start monitoring: TLS cert and key required for HTTPS"
    return ""


def of_members(options: Options) -> str:
    """Why a server cannot take part in the JetStream of its cluster; "": it can."""
    from jsserver.config.values import not_available

    if options.jetstream.object_requests.enabled:
        return not_available("object_requests in a JetStream cluster")
    return ""


def warnings(options: Options) -> list[str]:
    """What the log of a start warns of, in its order."""
    found = [*of_operators(options), *of_passwords(options), *of_payloads(options)]
    found += [*of_domains(options), *of_store(options)]
    return [*found, *of_websocket(options), *of_handshakes(options)]


def of_operators(options: Options) -> Iterator[str]:
    if options.operators.claims and not options.system_account:
        yield "Trusted Operators should utilize a System Account"


def of_passwords(options: Options) -> Iterator[str]:
    """Users whose passwords can be read in the file, and those whom no password lets in."""
    if not options.auth_required or options.operators.enabled:
        return
    from jsserver.text.passwords import fits_nobody, is_bcrypt  # few start with passwords

    certified = options.certified_users
    single = options.authorization.password
    users = [u for u in options.users if u.name and (u.password or u.name not in certified)]
    if (single and not is_bcrypt(single)) or any(not is_bcrypt(u.password) for u in users):
        yield "Plaintext passwords detected, use nkeys or bcrypt"
    stored = [(f"user {quote(u.name)}", u.password) for u in users]
    stored.append((f"user {quote(options.authorization.username)}", single))
    stored.append(("authorization", options.authorization.token))
    for whose, password in stored:
        if fits_nobody(password):
            what = "token" if whose == "authorization" else "password"
            yield (
                f"The {what} of {whose} begins like a hash of bcrypt and is none: nobody can log in"
                " with it"
            )
    for name in {options.no_auth_user, options.websocket.no_auth_user} - {""}:
        if any(user.name == name and is_bcrypt(user.password) for user in users):
            yield (
                f"Nobody comes in as the no_auth_user {quote(name)}, whose password is a hash:"
                " remove the password"
            )


def of_domains(options: Options) -> Iterator[str]:
    if options.default_domains:
        yield (
            "The option `default_js_domain` is a temporary backwards compatibility measure and "
            "will be removed"
        )


def of_store(options: Options) -> Iterator[str]:
    if options.store_dir and not options.jetstream.enabled:
        yield (
            f"store_dir {quote(options.store_dir)} is not used, as JetStream is off: switch it on "
            "with -js, or with a jetstream block"
        )


def of_payloads(options: Options) -> Iterator[str]:
    if options.max_payload > MAX_PAYLOAD_RECOMMENDED:
        yield (
            f"Maximum payloads over {byte_size(MAX_PAYLOAD_RECOMMENDED)} are generally"
            " discouraged and could lead to poor performance"
        )


def of_websocket(options: Options) -> Iterator[str]:
    if options.websocket.port and options.websocket.tls is None:
        yield "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!"


def of_handshakes(options: Options) -> Iterator[str]:
    if options.tls is not None and options.tls.first_only:
        yield 'Clients that are not using "TLS Handshake First" option will fail to connect'
