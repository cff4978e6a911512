# One image for the agent, the gateway and every command. The wheel and its locked dependencies are made in the first
# stage; the second has no compiler, no build tool, no source and no root. LOCK=agent leaves out the gateway.
FROM python:3.11-slim AS build
ARG LOCK=gateway
WORKDIR /build
COPY requirements requirements
RUN python -m venv /opt/tierstate \
 && /opt/tierstate/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/${LOCK}.lock
RUN python -m venv /opt/build \
 && awk '/^[a-z]/ {on = /^(packaging|setuptools|wheel)==/} on && !/^ *#/' requirements/dev.lock > build-tools.lock \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r build-tools.lock
COPY . .
RUN /opt/build/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps -w dist . \
 && /opt/tierstate/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM python:3.11-slim
# The agent reads the broker's log folders and locks them with a file: it runs as the broker's user. 1000 is the user of
# the apache/kafka image; build with another one to run beside another broker.
ARG UID=1000
RUN useradd --uid ${UID} --create-home tierstate \
 && install -d -o tierstate -g tierstate /var/lib/tierstate /etc/tierstate
COPY --from=build /opt/tierstate /opt/tierstate
ENV PATH=/opt/tierstate/bin:$PATH PYTHONUNBUFFERED=1
USER tierstate
WORKDIR /var/lib/tierstate
STOPSIGNAL SIGTERM
ENTRYPOINT ["tierstate"]
CMD ["--help"]
