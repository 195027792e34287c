import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { stubService, stubSocket } from './stub-service.ts';

const SCRIPT = fileURLToPath(new URL('call-once.ts', import.meta.url));

/**
 * A desktop's proxy setting may name noria itself, and whoever it names would see the key. Read by Node as the process
 * starts, so the call is made in a process of its own; the proxy is a socket that must stay alone.
 */
test('client environment: no proxy variable is obeyed, in either case, also where Node itself would', async () => {
  let seenByProxy = 0;
  const proxy = await stubSocket((socket) => {
    seenByProxy += 1;
    socket.destroy();
  });
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const names = ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'https_proxy', 'ALL_PROXY', 'all_proxy'];
  const env = {
    ...process.env,
    ...Object.fromEntries(names.map((name) => [name, proxy.baseUrl])),
    NO_PROXY: '',
    no_proxy: '',
    NODE_USE_ENV_PROXY: '1',
    NODE_NO_WARNINGS: '1',
  };
  const control = `fetch('${service.baseUrl}').catch(() => {})`;
  await promisify(execFile)(process.execPath, ['--eval', control], { env });
  expect(seenByProxy, 'Node itself does not obey the variables as they are set').toBeGreaterThan(0);
  expect(service.received).toEqual([]);

  seenByProxy = 0;
  const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, service.baseUrl], { env });
  expect(stdout).toBe('12009');
  expect(service.received).toHaveLength(1);
  expect(seenByProxy).toBe(0);
});

/** A certificate of our own for localhost and 127.0.0.1, good for a century; its key protects nothing. */
const CERTIFICATE = fileURLToPath(new URL('../fixtures/service/tls/localhost.cert.pem', import.meta.url));
const tls = {
  cert: readFileSync(CERTIFICATE),
  key: readFileSync(new URL('../fixtures/service/tls/localhost.key.pem', import.meta.url)),
};

/** What a process of its own says about a call over HTTPS. */
async function callOverTls(address: string, more: NodeJS.ProcessEnv): Promise<string> {
  const env = { ...process.env, NODE_NO_WARNINGS: '1', ...more };
  const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, `https://${address}`], { env });
  return stdout;
}

test('client environment: a service over HTTPS is called when its certificate is trusted, by name or by address', async () => {
  const namesAskedFor: unknown[] = [];
  const service = await stubService((response) => {
    if (response.socket instanceof TLSSocket) namesAskedFor.push(response.socket.servername);
    response.end('{"code":"12009"}');
  }, tls);
  const trust = { NODE_EXTRA_CA_CERTS: CERTIFICATE };
  expect(await callOverTls(`localhost:${service.port}`, trust)).toBe('12009');
  expect(await callOverTls(`127.0.0.1:${service.port}`, trust)).toBe('12009');
  expect(namesAskedFor).toEqual(['localhost', false]); // an address is no server name (RFC 6066 §3)
});

test('client environment: a service over HTTPS whose certificate is not trusted is told nothing', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'), tls);
  const said = await callOverTls(`localhost:${service.port}`, {});
  expect(said).toMatch(
    /^no TLS connection came about with localhost:\d+ \(DEPTH_ZERO_SELF_SIGNED_CERT\) after/,
  );
  expect(service.received).toEqual([]);
});
