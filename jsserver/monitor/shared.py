"""What an account exports, imports and maps, as `/accountz` shows it."""

import msgspec

from jsserver.config.links import ServiceRoute, Sharing, StreamRoute
from jsserver.config.mappings import draws
from jsserver.config.options import Export, Latency, Mapping, ServiceExport
from jsserver.wire.types import Wire, always


class LatencyInfo(Wire):
    """Which share of a service's requests is measured, in percent, and where that is told."""

    sampling: int | str = always(0)
    results: str = always("")


class ExportInfo(Wire, kw_only=True):
    """Something that other accounts may import."""

    subject: str
    type: str
    token_req: bool = False
    response_type: str = ""
    service_latency: LatencyInfo | None = None
    approved_accounts: list[str] = msgspec.field(default_factory=list)
    revoked_activations: dict[str, str] = msgspec.field(default_factory=dict)


class ImportInfo(Wire, kw_only=True):
    """Something of another account."""

    subject: str
    account: str
    to: str = ""
    local_subject: str = ""
    type: str
    invalid: bool = always(False)
    share: bool = always(False)
    tracking: bool = always(False)
    latency: LatencyInfo | None = None


class DestinationInfo(Wire):
    """Where a mapping sends messages to: of draws from 0 to 99 those below the weight that are not
    below another's."""

    subject: str
    weight: int


def _latency(of: Latency | None) -> LatencyInfo | None:
    return (
        None if of is None else LatencyInfo(sampling=of.sampling or "headers", results=of.subject)
    )


def _export(export: Export, kind: str) -> ExportInfo:
    return ExportInfo(
        subject=export.subject,
        type=kind,
        token_req=export.needs_token,
        approved_accounts=sorted(export.accounts or []),
    )


def _service_export(export: ServiceExport) -> ExportInfo:
    info = _export(export, "service")
    info.response_type = "Singleton" if export.once else "Streamed"
    info.service_latency = _latency(export.latency)
    return info


def exports_of(sharing: Sharing, account: str) -> list[ExportInfo]:
    """Services, then streams."""
    services = [_service_export(export) for export in sharing.service_exports(account)]
    return services + [_export(export, "stream") for export in sharing.stream_exports(account)]


def _service(route: ServiceRoute) -> ImportInfo:
    return ImportInfo(
        subject=route.subject,
        account=route.exporter,
        to=route.local,
        local_subject=route.local,
        type="service",
        share=route.share,
        latency=None if route.export is None else _latency(route.export.latency),
    )


def _stream(route: StreamRoute) -> ImportInfo:
    return ImportInfo(
        subject=route.subject, account=route.exporter, local_subject=route.local, type="stream"
    )


def imports_of(sharing: Sharing, account: str) -> list[ImportInfo]:
    """Streams, then services."""
    streams = [_stream(route) for route in sharing.streams(account)]
    return streams + [_service(route) for route in sharing.services(account)]


def mappings_of(mappings: list[Mapping]) -> dict[str, list[DestinationInfo]]:
    """By what they are for."""
    return {
        mapping.source: [DestinationInfo(subject=to, weight=upto) for to, upto in draws(mapping)]
        for mapping in mappings
    }
