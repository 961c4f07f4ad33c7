# The image of the backend, without torch and compilers, for a non-root user. Build it in the root of the
# repository:
#
#   docker build --build-arg BASE=python:3.12-slim-bookworm@sha256:DIGEST --tag IMAGE .
#
# docs/how-to/install.md has the command that prints the digest. The image contains no flytekit.
# The image can read S3, GCS and Azure. --build-arg STORES=s3fs installs only the S3 client.
# The base image by its digest, which selects the same content in every build.
ARG BASE

FROM ${BASE} AS built
WORKDIR /source
COPY requirements.lock setup.py pyproject.toml README.md LICENSE ./
# Install the tested versions with the hashes of the lock, and only the packages that the server needs.
RUN awk '/^[^ #]/ { wanted = /^(uv|setuptools)==/ } wanted' requirements.lock > tools.lock \
    && pip install --no-cache-dir --require-hashes --requirement tools.lock
ARG STORES="s3fs gcsfs adlfs"
# Packages of the lock keep its hashes. Only the clients of stores that it does not have get those of the index.
RUN printf '%s\n' ${STORES} > stores.in \
    && python setup.py --quiet egg_info \
    && awk '/^\[/ { wanted = /^\[(backend|otel)[]:]/; next } wanted && NF' *.egg-info/requires.txt > server.in \
    && uv pip compile server.in stores.in --constraint requirements.lock \
        --generate-hashes --quiet --output-file resolved.lock \
    && awk '/^[^ #]/ { key = $1 } NR == FNR { locked[key] = locked[key] $0 "\n"; next } \
        !(key in locked) { print; next } /^[^ #]/ { printf "%s", locked[key] }' \
        requirements.lock resolved.lock > backend.lock \
    && python -m venv --without-pip /opt/kfpytorch \
    && uv pip sync --python /opt/kfpytorch/bin/python --require-hashes --compile-bytecode --no-cache backend.lock
COPY backend_plugin backend_plugin
COPY flytekitplugins flytekitplugins
COPY kfpytorch_common kfpytorch_common
COPY protos/kfpytorch_idl kfpytorch_idl
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir . . \
    && uv pip install --python /opt/kfpytorch/bin/python --no-deps --compile-bytecode --no-cache ./*.whl

FROM ${BASE}
COPY --from=built /opt/kfpytorch /opt/kfpytorch
ENV PATH=/opt/kfpytorch/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Numeric, because Kubernetes cannot check runAsNonRoot for a user name.
USER 65532:65532
WORKDIR /tmp
EXPOSE 8000 9090
CMD ["kfpytorch", "serve", "--cluster", "kubernetes"]
