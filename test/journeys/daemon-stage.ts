/** A noria process on a sandbox with its configuration file, and clients of this noria. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { freePort } from '../support/free-port.ts';
import { openTestSandbox, sourceLine, WORKERS_LINE } from '../support/noria.ts';
import { type NoriaProcess, runNoria, testFolder, writeIn } from './noria-process.ts';

export interface DaemonStage {
  readonly sandbox: Sandbox;
  readonly folder: string;
  readonly file: string;
  readonly port: number;
  /** Returns the configuration. `listener`: further keys of its listener; `more`: further sections. */
  config(listener?: string, more?: string): string;
}

export async function setUpDaemon(listener = '', more = ''): Promise<DaemonStage> {
  const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 600_000 });
  const folder = testFolder();
  const port = await freePort();
  const config = (inListener = '', sections = '') => `
sources:
${sourceLine(sandbox, 'city', 'short-classic', 'size: 2, params: { count: 2 }')}
pool: { fill: size, allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:${port}", denyTargets: []${inListener} }]
admin: off
state: { dir: "${join(folder, 'state')}" }
${/^workers:/m.test(sections) ? '' : WORKERS_LINE}
${sections}
`;
  return { sandbox, folder, port, config, file: writeIn(folder, 'noria.yaml', config(listener, more)) };
}

export async function startOn(stage: DaemonStage, ...args: string[]): Promise<NoriaProcess> {
  const noria = runNoria(['run', '-c', stage.file, ...args]);
  await noria.line('noria is running');
  await noria.line('draw done');
  return noria;
}

/** Opens a tunnel to the sandbox's target. */
export async function tunnelThrough(socket: Socket, { sandbox }: DaemonStage): Promise<Socket> {
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {}); // ignored: noria may reset it
  const { host } = new URL(sandbox.targetUrl);
  socket.write(`CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  const [head] = await once(socket, 'data');
  expect(String(head)).toMatch(/^HTTP\/1\.1 200 /);
  return socket;
}

/** Returns the target's answer to a GET of `/ip` on an open tunnel. */
export async function getIp(socket: Socket): Promise<string> {
  socket.write('GET /ip HTTP/1.1\r\nHost: target\r\n\r\n');
  const [answer] = await once(socket, 'data');
  return String(answer);
}
