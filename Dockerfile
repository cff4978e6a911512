# One image for the agent, the gateway, the proxy and every command. The first stage makes the wheel, its locked
# dependencies, the list of what is installed and the compiled kernels. The second stage has no compiler, no build tool,
# no pip, no source and no root. LOCK=agent leaves out the gateway, LOCK=table adds what Iceberg tables need:
# docker build --build-arg LOCK=agent .
FROM python:3.11-slim AS build
ARG LOCK=gateway
# The kernels are compiled for any processor of this architecture, and numba finds them by this name.
ENV NUMBA_CPU_NAME=generic
RUN command -v strip > /dev/null || { apt-get update && apt-get install -y --no-install-recommends binutils; }
WORKDIR /build
COPY requirements requirements
RUN python -m venv /opt/tierstate \
 && /opt/tierstate/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/${LOCK}.lock
RUN python -m venv /opt/build \
 && awk '/^[a-z]/ {on = /^(packaging|setuptools|wheel)==/} on && !/^ *#/' requirements/dev.lock > build-tools.lock \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r build-tools.lock \
 && python -m venv /opt/sbom \
 && /opt/sbom/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/sbom.lock
COPY . .
# What is removed is never imported: pip, what only a compiler or a test reads, Arrow's Flight and Substrait, and what botocore
# knows of services of AWS other than storage and logging in. The SBOM lists what is installed then.
RUN /opt/build/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps -w dist . \
 && /opt/tierstate/bin/pip install --no-cache-dir --no-deps dist/*.whl \
 && /opt/tierstate/bin/pip uninstall --yes pip setuptools \
 && cd /opt/tierstate/lib/python3.11/site-packages \
 && find . \( -path './numba/*' -o -path './numpy/*' -o -path './llvmlite/*' -o -path './pyarrow/*' \) \
      -type d -name tests -prune -exec rm -rf {} + \
 && rm -rf Crypto/SelfTest numpy/distutils numpy/f2py pyarrow/include pyarrow/*flight* pyarrow/*substrait* pyarrow/*_tests.* pyarrow/libarrow_python*.so pyarrow/*.so.*.*.* \
 && find . -name '*.py[xid]' -delete \
 && find botocore/data -mindepth 1 -maxdepth 1 -type d \
      ! -name s3 ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -rf {} + \
 && find $(ls -d Crypto fastavro llvmlite pyarrow uvloop zstandard 2> /dev/null) -name '*.so*' -exec strip --strip-unneeded {} + \
 && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-file /opt/tierstate/sbom.cdx.json /opt/tierstate/bin/python
# Numba compares the time of a source with that in its cache, and a layer keeps whole seconds only.
RUN find /opt/tierstate/lib -path '*/tierstate/log/*.py' -exec touch -d "$(date -u '+%F %T')" {} + \
 && { [ ! -d /opt/tierstate/lib/python3.11/site-packages/numba ] || /opt/tierstate/bin/python -m tierstate.log.warm_kernels; }

FROM python:3.11-slim
# The agent reads the broker's log folders and locks them with a file: it runs as the broker's user. 1000 is the user of
# the apache/kafka image; build with another one to run beside another broker.
ARG UID=1000
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tierstate" \
      org.opencontainers.image.description="Tiered storage for any Apache Kafka cluster, without touching the broker" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid ${UID} --create-home tierstate \
 && install -d -o tierstate -g tierstate /var/lib/tierstate /etc/tierstate
COPY --from=build /opt/tierstate /opt/tierstate
ENV PATH=/opt/tierstate/bin:$PATH PYTHONUNBUFFERED=1 NUMBA_CPU_NAME=generic
USER ${UID}
WORKDIR /var/lib/tierstate
STOPSIGNAL SIGTERM
# /healthz, not /readyz: a restart does not bring a store or a broker back.
HEALTHCHECK --interval=10s --timeout=5s --retries=6 CMD ["python", "-m", "tierstate.runtime.health_check"]
ENTRYPOINT ["tierstate"]
CMD ["--help"]
