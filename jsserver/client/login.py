"""The flags of command lines that say which server is meant, and who asks."""

import argparse

from jsserver.client.credentials import (
    Credentials,
    Tls,
    read_credentials_file,
    read_seed_file,
)


def add_login(made: argparse.ArgumentParser) -> None:
    """The flags that say which server, and who asks."""
    made.add_argument("-s", "--server", default="nats://127.0.0.1:4222", help="URL of the server")
    made.add_argument("--user", default="", help="name to log in with")
    made.add_argument("--password", default="", help="its password")
    made.add_argument("--token", default="", help="a token to log in with")
    made.add_argument("--nkey", default="", help="a file with the seed of an nkey")
    made.add_argument("--creds", default="", help="a .creds file")
    made.add_argument("--tlsca", default="", help="authorities of the server's certificate, in PEM")
    made.add_argument("--tlscert", default="", help="the client's certificate")
    made.add_argument("--tlskey", default="", help="its private key")


def login_of(options: argparse.Namespace) -> tuple[Credentials, Tls]:
    """What those flags say; CredentialsError."""
    if options.creds:
        credentials = read_credentials_file(options.creds)
    else:
        credentials = Credentials(
            user=options.user,
            password=options.password,
            token=options.token,
            nkey_seed=read_seed_file(options.nkey).nkey_seed if options.nkey else "",
        )
    return credentials, Tls(options.tlsca, options.tlscert, options.tlskey)
