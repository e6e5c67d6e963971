# Who hears whom: which kinds of messages reach the subscriptions of a connection of each kind. What serves inside the
# server chooses for itself (HEARS_* in bytes.pxd).

cdef int[KIND_LEAF + 1] HEARD_BY

HEARD_BY[<int>KIND_CLIENT] = HEARS_ALL
# The server that a message came from has sent it to each of the cluster by itself.
HEARD_BY[<int>KIND_ROUTER] = HEARS_ALL & ~(1 << KIND_ROUTER)
# Likewise to the other clusters: each server has a gateway to them.
HEARD_BY[<int>KIND_GATEWAY] = HEARS_ALL & ~(1 << KIND_ROUTER | 1 << KIND_GATEWAY)
HEARD_BY[<int>KIND_LEAF] = HEARS_ALL
