"""The format `nats`: streams of a live server as tables to read, and to write."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from jsserver_spark.errors import OptionError
from jsserver_spark.options import SinkOptions, SourceOptions
from jsserver_spark.schema import table_of

_READING = "reading format nats"
_WRITING = "writing format nats"


class NatsSource(DataSource):
    """`spark.read.format("nats")` and its three siblings; options.py has the options."""

    @classmethod
    def name(cls) -> str:
        return "nats"

    def schema(self) -> StructType:
        return table_of(self._source_options()).spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from jsserver_spark.live.batch_source import BatchReader

        options = self._source_options(schema)
        if options.archive_path:
            from jsserver_spark.live.hot_cold import HotColdReader

            return HotColdReader(options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from jsserver_spark.live.stream_source import StreamReader

        return StreamReader(self._source_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from jsserver_spark.write.sink import BatchSink

        return BatchSink(SinkOptions.read(self.options, _WRITING), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from jsserver_spark.write.sink import StreamSink

        return StreamSink(SinkOptions.read(self.options, _WRITING), schema, overwrite)

    def _source_options(self, schema: StructType | None = None) -> SourceOptions:
        options = SourceOptions.read(self.options, _READING)
        if schema is not None and schema != (mine := table_of(options).spark_schema()):
            raise OptionError(
                f"the schema of these options is {mine.simpleString()}, not"
                f" {schema.simpleString()}: leave .schema(...) out, and choose by the options"
                " columns, includeHeaders, headersFormat and schemaMode"
            )
        return options
