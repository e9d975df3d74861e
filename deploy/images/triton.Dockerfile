# syntax=docker/dockerfile:1
# NVIDIA's image with our Python-based `pytorch` backend in place of the native one, and torch for
# it: for CPUs, and for a libtorch that cannot read our TorchScript. On GPUs the native backend of
# NVIDIA's image is enough, and nothing is built.
# Build from the root of the repository (docs/deploy.md). Keep above 26.05: NVIDIA's security
# bulletin 5828.
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:26.10-py3
FROM ${TRITON_IMAGE}

# The torch that exported the models, or a later one. "+cpu" has no CUDA and is a tenth of the size.
ARG TORCH_VERSION=2.13.0+cpu
# The package index that has it, yours or the one that PyTorch's install page names for CPUs.
ARG TORCH_INDEX
# The SHA-256 of its wheel for the Python of NVIDIA's image (3.12), as that index tells it. It depends
# on the index, so it has no default, and another wheel stops the build.
ARG TORCH_SHA256
USER 0
COPY requirements/torch.txt /tmp/torch.txt
RUN : "${TORCH_INDEX:?give --build-arg TORCH_INDEX=..., a package index that has torch}" \
        "${TORCH_SHA256:?give --build-arg TORCH_SHA256=..., the SHA-256 of the wheel of torch there}" \
    && python3 -m pip download --no-cache-dir --only-binary :all: --no-deps --dest /tmp/torch \
        --index-url "${TORCH_INDEX}" "torch==${TORCH_VERSION}" \
    && printf '%s  %s\n' "${TORCH_SHA256}" /tmp/torch/torch-*.whl > /tmp/torch/sums \
    && sha256sum --check /tmp/torch/sums \
    && python3 -m pip install --no-cache-dir --no-deps --target /opt/tandem/site-packages \
        /tmp/torch/torch-*.whl \
    && python3 -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: \
        --target /opt/tandem/site-packages -r /tmp/torch.txt \
    && rm -r /tmp/torch /tmp/torch.txt
# Backends of our own beside the image's `python`: a native `pytorch` would be taken first. Triton's
# stub finds torch by a file of its Python, because the one of 2.51 ignores PYTHONPATH.
RUN mkdir -p /opt/tandem/backends \
    && ln -s /opt/tritonserver/backends/python /opt/tandem/backends/python \
    && packages=$(python3 -c 'import site; print(site.getsitepackages()[0])') \
    && mkdir -p "$packages" \
    && echo 'import sys; sys.path.insert(0, "/opt/tandem/site-packages")' > "$packages/tandem.pth"
COPY --chmod=755 deploy/triton/backends/pytorch /opt/tandem/backends/pytorch

USER 1000:1000
CMD ["tritonserver", "--help"]
