# The service and the command line in one image:
#
#     docker build -t tedtrajrec .
#     docker run -p 8000:8000 tedtrajrec                       the page and the service with the model that comes along
#     docker run -v "$PWD:/data" tedtrajrec recover fixes.csv --network network.npz -o recovered.parquet
#
# The published torch brings CUDA along. For a much smaller image, name PyTorch's index of CPU builds:
#
#     docker build --build-arg PIP_EXTRA_INDEX_URL=... -t tedtrajrec .

FROM python:3.11-slim AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/tedtrajrec
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY models models
COPY src src
RUN /opt/tedtrajrec/bin/pip install --constraint constraints.txt '.[serve]'

FROM python:3.11-slim
LABEL org.opencontainers.image.title="tedtrajrec" \
      org.opencontainers.image.description="Turns sparse, irregular GPS into dense trips on the road network." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tedtrajrec /opt/tedtrajrec
# Compiled kernels are kept where the user of the service may write; nothing else needs to be writable.
RUN useradd --uid 10001 --no-create-home tedtrajrec \
    && install --directory --owner tedtrajrec /var/cache/tedtrajrec /data
ENV PATH=/opt/tedtrajrec/bin:$PATH NUMBA_CACHE_DIR=/var/cache/tedtrajrec MPLCONFIGDIR=/var/cache/tedtrajrec \
    PYTHONUNBUFFERED=1
USER tedtrajrec
WORKDIR /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["tedtrajrec"]
CMD ["serve", "chengdu", "--host", "0.0.0.0", "--port", "8000"]
