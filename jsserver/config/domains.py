"""The `default_js_domain` option: accounts whose requests go to the JetStream of a domain."""

from __future__ import annotations

from jsserver.config import ConfigError
from jsserver.config.authorization import valid_subject
from jsserver.config.options import GLOBAL_ACCOUNT, Destination, Mapping, Options
from jsserver.text.goformat import quote

_REQUESTS = (
    "INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>",
)  # fmt: skip
_MATERIALISED = ("$KV.>", "$OBJ.>")


def apply_default_domains(options: Options) -> None:
    """Maps requests of the accounts that the option names to their domains; ConfigError."""
    if options.operators.enabled:
        raise ConfigError("default_js_domain is not available in operator mode in this version")
    known = {account.name: account for account in options.accounts}
    for name, domain in options.default_domains.items():
        account = known.get(name)
        if account is None and name != GLOBAL_ACCOUNT:
            raise ConfigError(
                "in non operator mode, `default_js_domain` references non existing account "
                + quote(name)
            )
        if account is not None and account.jetstream is not None and domain:
            raise ConfigError(
                f"default_js_domain contains account name {quote(name)} with enabled JetStream"
            )
        if name == options.system:
            raise ConfigError(f"system account {quote(name)} can not be in default_js_domain")
        if domain and not valid_subject(f"$JS.{domain}.API.>"):
            raise ConfigError(
                f"default_js_domain contains account {quote(name)} with invalid domain name "
                + quote(domain)
            )
        if domain and name not in options.jetstream_accounts:
            (options if account is None else account).mappings += _mappings(domain)


def _mappings(domain: str) -> list[Mapping]:
    within = f"$JS.{domain}.API."
    pairs = [(f"$JS.API.{request}", within + request) for request in _REQUESTS]
    pairs += [(subject, within + subject) for subject in _MATERIALISED]
    return [Mapping(source=a, destinations=[Destination(subject=b)]) for a, b in pairs]
