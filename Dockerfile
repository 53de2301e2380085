# The exporter, the rollup and the report in one image: they share a history folder and a version.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build

RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /src
RUN python -m venv /opt/topic-liveness/venv
ENV PATH=/opt/topic-liveness/venv/bin:$PATH

COPY requirements-image.lock ./
RUN sed -n '/^setuptools==/,$p' requirements-image.lock > build.lock \
 && pip install --no-cache-dir --require-hashes -r build.lock \
 && pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements-image.lock

COPY pyproject.toml README.md LICENSE ./
COPY exporter/ exporter/
COPY spark_rollups/ spark_rollups/
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

# Spark's jars are fetched here and checked against their hashes, so that a job needs no way out of the cluster.
ENV TOPIC_LIVENESS_CACHE=/opt/topic-liveness/cache
RUN python -c "from pathlib import Path; from spark_rollups.session import start_session; \
start_session('image', master='local[1]', log=Path('/tmp/spark.log')).stop()" \
 && rm -r "$TOPIC_LIVENESS_CACHE/ivy-spark/cache"


FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --no-create-home --home-dir /tmp liveness \
 && install --directory --owner=liveness --group=liveness /var/lib/topic-liveness

# Owned by root: who runs it cannot change what runs.
COPY --from=build /opt/topic-liveness /opt/topic-liveness
COPY LICENSE /opt/topic-liveness/

ENV PATH=/opt/topic-liveness/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TOPIC_LIVENESS_CACHE=/opt/topic-liveness/cache

USER 10001:10001
WORKDIR /var/lib/topic-liveness
EXPOSE 9797
STOPSIGNAL SIGTERM
ENTRYPOINT ["topic-liveness"]
CMD ["serve", "--config", "/etc/topic-liveness/config.yaml"]
