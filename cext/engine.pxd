"""The whole data plane of one server, as the control plane sees it."""

from libc.stdint cimport uint8_t

# The items that were serialised for the control plane, as a list of Item.
cdef list read_items(const uint8_t* p, size_t n)
