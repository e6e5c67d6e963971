"""The subjects on which the control plane answers clients.

What they stand for is in `system.py`, `operators.py` and `jsserver/api`. The data plane knows of
them before a client can connect, so that requests wait for the control plane where it is not there
yet.
"""

from jsserver.cext.bytes import subject_is_literal, subject_is_valid

API = "$JS.API.>"
OBJECTS = "$OBJ.>"
USER_INFO = "$SYS.REQ.USER.INFO"
CONNECTIONS = ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ")
STATISTICS = "$SYS.REQ.ACCOUNT.PING.STATZ"
SYSTEM = (USER_INFO, *CONNECTIONS, STATISTICS)
"""What every account is offered."""

OF_A_SERVER = "$SYS.REQ.SERVER."
OF_AN_ACCOUNT = "$SYS.REQ.ACCOUNT."
SUBSCRIBERS = "$SYS.DEBUG.SUBSCRIBERS"
SUBSCRIBERS_OF = "$SYS.REQ.ACCOUNT.NSUBS"
"""The same of any account, which servers ask each other."""
SERVER_PAGES = (
    *("VARZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "SUBSZ", "ACCOUNTZ", "JSZ", "HEALTHZ"),
    *("STATSZ", "IDZ", "RAFTZ", "IPQUEUESZ", "EXPVARZ", "PROFILEZ"),
)
SERVER_CONTROLS = ("KICK", "LDM", "RELOAD", "JSSERVER.DIGEST", "JSSERVER.REBUILD")
ACCOUNT_PAGES = ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")


def is_plain_subject(text: str) -> bool:
    """Whether messages can be sent to this subject; so it can be a part of others too, as the name
    of an account is in `$SYS.ACCOUNT.A.CONNECT`. Nothing with a blank, an empty token or a wildcard
    can."""
    return subject_is_valid(text) and subject_is_literal(text)


def of_the_system_account(server_id: str) -> list[str]:
    """What users of the system account may ask this server."""
    asked = [f"{OF_A_SERVER}PING.{page}" for page in SERVER_PAGES]
    asked += [f"{OF_A_SERVER}{server_id}.{page}" for page in (*SERVER_PAGES, *SERVER_CONTROLS)]
    asked += [f"{OF_AN_ACCOUNT}*.{page}" for page in ACCOUNT_PAGES]
    return [USER_INFO, SUBSCRIBERS, SUBSCRIBERS_OF, f"{OF_A_SERVER}PING", *asked]
