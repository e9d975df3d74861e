# syntax=docker/dockerfile:1
# Stands in for NVIDIA's image on CPUs, where its registry is out of reach: the server of the wheel
# nvidia-pytriton, at the paths that it has in NVIDIA's image. `make base-images` builds it, and
# triton.Dockerfile builds on it as on NVIDIA's (docs/deploy.md).
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
FROM ${PYTHON_IMAGE}
COPY requirements/triton.txt requirements/serve.txt /tmp/
# The backend looks beside its library for a stub that was built for this Python. NVIDIA's image has
# numpy, which the backend's own module imports.
RUN python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: \
        --target /opt/wheel -r /tmp/triton.txt \
    && sed -n '/^numpy==/,/[^\\]$/p' /tmp/serve.txt > /tmp/numpy.txt \
    && python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: \
        --target "$(python -c 'import site; print(site.getsitepackages()[0])')" -r /tmp/numpy.txt \
    && rm /tmp/*.txt \
    && ln -s /opt/wheel/pytriton/tritonserver /opt/tritonserver \
    && cp /opt/tritonserver/python_backend_stubs/3.11/triton_python_backend_stub \
        /opt/tritonserver/backends/python/
ENV PATH=/opt/tritonserver/bin:$PATH \
    LD_LIBRARY_PATH=/opt/wheel/nvidia_pytriton.libs
USER 1000:1000
CMD ["tritonserver", "--help"]
