# Who hears whom: which kinds of messages reach the subscriptions of a connection of each kind. What serves inside the
# server chooses for itself (HEARS_* in bytes.pxd).

cdef int[KIND_HUB + 1] HEARD_BY

HEARD_BY[<int>KIND_CLIENT] = HEARS_ALL
# The server that a message came from has sent it to each of the cluster by itself. What a hub sends comes to each server of the
# leaf cluster by a connection of its own.
HEARD_BY[<int>KIND_ROUTER] = HEARS_ALL & ~(1 << KIND_ROUTER | 1 << KIND_HUB)
# Likewise to the other clusters: each server has a gateway to them.
HEARD_BY[<int>KIND_GATEWAY] = HEARS_ALL & ~(1 << KIND_ROUTER | 1 << KIND_GATEWAY)
HEARD_BY[<int>KIND_LEAF] = HEARS_ALL
HEARD_BY[<int>KIND_HUB] = HEARS_ALL
