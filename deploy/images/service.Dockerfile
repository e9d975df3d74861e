# syntax=docker/dockerfile:1
# Every service, `tandem shard` and `tandem health`: no torch, no Triton. Two targets:
#   service  the program; run as `-m encoder_svc` and so on, told by environment variables
#   models   the same with a model repository in /models, for a pod to copy
# Build from the root of the repository (docs/deploy.md). To pin further, give
# PYTHON_IMAGE=python@sha256:….
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
COPY requirements/serve.txt /build/serve.txt
RUN python -m venv --without-pip /opt/tandem/venv \
    && python -m pip --python /opt/tandem/venv/bin/python install --no-deps --require-hashes \
        --only-binary :all: -r /build/serve.txt
COPY tandem /opt/tandem/app/tandem
COPY encoder_svc /opt/tandem/app/encoder_svc
COPY index_svc /opt/tandem/app/index_svc
COPY rerank_svc /opt/tandem/app/rerank_svc
COPY orchestrator_svc /opt/tandem/app/orchestrator_svc
COPY gateway_svc /opt/tandem/app/gateway_svc
COPY merged_svc /opt/tandem/app/merged_svc
COPY LICENSE /opt/tandem/LICENSE
COPY --chmod=755 deploy/images/tandem.sh /opt/tandem/venv/bin/tandem
# The root is read-only when it runs, so what Python would write beside the sources is written now.
RUN python -m compileall -q -j 0 /opt/tandem/app /opt/tandem/venv/lib

FROM ${PYTHON_IMAGE} AS service
ENV PATH=/opt/tandem/venv/bin:$PATH \
    PYTHONPATH=/opt/tandem/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
COPY --from=builder /opt/tandem /opt/tandem
# Docker gives a new volume the owner of the folder that it is mounted on.
RUN install -d -o 10001 -g 10001 /store /model_repository
# A number, so that a cluster can see that it is not root.
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python"]
CMD ["-m", "tandem.cli", "--help"]

FROM service AS models
# Made by `tandem models add`, where torch is.
COPY --chmod=755 model_repository /models
