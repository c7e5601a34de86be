# Posthaste in a container: docs/deploy.md says how to run it. A test holds the paths, flags, port and times to the program.
FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY crates crates
RUN cargo build --release --locked -p posthaste && strip target/release/posthaste && mkdir -p /out/state

# libc and libgcc, no shell and no package manager. The roots of TLS are part of the program.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/posthaste /usr/bin/posthaste
COPY LICENSE /usr/share/doc/posthaste/LICENSE
COPY crates/posthaste/assets/docs/LICENSE /usr/share/doc/posthaste/swagger-ui/LICENSE
COPY crates/posthaste/assets/docs/NOTICE /usr/share/doc/posthaste/swagger-ui/NOTICE
COPY --from=build --chown=nonroot:nonroot /out/state /var/lib/posthaste
USER nonroot
WORKDIR /var/lib/posthaste
VOLUME /var/lib/posthaste
ENV POSTHASTE__SERVER__LISTEN=0.0.0.0:7780
ENV POSTHASTE__STORE__URL=sqlite:///var/lib/posthaste/posthaste.db
ENV POSTHASTE__LOG__FORMAT=json
# Docker kills a container 10 s after it asked it to stop, so the drain is shorter. Where more time is given, set more.
ENV POSTHASTE__SERVER__DRAIN_TIMEOUT=7s
EXPOSE 7780
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/bin/posthaste", "doctor", "--probe", "healthz"]
ENTRYPOINT ["/usr/bin/posthaste"]
CMD ["serve"]
