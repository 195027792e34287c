/** Builds the configuration of each noria in a demo. */
import { createServer } from 'node:net';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';

export const DEFAULT_HOST = '127.0.0.1';
export const DEFAULT_PORT = 8888;
export const DEFAULT_ADMIN_PORT = 8889;
export const DEFAULT_TARGET_PORT = 8080;
export const DEMO_FLEET = 'demo';
/**
 * The port of the second listener, which requires a user name and password. Browsers need it: they send a user name
 * only after a 407.
 */
export const DEFAULT_AUTH_PORT = 8890;
/** The ports of each replica are those of the previous replica plus this number. */
const PORT_STEP = 10;

/** The secrets of a demo that other machines can reach: a password for clients, and a token for the dashboard. */
export interface DemoSecrets {
  readonly password: string;
  readonly token: string;
}

interface PortFlags {
  readonly port?: number;
  readonly adminPort?: number;
  readonly targetPort?: number;
  readonly browserPort?: number;
}

interface DemoSetup {
  readonly flags: PortFlags & { readonly host: string; readonly members: number };
  readonly sandbox: Sandbox;
  readonly secrets: DemoSecrets | undefined;
}

interface DemoReplica {
  /** The number of the replica, counted from 1. */
  readonly number: number;
  /** The port of the store. If undefined, the replicas share a pool in memory. */
  readonly storePort: number | undefined;
}

/** @param replica - undefined if the demo has no fleet. */
export async function demoConfig(
  { flags, sandbox, secrets }: DemoSetup,
  replica: DemoReplica | undefined,
): Promise<Config> {
  const { host } = flags;
  const step = PORT_STEP * ((replica?.number ?? 1) - 1);
  const shifted = (port: number) => (port === 0 ? 0 : port + step);
  const found = (given: number | undefined, preferred: number) =>
    given === undefined ? freePort(host, shifted(preferred)) : shifted(given);
  const port = await found(flags.port, DEFAULT_PORT);
  const authPort = await found(flags.browserPort ?? (flags.port === 0 ? 0 : undefined), DEFAULT_AUTH_PORT);
  const adminPort = await found(flags.adminPort, DEFAULT_ADMIN_PORT);
  const [http, socks] = split(flags.members);
  const sources = [
    sourceText({ name: 'city', product: 'short-classic', size: http }, sandbox),
    ...(socks === 0 ? [] : [sourceText({ name: 'harbour', product: 'short-socks5', size: socks }, sandbox)]),
  ];
  return parseConfig(
    `
service: { baseUrl: "${sandbox.url}" }
sources:
${sources.join('\n')}
pool:
  allowPrivateAddresses: true   # the members are on loopback
  idleAfter: 0                  # the members are free: the dashboard shows a full pool also without clients
listeners:
${listenersText((at) => formatHostPort(host, at), { port, authPort, secrets })}
admin: { address: "${formatHostPort(host, adminPort)}"${secrets === undefined ? '' : ', token: "${NORIA_ADMIN_TOKEN}"'} }
state: off
${fleetText(replica)}
`,
    'demo.yaml',
    { env: { DEMO_PASSWORD: secrets?.password, NORIA_ADMIN_TOKEN: secrets?.token } },
  );
}

interface DemoAddresses {
  readonly listeners: readonly string[];
  readonly admin: string | undefined;
  readonly target: string;
}

/**
 * Returns a line for each default port that is taken. The line says which port the demo uses instead.
 *
 * @param number - the number of the replica, counted from 1.
 */
export function describeTakenPorts(
  { port, adminPort, targetPort, browserPort }: PortFlags,
  { listeners, admin, target }: DemoAddresses,
  number = 1,
): string[] {
  const shift = PORT_STEP * (number - 1);
  const uses = [
    { what: 'proxy', given: port, preferred: DEFAULT_PORT + shift, address: listeners[0] },
    {
      what: 'proxy for browsers',
      given: browserPort ?? (port === 0 ? 0 : undefined),
      preferred: DEFAULT_AUTH_PORT + shift,
      address: listeners[1],
    },
    { what: 'dashboard', given: adminPort, preferred: DEFAULT_ADMIN_PORT + shift, address: admin },
    { what: 'target site', given: targetPort, preferred: DEFAULT_TARGET_PORT, address: target },
  ];
  return uses.flatMap(({ what, given, preferred, address }) => {
    const used = address?.slice(address.lastIndexOf(':') + 1);
    return given !== undefined || used === undefined || used === String(preferred)
      ? []
      : [`Port ${preferred} is in use, so the ${what} uses port ${used} instead.`];
  });
}

function fleetText(replica: DemoReplica | undefined): string {
  if (replica?.storePort === undefined) return '';
  const { number, storePort } = replica;
  return `fleet: { url: "redis://${DEFAULT_HOST}:${storePort}", name: ${DEMO_FLEET}, replica: ${replicaName(number)} }`;
}

export function replicaName(number: number): string {
  return `replica-${number}`;
}

interface DemoSource {
  readonly name: string;
  readonly product: 'short-classic' | 'short-socks5';
  readonly size: number;
}

function sourceText({ name, product, size }: DemoSource, sandbox: Sandbox): string {
  const { id, password } = sandbox.instance(product);
  return `  - { name: ${name}, product: ${product}, instance: "${id}", password: "${password}", params: { count: ${size} }, size: ${size} }`;
}

/** Returns how many of the members speak HTTP and how many SOCKS5. */
export function split(members: number): readonly [http: number, socks: number] {
  const socks = Math.floor(members / 2);
  return [members - socks, socks];
}

/**
 * Returns the listeners. If only this machine can reach the demo, clients may also request targets at loopback
 * addresses.
 */
function listenersText(
  address: (port: number) => string,
  {
    port,
    authPort,
    secrets,
  }: { readonly port: number; readonly authPort: number; readonly secrets: DemoSecrets | undefined },
): string {
  if (secrets !== undefined)
    return `  - { address: "${address(port)}", users: [{ username: me, password: "\${DEMO_PASSWORD}" }] }`;
  return [
    `  - { address: "${address(port)}", denyTargets: [smtp] }`,
    `  - { address: "${address(authPort)}", denyTargets: [smtp], users: [{ username: me, password: x }] }`,
  ].join('\n');
}

/** Returns `preferred` if the port is free, else 0. */
export function freePort(host: string, preferred: number): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(0)); // handled: the port is taken
    probe.listen(preferred, host, () => probe.close(() => resolve(preferred)));
  });
}
