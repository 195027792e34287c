# noria in a container. docs/operations/containers.md explains how to run it.
#
# Two stages on one pinned base image. The first compiles. The second has Node, the compiled package and its production
# dependencies, without npm. package.json pins the same version of Node for development: update both together.

ARG NODE_IMAGE=node:24.21.0-bookworm-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /build
# The lock file is copied first, so that Docker reinstalls dependencies only when the lock file changes.
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts
COPY scripts ./scripts
COPY tsconfig*.json ./
COPY src ./src
RUN npm run build && npm prune --omit=dev --ignore-scripts

FROM ${NODE_IMAGE}
LABEL org.opencontainers.image.title="noria" \
      org.opencontainers.image.description="A local rotating forward proxy over short-lived proxy IPs" \
      org.opencontainers.image.licenses="MIT"
# noria needs no build tools, and an intruder could use them.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack \
      /usr/local/bin/yarn /usr/local/bin/yarnpkg /usr/local/bin/docker-entrypoint.sh /opt/yarn-* \
    && install -d -o 65532 -g 65532 -m 0700 /var/lib/noria
WORKDIR /opt/noria
COPY --from=build /build/package.json ./
COPY --from=build /build/node_modules ./node_modules
COPY --from=build /build/dist ./dist
COPY LICENSE README.md config.example.yaml ./
RUN ln -s /opt/noria/dist/main.js /usr/local/bin/noria

ENV NODE_ENV=production \
    NO_COLOR=1
# The user is a number, so that Kubernetes can verify that it is not root (runAsNonRoot).
USER 65532:65532
# noria keeps pace and snapshot here (state: { dir: /var/lib/noria }). The rest of the file system can be read-only.
VOLUME ["/var/lib/noria"]
EXPOSE 8888 8889
# The check succeeds when noria is ready. It asks the address in NORIA_ADMIN, else admin.address of /etc/noria/noria.yaml, else 127.0.0.1:8889.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["noria", "status"]
# noria is PID 1. On SIGTERM it lets tunnels finish for shutdown.drainTimeout (30s): stop it with a longer timeout.
STOPSIGNAL SIGTERM
ENTRYPOINT ["noria"]
CMD ["run", "-c", "/etc/noria/noria.yaml"]
