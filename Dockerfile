# The image of the backend, without torch and compilers, for a non-root user. Build it in the root of the
# repository:
#
#   docker build --tag IMAGE .
#
# The image can read S3, GCS and Azure. --build-arg STORES=s3fs installs only the S3 client.
ARG PYTHON=3.12.11-slim-bookworm

FROM python:${PYTHON} AS built
WORKDIR /source
COPY requirements.lock setup.py pyproject.toml README.md LICENSE ./
# Install the tested versions with hashes, and only the packages that the backend needs.
RUN awk '/^[^ #]/ { wanted = /^(uv|setuptools)==/ } wanted' requirements.lock > tools.lock \
    && pip install --no-cache-dir --require-hashes --requirement tools.lock
ARG STORES="s3fs gcsfs adlfs"
RUN printf '%s\n' ${STORES} > stores.in \
    && uv pip compile setup.py stores.in --extra backend --extra otel --constraint requirements.lock \
        --generate-hashes --quiet --output-file backend.lock \
    && python -m venv --without-pip /opt/kfpytorch \
    && uv pip sync --python /opt/kfpytorch/bin/python --require-hashes --compile-bytecode --no-cache backend.lock
COPY backend_plugin backend_plugin
COPY flytekitplugins flytekitplugins
COPY kfpytorch_common kfpytorch_common
COPY protos/kfpytorch_idl kfpytorch_idl
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir . . \
    && uv pip install --python /opt/kfpytorch/bin/python --no-deps --compile-bytecode --no-cache ./*.whl

FROM python:${PYTHON}
COPY --from=built /opt/kfpytorch /opt/kfpytorch
ENV PATH=/opt/kfpytorch/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Numeric, because Kubernetes cannot check runAsNonRoot for a user name.
USER 65532:65532
WORKDIR /tmp
EXPOSE 8000 9090
CMD ["kfpytorch", "serve", "--cluster", "kubernetes"]
