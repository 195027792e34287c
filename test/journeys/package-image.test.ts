/**
 * The image and the examples around it, as far as they can be seen without an engine: the Dockerfile keeps its promises, the
 * examples are YAML whose configurations noria takes without a warning.
 */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { z } from 'zod';
import type { ConfigFiles } from '../../src/config/files.ts';
import { parseConfig } from '../../src/config/load.ts';

const dockerfile = readFileSync('Dockerfile', 'utf8');
/** Instructions, each on one line, without comments. */
const instructions = dockerfile
  .replaceAll(/^#.*\n/gm, '')
  .replaceAll(/\\\n\s*/g, ' ')
  .split('\n')
  .filter((line) => line !== '');
const lastOf = (name: string) => instructions.filter((line) => line.startsWith(`${name} `)).at(-1) ?? '';

/** Secret files that are there, and that their owner alone can read. */
const SECRETS: ConfigFiles = { read: () => Buffer.from('hunter2-hunter2\n'), isWorldReadable: () => false };
const accept = (yaml: string, env = {}) =>
  parseConfig(yaml, '/etc/noria/noria.yaml', { env, files: SECRETS });

test('Dockerfile: one pinned base, of the Node that noria is developed on, for both stages', () => {
  const { devDependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
  expect(instructions[0]).toBe(`ARG NODE_IMAGE=node:${devDependencies.node}-bookworm-slim`);
  const stages = instructions.filter((line) => line.startsWith('FROM '));
  expect(stages).toEqual(['FROM ${NODE_IMAGE} AS build', 'FROM ${NODE_IMAGE}']);
});

test('Dockerfile: the result runs as a number, asks for its health, and is told to end by SIGTERM', () => {
  expect(lastOf('USER')).toMatch(/^USER [1-9]\d+:[1-9]\d+$/);
  expect(lastOf('HEALTHCHECK')).toMatch(/CMD \["noria", "status"\]$/);
  expect(lastOf('STOPSIGNAL')).toBe('STOPSIGNAL SIGTERM');
  expect(lastOf('ENTRYPOINT')).toBe('ENTRYPOINT ["noria"]'); // without a shell: noria is PID 1 and hears it
});

test('Dockerfile: what it copies exists, and passes .dockerignore', () => {
  const ignore = readFileSync('.dockerignore', 'utf8').split('\n');
  const copied = instructions
    .filter((line) => /^COPY (?!--from)/.test(line))
    .flatMap((line) => line.split(' ').slice(1, -1))
    .filter((name) => !name.includes('*'));
  expect(copied.length).toBeGreaterThan(5);
  expect(copied.filter((name) => !existsSync(name))).toEqual([]);
  const letIn = (name: string) =>
    ignore.includes(`!${name}`) || (/^tsconfig/.test(name) && ignore.includes('!tsconfig*.json'));
  expect(copied.filter((name) => !letIn(name))).toEqual([]);
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

test('docs/operations/compose.yaml: its configuration is one, and the client reaches the address in it', () => {
  const { services, configs } = composeSchema.parse(
    parse(readFileSync('docs/operations/compose.yaml', 'utf8')),
  );
  const config = accept(configs['noria.yaml'].content);
  expect(config.warnings).toEqual([]);
  expect(config.listeners[0]?.address).toMatchObject({ host: '127.0.0.1', port: 8888 });
  expect(config.admin?.address).toMatchObject({ port: 8889 }); // what noria status asks by itself
  expect(Number.parseInt(services.noria.stop_grace_period, 10)).toBeGreaterThan(
    config.shutdown.drainTimeoutMs / 1_000,
  );
});

const locked = z.object({
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
            securityContext: locked,
            startupProbe: probe,
            readinessProbe: probe,
            livenessProbe: probe,
            ports: z.tuple([z.object({ name: z.literal('admin'), containerPort: z.number() })]),
          }),
        ]),
        containers: z.array(z.object({ securityContext: locked })),
      }),
    }),
  }),
});

test('docs/operations/kubernetes.yaml: a locked sidecar, whose probes reach the admin address of its configuration', () => {
  const documents = parseAllDocuments(readFileSync('docs/operations/kubernetes.yaml', 'utf8'));
  const [map, deployment] = documents.map((document) => document.toJS());
  const config = accept(mapSchema.parse(map).data['noria.yaml']);
  expect(config.warnings.map(({ path }) => path)).toEqual(['admin.address']); // as the page says
  const { spec } = deploymentSchema.parse(deployment).spec.template;
  const [noria] = spec.initContainers;
  expect(config.admin?.address).toMatchObject({ host: '0.0.0.0', port: noria.ports[0].containerPort });
  expect(config.admin?.token).toBeDefined();
  expect(noria.args).toEqual(['run', '--watch', '-c', '/etc/noria/noria.yaml']);
  expect(lastOf('USER')).toContain(`USER ${spec.securityContext.runAsUser}:`);
  expect(spec.terminationGracePeriodSeconds).toBeGreaterThan(config.shutdown.drainTimeoutMs / 1_000);
});

test('docs/operations/systemd.md: its configuration is one, and keeps its state where the unit lets it', () => {
  const page = readFileSync('docs/operations/systemd.md', 'utf8');
  const yaml = /```yaml\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
  const config = accept(yaml, { CREDENTIALS_DIRECTORY: '/run/credentials/noria.service' });
  expect(config.warnings).toEqual([]);
  expect(config.state?.dir).toBe('/var/lib/noria');
  expect(readFileSync('systemd/noria.service', 'utf8')).toMatch(/^StateDirectory=noria$/m);
});
