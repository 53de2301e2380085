"""Variables of the environment that would lead a Spark job elsewhere."""

from __future__ import annotations

DROPPED = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
"""A job leaves these out: it brings its own Spark, and options of the command set it up. Not under ``spark-submit``."""

READ = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Its JVM still reads these."""
