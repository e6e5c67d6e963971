"""Archives in an object store: the same jobs, through S3's protocol, with a key in the URI."""

import json
import socket
from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from jsserver_spark.archive import layout
from jsserver_spark.archive.layout import Place
from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jobs.verify import VerifyOptions, verify
from jsserver_spark.source import NatsSource
from pipeline.tests.jobs_world import api, create, done, everything, job, publish, some_messages
from tests.servers import Server
from tests.waiting import wait_until

SECRET = "a-secret-key"


class Store:
    """A server that speaks S3, with the bucket `lake`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="someone",
            aws_secret_access_key=SECRET,
        )
        self.client.create_bucket(Bucket="lake")

    def uri(self, folder: str, bucket: str = "lake") -> str:
        where = f"scheme=http&endpoint_override=127.0.0.1%3A{self.port}&region=us-east-1"
        return f"s3://someone:{SECRET}@{bucket}/{folder}?{where}"

    def names(self, folder: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket="lake", Prefix=f"{folder}/")
        return [one["Key"] for one in found.get("Contents", [])]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield Store(server.get_host_and_port()[1])
    finally:
        server.stop()


def ran(name: str, *words: str) -> dict[str, object]:
    """What a job says in JSON."""
    code, out, err = done(job(name, *words, "--json"))
    assert code == 0, err
    found: dict[str, object] = json.loads(out)
    return found


def test_every_job_works_in_an_object_store(store: Store, js_server: Server) -> None:
    create(js_server, "FAR")
    messages = some_messages(6000, "FAR")
    publish(js_server, "FAR", messages)
    root = store.uri("jobs")
    source = ("--stream", "FAR", "--servers", js_server.url)
    fetched = ran("archive", root, *source, "--flush-rows", "500", "--processes", "2")
    assert (fetched["rows"], fetched["files"]) == (6000, 12)
    publish(js_server, "FAR", messages[:10])
    assert ran("archive", root, *source)["rows"] == 10
    assert ran("verify", root, *source, "--processes", "2")["equal"]
    merged = ran("compact", root, "--stream", "FAR", "--before", "2999-01-01")
    assert (merged["merged"], merged["into"]) == (13, 1)
    names = store.names("jobs")
    assert not [name for name in names if "_temporary/" in name and not name.endswith("/")]
    assert ran("verify", root, *source)["equal"]
    api(js_server, "STREAM.DELETE.FAR")
    create(js_server, "FAR2", subjects=["FAR.>"])
    assert ran("replay", root, *source, "--to", "FAR2")["rows"] == 6010
    assert everything(js_server, "FAR2") == messages + messages[:10]
    assert ran("expire", root, "--stream", "FAR", "--before", "2999-01-01")["files"] == 1


def test_a_killed_archiver_goes_on(store: Store, js_server: Server) -> None:
    create(js_server, "CUT")
    publish(js_server, "CUT", some_messages(20_000, "CUT"))
    root = store.uri("killed")
    words = (root, "--stream", "CUT", "--servers", js_server.url)
    process = job("archive", *words, "--flush-rows", "100", "--processes", "1")
    try:
        place = Place(root)
        wait_until(lambda: len(place.names("stream=CUT/_manifest")) >= 3, "three commits")
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    rest = ran("archive", *words, "--flush-rows", "5000")
    assert 0 < int(str(rest["rows"])) < 20_000
    assert verify(VerifyOptions(servers=(js_server.url,), stream="CUT"), root, processes=2).equal


def test_archive_and_stream_in_one_query(
    spark: SparkSession, store: Store, js_server: Server
) -> None:
    create(js_server, "BOTH")
    publish(js_server, "BOTH", some_messages(900, "BOTH"))
    root = store.uri("both")
    ran("archive", root, "--stream", "BOTH", "--servers", js_server.url, "--flush-rows", "300")
    publish(js_server, "BOTH", some_messages(100, "BOTH"))
    api(js_server, "STREAM.PURGE.BOTH", {"seq": 500})
    spark.dataSource.register(NatsSource)
    reader = spark.read.format("nats").option("servers", js_server.url).option("stream", "BOTH")
    rows = reader.option("archivePath", root).load().select("seq").collect()
    assert sorted(row.seq for row in rows) == list(range(1, 1001))


def test_errors_show_no_secret(store: Store) -> None:
    code, out, err = done(job("compact", store.uri("none"), "--stream", "S"))
    assert (code, out) == (2, "")
    assert err == "s3://lake/none has no archive of stream 'S'; there are: none\n"
    with pytest.raises(NatsError, match=r"^s3://other/x/f: Bucket 'other' not found") as failed:
        Place(store.uri("x", "other")).make_folder("f")
    assert SECRET not in str(failed.value)
    with pytest.raises(OptionError, match=r"root 's4://lake/x' cannot be used") as refused:
        Place(store.uri("x").replace("s3:", "s4:"))
    assert SECRET not in str(refused.value)
    with pytest.raises(OptionError, match=r"root 's3://lake/x' cannot be used") as unquoted:
        Place(store.uri("x").replace(SECRET, f"half/{SECRET}"))
    assert SECRET not in str(unquoted.value)


def test_a_google_store_that_is_away_is_an_error_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PATIENCE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    where = f"scheme=http&endpoint_override=127.0.0.1%3A{port}"
    with pytest.raises(NatsError, match=r"^gs://lake/x/f: .*[Cc]ould not connect"):
        Place(f"gs://anonymous@lake/x?{where}").names("f")
