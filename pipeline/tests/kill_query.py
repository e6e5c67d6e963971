"""The driver that the kill test ends again and again: one stream into another, exactly once."""

import sys

from pyspark.sql import SparkSession


def main(master: str, server: str, checkpoint: str, folder: str) -> None:
    spark = (
        SparkSession.builder.master(master)
        .appName("kills")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", "20")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    rows = (
        spark.readStream.format("nats")
        .option("servers", server)
        .option("stream", "IN")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400")
        .option("minPartitions", "2")
        .load()
    )
    query = (
        rows.selectExpr("concat('out', substring(subject, 3)) as subject", "data")
        .writeStream.format("nats")
        .option("servers", server)
        .option("stream", "OUT")
        .option("sinkId", "kills")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    print("query started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
