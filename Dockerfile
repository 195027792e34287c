# noria in a container: docs/operations/containers.md tells how to run it.
#
# Two stages on one pinned base: the first compiles and keeps npm, the second holds Node, the compiled package and its
# production dependencies. The version is the one that package.json pins for development: renew both together.

ARG NODE_IMAGE=node:24.21.0-bookworm-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /build
# The lock file first: dependencies are installed anew only when they change.
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
# What builds and installs is of no use to noria, and of use to an intruder.
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
# A number, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 65532:65532
# Pace and snapshot; the rest of the root may be read-only. In the configuration: state: { dir: /var/lib/noria }
VOLUME ["/var/lib/noria"]
EXPOSE 8888 8889
# Ready: exit code 0. It asks http://127.0.0.1:8889, or what NORIA_ADMIN says.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["noria", "status"]
# noria is PID 1: it hears SIGTERM and lets tunnels finish for shutdown.drainTimeout (30s); stop it with a longer patience.
STOPSIGNAL SIGTERM
ENTRYPOINT ["noria"]
CMD ["run", "-c", "/etc/noria/noria.yaml"]
