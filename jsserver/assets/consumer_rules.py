"""What changes of consumers are refused for, in the order in which clients see it.

As rules.py has it for streams: the first rule that is broken raises its error. What is wrong with
a configuration in itself stands in consumers.py, in such a list as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jsserver.wire import errcodes

from . import consumers
from .assigned import StreamAssignment
from .changes import AskedConsumer, PutConsumer
from .limits import AccountLimits
from .patterns import check_tokens


class Judged(NamedTuple):
    """A consumer that shall be made or updated, and what it is judged by."""

    change: PutConsumer
    stream: StreamAssignment
    limits: AccountLimits
    """The account's."""

    @property
    def competes(self) -> bool:
        """Whether other consumers of its stream may not want the same."""
        of_queue = self.stream.config.retention == "workqueue"
        return of_queue and not consumers.is_of_source(self.change.config)


# ---- what a request says in its subject and in its body ------------------------------------------


def _streams_agree(asked: AskedConsumer) -> None:
    if asked.stream != asked.request.stream_name:
        raise errcodes.STREAM_MISMATCH()


def _name_has_no_separators(asked: AskedConsumer) -> None:
    if "/" in asked.consumer or "\\" in asked.consumer:
        raise errcodes.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()


def _durable_has_a_name(asked: AskedConsumer) -> None:
    if asked.is_durable and not asked.request.config.durable_name:
        raise errcodes.CONSUMER_DURABLE_NAME_NOT_SET()


def _durable_name_is_in_the_subject(asked: AskedConsumer) -> None:
    durable_name = asked.request.config.durable_name
    if durable_name and not asked.name:
        raise errcodes.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME()
    if durable_name and durable_name != asked.name:
        raise errcodes.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()


def _filter_is_that_of_the_subject(asked: AskedConsumer) -> None:
    if asked.filter is None:
        return
    if asked.request.config.filter_subjects:
        raise errcodes.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED()
    if asked.filter != asked.request.config.filter_subject:
        raise errcodes.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH()


def _has_one_replica(asked: AskedConsumer) -> None:
    if asked.request.config.num_replicas > 1:
        raise errcodes.STREAM_REPLICAS_NOT_SUPPORTED()


# ---- what the stream has -------------------------------------------------------------------------


def _is_valid_in_itself(judged: Judged) -> None:
    asked = judged.change.asked
    if asked is not None and asked.wrong is not None:
        raise asked.wrong


def _is_served(judged: Judged) -> None:
    if judged.change.name in judged.stream.offline:
        raise judged.stream.absent(judged.change.name)


def _is_not_only_updated(judged: Judged) -> None:
    if judged.change.action == "update":
        raise errcodes.CONSUMER_DOES_NOT_EXIST()


def _is_not_only_created(judged: Judged) -> None:
    if judged.change.action == "create":
        raise errcodes.CONSUMER_ALREADY_EXISTS()


def _changes_what_may_change(judged: Judged) -> None:
    there = judged.stream.consumer(judged.change.name)
    consumers.check_update(there.config, judged.change.config)


def _nobody_listens_elsewhere(judged: Judged) -> None:
    there = judged.stream.consumer(judged.change.name)
    if judged.change.heard and judged.change.config.deliver_subject != there.config.deliver_subject:
        raise errcodes.CONSUMER_NAME_EXIST()


def _one_more_is_allowed(judged: Judged) -> None:
    most = (judged.stream.config.max_consumers, judged.limits.max_consumers)
    if any(0 < ceiling <= judged.stream.limitable for ceiling in most):
        raise errcodes.MAXIMUM_CONSUMERS_LIMIT()


def _fits_a_work_queue(judged: Judged) -> None:
    if judged.competes:
        consumers.check_workqueue(judged.change.config)


def _name_fits_a_file(judged: Judged) -> None:
    consumers.check_stored_name(judged.change.config, judged.change.name)


def _wants_what_no_other_wants(judged: Judged) -> None:
    if not judged.competes:
        return
    config, stream = judged.change.config, judged.stream
    subjects = consumers.wanted(config)
    check_tokens(subjects)
    there = stream.consumers.get(judged.change.name)
    claims = there is not None and not consumers.is_of_source(there.config)
    own = consumers.wanted(there.config) if there is not None and claims else ()
    if stream.filters.meets(subjects, own):
        if not consumers.filters(config):
            raise errcodes.CONSUMER_WQ_MULTIPLE_UNFILTERED()
        raise errcodes.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()


# ---- the order -----------------------------------------------------------------------------------

REQUESTED: tuple[Callable[[AskedConsumer], None], ...] = (
    _streams_agree,  # STREAM_MISMATCH
    _name_has_no_separators,  # CONSUMER_NAME_CONTAINS_PATH_SEPARATORS
    _durable_has_a_name,  # CONSUMER_DURABLE_NAME_NOT_SET
    _durable_name_is_in_the_subject,  # CONSUMER_EPHEMERAL_WITH_DURABLE_NAME, ..._NOT_MATCH_SUBJECT
    _filter_is_that_of_the_subject,  # CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED, ..._SUBJECT_MISMATCH
    _has_one_replica,  # STREAM_REPLICAS_NOT_SUPPORTED
)
"""Of a request, before its stream is looked for."""

Rule = Callable[[Judged], None]

WANTED: tuple[Rule, ...] = (
    _is_valid_in_itself,  # that of consumers.VALID
    _is_served,  # CONSUMER_OFFLINE_REASON
)
"""Of every consumer that is asked for, which may be there already."""

UPDATED: tuple[Rule, ...] = (
    _is_not_only_created,  # CONSUMER_ALREADY_EXISTS
    _changes_what_may_change,  # that of the first field which may not
    _nobody_listens_elsewhere,  # CONSUMER_NAME_EXIST
    _fits_a_work_queue,  # CONSUMER_WQ_REQUIRES_EXPLICIT_ACK, CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL
    _wants_what_no_other_wants,  # CONSUMER_WQ_MULTIPLE_UNFILTERED, CONSUMER_WQ_CONSUMER_NOT_UNIQUE
)
"""Of a consumer that is there and shall be another one, after those before."""

NEW: tuple[Rule, ...] = (
    _is_not_only_updated,  # CONSUMER_DOES_NOT_EXIST
    _one_more_is_allowed,  # MAXIMUM_CONSUMERS_LIMIT
    _fits_a_work_queue,
    _name_fits_a_file,  # CONSUMER_NAME_TOO_LONG, CONSUMER_CREATE
    _wants_what_no_other_wants,
)
"""Of a consumer that is not there, after those of every one."""
