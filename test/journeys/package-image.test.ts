/** Tests of the Dockerfile and the deployment examples that need no container engine. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { z } from 'zod';
import type { ConfigFiles } from '../../src/config/files.ts';
import { parseConfig } from '../../src/config/load.ts';
import { aclLine } from '../../src/fleet/redis/inspect-store.ts';
import { inBothLanguages } from '../support/translations.ts';

const dockerfile = readFileSync('Dockerfile', 'utf8');
/** Instructions, one per line, without comments. */
const instructions = dockerfile
  .replaceAll(/^#.*\n/gm, '')
  .replaceAll(/\\\n\s*/g, ' ')
  .split('\n')
  .filter((line) => line !== '');
const lastOf = (name: string) => instructions.filter((line) => line.startsWith(`${name} `)).at(-1) ?? '';

/** A file system in which every secret file exists and only its owner can read it. */
const SECRETS: ConfigFiles = {
  read: (path) =>
    Buffer.from(path.endsWith('/fleet-url') ? 'redis://noria:hunter2@valkey:6379\n' : 'hunter2-hunter2\n'),
  isWorldReadable: () => false,
};
const accept = (yaml: string, env = {}) =>
  parseConfig(yaml, '/etc/noria/noria.yaml', { env, files: SECRETS });

test('Dockerfile: both stages use one pinned image with the Node of devDependencies', () => {
  const { devDependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
  expect(instructions[0]).toBe(`ARG NODE_IMAGE=node:${devDependencies.node}-bookworm-slim`);
  const stages = instructions.filter((line) => line.startsWith('FROM '));
  expect(stages).toEqual(['FROM ${NODE_IMAGE} AS build', 'FROM ${NODE_IMAGE}']);
});

test('Dockerfile: the image has a numeric user, a health check and SIGTERM as its stop signal', () => {
  expect(lastOf('USER')).toMatch(/^USER [1-9]\d+:[1-9]\d+$/);
  expect(lastOf('HEALTHCHECK')).toMatch(/CMD \["noria", "status"\]$/);
  expect(lastOf('STOPSIGNAL')).toBe('STOPSIGNAL SIGTERM');
  expect(lastOf('ENTRYPOINT')).toBe('ENTRYPOINT ["noria"]'); // without a shell, noria is PID 1 and receives the signal
});

test('Dockerfile: every file that it copies exists and is not in .dockerignore', () => {
  const ignore = readFileSync('.dockerignore', 'utf8').split('\n');
  const copied = instructions
    .filter((line) => /^COPY (?!--from)/.test(line))
    .flatMap((line) => line.split(' ').slice(1, -1))
    .filter((name) => !name.includes('*'));
  expect(copied.length).toBeGreaterThan(5);
  expect(copied.filter((name) => !existsSync(name))).toEqual([]);
  const isIncluded = (name: string) =>
    ignore.includes(`!${name}`) || (/^tsconfig/.test(name) && ignore.includes('!tsconfig*.json'));
  expect(copied.filter((name) => !isIncluded(name))).toEqual([]);
});

const composeSchema = z.object({
  services: z.object({
    noria: z.object({
      read_only: z.literal(true),
      cap_drop: z.tuple([z.literal('ALL')]),
      stop_grace_period: z.string(),
    }),
    scraper: z.object({ network_mode: z.literal('service:noria'), image: z.string().regex(/:\d/) }),
  }),
  configs: z.object({ 'noria.yaml': z.object({ content: z.string() }) }),
});

test('docs/operations/compose.yaml: has a valid configuration whose address the client reaches', () => {
  const { services, configs } = composeSchema.parse(
    parse(readFileSync('docs/operations/compose.yaml', 'utf8')),
  );
  const config = accept(configs['noria.yaml'].content);
  expect(config.warnings).toEqual([]);
  expect(config.listeners[0]?.address).toMatchObject({ host: '127.0.0.1', port: 8888 });
  expect(config.admin?.address).toMatchObject({ port: 8889 }); // the address that `noria status` uses by default
  expect(Number.parseInt(services.noria.stop_grace_period, 10)).toBeGreaterThan(
    config.shutdown.drainTimeoutMs / 1_000,
  );
});

const restricted = z.object({
  allowPrivilegeEscalation: z.literal(false),
  readOnlyRootFilesystem: z.literal(true),
  capabilities: z.object({ drop: z.tuple([z.literal('ALL')]) }),
});
const probe = z.object({
  httpGet: z.object({ path: z.enum(['/readyz', '/healthz']), port: z.literal('admin') }),
});
const mapSchema = z.object({ data: z.object({ 'noria.yaml': z.string() }) });
const deploymentSchema = z.object({
  spec: z.object({
    template: z.object({
      spec: z.object({
        terminationGracePeriodSeconds: z.number(),
        securityContext: z.object({ runAsNonRoot: z.literal(true), runAsUser: z.number() }),
        initContainers: z.tuple([
          z.object({
            restartPolicy: z.literal('Always'),
            args: z.array(z.string()),
            securityContext: restricted,
            startupProbe: probe,
            readinessProbe: probe,
            livenessProbe: probe,
            ports: z.tuple([z.object({ name: z.literal('admin'), containerPort: z.number() })]),
          }),
        ]),
        containers: z.array(z.object({ securityContext: restricted })),
      }),
    }),
  }),
});

test('docs/operations/kubernetes.yaml: has a restricted sidecar whose probes reach the configured admin address', () => {
  const documents = parseAllDocuments(readFileSync('docs/operations/kubernetes.yaml', 'utf8'));
  const [map, deployment] = documents.map((document) => document.toJS());
  const config = accept(mapSchema.parse(map).data['noria.yaml']);
  expect(config.warnings.map(({ path }) => path)).toEqual(['admin.address']); // the page explains this warning
  const { spec } = deploymentSchema.parse(deployment).spec.template;
  const [noria] = spec.initContainers;
  expect(config.admin?.address).toMatchObject({ host: '0.0.0.0', port: noria.ports[0].containerPort });
  expect(config.admin?.token).toBeDefined();
  expect(noria.args).toEqual(['run', '--watch', '-c', '/etc/noria/noria.yaml']);
  expect(lastOf('USER')).toContain(`USER ${spec.securityContext.runAsUser}:`);
  expect(spec.terminationGracePeriodSeconds).toBeGreaterThan(config.shutdown.drainTimeoutMs / 1_000);
});

/** The options with which a store keeps a fleet's data. */
const KEEPS = [
  ['--appendonly', 'yes'],
  ['--maxmemory-policy', 'noeviction'],
] as const;

const fleetComposeSchema = z.object({
  services: z.object({
    valkey: z.object({ command: z.array(z.string()), secrets: z.tuple([z.literal('valkey.acl')]) }),
    'noria-a': composeSchema.shape.services.shape.noria,
    'noria-b': composeSchema.shape.services.shape.noria,
    'scraper-a': z.object({ network_mode: z.literal('service:noria-a') }),
    'scraper-b': z.object({ network_mode: z.literal('service:noria-b') }),
  }),
  configs: composeSchema.shape.configs,
});

test('docs/operations/fleet/compose.yaml: two norias in one fleet, and a store that keeps its data', () => {
  const text = readFileSync('docs/operations/fleet/compose.yaml', 'utf8');
  const { services, configs } = fleetComposeSchema.parse(parse(text, { merge: true }));
  const config = accept(configs['noria.yaml'].content);
  expect(config.warnings.map(({ path }) => path)).toEqual(['fleet']); // the page explains why there is no TLS
  expect(config.fleet?.url).toMatchObject({ host: 'valkey', port: 6379 });
  for (const noria of [services['noria-a'], services['noria-b']])
    expect(Number.parseInt(noria.stop_grace_period, 10)).toBeGreaterThan(
      config.shutdown.drainTimeoutMs / 1_000,
    );
  const { command } = services.valkey;
  for (const [option, value] of KEEPS) expect(command[command.indexOf(option) + 1], option).toBe(value);
});

const storeSchema = z.object({
  spec: z.object({
    replicas: z.literal(1),
    template: z.object({
      spec: z.object({
        containers: z.tuple([z.object({ command: z.array(z.string()), securityContext: restricted })]),
      }),
    }),
  }),
});

test('docs/operations/fleet/kubernetes.yaml: restricted sidecars in one fleet, and a store that keeps its data', () => {
  const documents = parseAllDocuments(readFileSync('docs/operations/fleet/kubernetes.yaml', 'utf8'));
  const named = (kind: string, name: string) =>
    documents
      .map((document) => document.toJS())
      .find((object) => object.kind === kind && object.metadata.name === name);
  const yaml = mapSchema.parse(named('ConfigMap', 'noria')).data['noria.yaml'];
  const config = accept(yaml, { POD_NAME: 'scraper-0' });
  expect(config.warnings.map(({ path }) => path)).toEqual(['admin.address', 'fleet']); // the page explains these warnings
  expect(config.fleet).toMatchObject({ replica: 'scraper-0', url: { host: 'valkey', port: 6379 } });
  const scraper = named('StatefulSet', 'scraper');
  const { spec } = deploymentSchema.parse(scraper).spec.template;
  expect(spec.terminationGracePeriodSeconds).toBeGreaterThan(config.shutdown.drainTimeoutMs / 1_000);
  const [store] = storeSchema.parse(named('StatefulSet', 'valkey')).spec.template.spec.containers;
  const { command } = store;
  for (const [option, value] of KEEPS) expect(command[command.indexOf(option) + 1], option).toBe(value);
  expect(named('Service', 'valkey').spec.ports[0].port).toBe(config.fleet?.url.port);
});

test.each(inBothLanguages('docs/operations/fleet.md'))(
  '$file: shows the permissions that noria check prints',
  ({ text }) => {
    expect(text).toContain(`\n${aclLine('noria', 'noria')}\n`);
  },
);

test.each(inBothLanguages('docs/operations/systemd.md'))(
  '$file: has a valid configuration with the state folder of the unit',
  ({ text: page }) => {
    const yaml = /```yaml\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
    const config = accept(yaml, { CREDENTIALS_DIRECTORY: '/run/credentials/noria.service' });
    expect(config.warnings).toEqual([]);
    expect(config.state?.dir).toBe('/var/lib/noria');
    expect(readFileSync('systemd/noria.service', 'utf8')).toMatch(/^StateDirectory=noria$/m);
  },
);
