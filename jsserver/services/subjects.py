"""The subjects on which the control plane answers clients.

What they stand for is in `system.py` and `jsserver/api`. The data plane knows of them before a
client can connect, so that requests wait for the control plane where it is not there yet.
"""

API = "$JS.API.>"
USER_INFO = "$SYS.REQ.USER.INFO"
CONNECTIONS = ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ")
STATISTICS = "$SYS.REQ.ACCOUNT.PING.STATZ"
SYSTEM = (USER_INFO, *CONNECTIONS, STATISTICS)
