# Two images: `docker build --target exporter .` is small and serves; the default, `spark`, also runs the rollup and the
# report, which need Java and Spark. Both run as any user (jobs of Spark as any in /etc/passwd); what runs belongs to root.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build

WORKDIR /src
RUN python -m venv /opt/topic-liveness/venv
ENV PATH=/opt/topic-liveness/venv/bin:$PATH

COPY requirements-exporter.lock ./
RUN sed -n '/^setuptools==/,$p' requirements-exporter.lock > build.lock \
 && pip install --no-cache-dir --require-hashes -r build.lock \
 && pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements-exporter.lock

COPY pyproject.toml README.md LICENSE ./
COPY exporter/ exporter/
COPY spark_rollups/ spark_rollups/
RUN pip install --no-cache-dir --no-deps --no-build-isolation .


FROM build AS build-spark

# Debian keeps one version of a package only: a pinned one would break the build at the next security fix.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*

COPY requirements-image.lock ./
RUN pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements-image.lock

# Spark's jars are fetched here and checked against their hashes, so that a job needs no way out of the cluster.
ENV TOPIC_LIVENESS_CACHE=/opt/topic-liveness/cache
# Those that read S3 too: a job on such a history finds all it needs.
RUN python -c "from pathlib import Path; from exporter.storage.files import parse_location; from spark_rollups.spark.session import start_session; \
start_session('image', master='local[1]', log=Path('/tmp/spark.log'), storage=parse_location('s3://any')).stop()" \
 && rm -r "$TOPIC_LIVENESS_CACHE/ivy-spark/cache"


FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS runtime

# Group 0 may write history, as OpenShift's users of any id are in it. Spark asks for the name of its user.
RUN useradd --uid 10001 --gid 0 --no-create-home --home-dir /tmp liveness \
 && install --directory --owner=10001 --group=0 --mode=0770 /var/lib/topic-liveness

ENV PATH=/opt/topic-liveness/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MALLOC_ARENA_MAX=1 \
    MALLOC_TRIM_THRESHOLD_=16777216 \
    ARROW_DEFAULT_MEMORY_POOL=system \
    HOME=/tmp
WORKDIR /var/lib/topic-liveness
VOLUME /var/lib/topic-liveness
EXPOSE 9797
STOPSIGNAL SIGTERM
# As it serves by default; with TLS, another port or a job use `--no-healthcheck`, or one of your own. Through no proxy:
# Docker sets http_proxy in every container where its client has one.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5m --retries=3 \
  CMD ["python", "-P", "-c", "import urllib.request as u; \
u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:9797/-/healthy', timeout=4)"]
ENTRYPOINT ["topic-liveness"]
CMD ["serve", "--config", "/etc/topic-liveness/config.yaml"]
COPY LICENSE /opt/topic-liveness/


FROM runtime AS exporter

COPY --from=build /opt/topic-liveness /opt/topic-liveness
USER 10001:0


FROM runtime AS spark

# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/topic-liveness /opt/topic-liveness
ENV TOPIC_LIVENESS_CACHE=/opt/topic-liveness/cache
USER 10001:0
