# Included by bytes.pxd: doubly linked lists whose nodes stand in what they link, so that nothing is allocated.
#
# A list is a ring through its head. A zeroed List is an empty list, and a zeroed ListNode is in no list. The head of a list
# that has nodes must not move; list_take hands the nodes over to another head.

cdef struct ListNode:
    # Embedded in its owner, once for each list that the owner may be in at a time.
    ListNode* next          # NULL: in no list
    ListNode* prev

cdef struct List:
    ListNode head


# The owner of a node, NULL of NULL. place is where the node stands in an owner at address 0:
# <Pull*>list_owner(n, &(<Pull*>NULL).node).
cdef inline void* list_owner(const ListNode* n, const ListNode* place) noexcept nogil:
    return NULL if n == NULL else <uint8_t*>n - <size_t>place


cdef inline bint list_linked(const ListNode* n) noexcept nogil:
    return n.next != NULL


cdef inline bint list_empty(const List* l) noexcept nogil:
    return l.head.next == NULL or l.head.next == &l.head


# The first and last node, and the neighbours of one in the list; NULL where there is none.
cdef inline ListNode* list_first(const List* l) noexcept nogil:
    return NULL if list_empty(l) else l.head.next


cdef inline ListNode* list_last(const List* l) noexcept nogil:
    return NULL if list_empty(l) else l.head.prev


cdef inline ListNode* list_next(const List* l, const ListNode* n) noexcept nogil:
    return NULL if n.next == &l.head else n.next


cdef inline ListNode* list_prev(const List* l, const ListNode* n) noexcept nogil:
    return NULL if n.prev == &l.head else n.prev


# n, which is in no list, goes behind `at`, which is in one.
cdef inline void list_insert(ListNode* at, ListNode* n) noexcept nogil:
    invariant(n.next == NULL and n.prev == NULL, "a node that is linked is in no list")
    invariant(at.next.prev == at and at.prev.next == at, "neighbours in a list know each other")
    n.prev = at
    n.next = at.next
    at.next.prev = n
    at.next = n


cdef inline ListNode* list_head(List* l) noexcept nogil:
    # The head, to insert behind it.
    if l.head.next == NULL:
        l.head.next = &l.head
        l.head.prev = &l.head
    return &l.head


cdef inline void list_push_front(List* l, ListNode* n) noexcept nogil:
    list_insert(list_head(l), n)


cdef inline void list_push_back(List* l, ListNode* n) noexcept nogil:
    list_insert(list_head(l).prev, n)


cdef inline void list_remove(ListNode* n) noexcept nogil:
    # From the list that it is in.
    invariant(n.next != NULL and n.prev != NULL, "a node that is unlinked is in a list")
    invariant(n.next.prev == n and n.prev.next == n, "neighbours in a list know each other")
    n.next.prev = n.prev
    n.prev.next = n.next
    n.next = NULL
    n.prev = NULL


cdef inline bint list_drop(ListNode* n) noexcept nogil:
    # Likewise, if it is in one; whether it was.
    if n.next == NULL:
        return False
    list_remove(n)
    return True


cdef inline ListNode* list_pop(List* l) noexcept nogil:
    # The first, which leaves; NULL: there is none.
    cdef ListNode* n = list_first(l)
    if n != NULL:
        list_remove(n)
    return n


cdef inline void list_take(List* l, List* other) noexcept nogil:
    # All that the other list has goes behind what this one has.
    cdef ListNode* last
    if list_empty(other):
        return
    last = list_head(l).prev
    last.next = other.head.next
    other.head.next.prev = last
    other.head.prev.next = &l.head
    l.head.prev = other.head.prev
    other.head.next = NULL
    other.head.prev = NULL


cdef struct ListWalk:
    # A way through a list: what it has handed out may leave the list, or be freed; what comes next may not.
    const List* list
    ListNode* ahead

cdef inline ListWalk list_walk(const List* l) noexcept nogil:
    cdef ListWalk w
    w.list = l
    w.ahead = list_first(l)
    return w


cdef inline ListNode* list_step(ListWalk* w) noexcept nogil:
    # The next node; NULL: there is none.
    cdef ListNode* n = w.ahead
    invariant(n == NULL or list_linked(n), "what comes next on a way stays in its list")
    if n != NULL:
        w.ahead = list_next(w.list, n)
    return n
