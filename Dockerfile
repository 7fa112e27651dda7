# The image of `judge-relay serve`: the binary and the system's certificate authorities, nothing else of ours.
# It writes no file, so that it runs with a read-only root file system.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /build

# Dependencies first, in a layer of their own: minutes of compiling that only Cargo.toml and Cargo.lock can outdate.
# rust-toolchain.toml stays out: it would make rustup fetch formatter and linter, and the image's tag pins the compiler.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --release --locked \
    && rm -r src

# The migrations are compiled into the binary.
COPY migrations migrations
COPY src src
# The copied files may be older than the empty ones above; cargo goes by their times.
RUN touch src/lib.rs src/main.rs \
    && cargo build --release --locked --bin judge-relay

FROM debian:bookworm-slim
# For verified TLS towards PostgreSQL, Redis and the controller.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /build/target/release/judge-relay /usr/local/bin/judge-relay

# A number, not a name: Kubernetes can then check runAsNonRoot.
USER 10001:10001
EXPOSE 8080
# The first one begins the drain; see terminationGracePeriodSeconds in deploy/kubernetes.yaml.
STOPSIGNAL SIGTERM
ENTRYPOINT ["judge-relay"]
CMD ["serve"]
