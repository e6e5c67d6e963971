"""What a thread of a server does for its Raft groups, a round at a time, and when its environment has something to do."""

from jsserver.cext.bytes cimport list_empty, timer_next
from jsserver.cext.groups cimport RaftGroups, groups_round
from jsserver.cext.stream cimport EnvBox


def files_due(RaftGroups groups not None) -> bool:
    """Whether small files are to be written, or snapshots to be sent."""
    return groups.all.due or not list_empty(&groups.all.states)


def write_files(RaftGroups groups not None) -> None:
    """As often as something is due: a thread that waits would stand still where there is no other one."""
    with nogil:
        while groups.all.due or not list_empty(&groups.all.states):
            groups_round(groups.all)


def deadline(EnvBox box not None) -> int:
    """When the next timer is due, ns of the monotonic clock."""
    return timer_next(&box.env.timers)
